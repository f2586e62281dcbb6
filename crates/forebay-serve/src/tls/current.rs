//! TLS of a running server: the configuration in use, and its reload.
//!
//! Each connection takes the configuration when it starts TLS and keeps it, so a reload changes new
//! connections only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use forebay_nbd::server::TlsPolicy;
use rustls::ServerConfig;

use super::{CA_CERT, CA_CRL, SERVER_CERT, SERVER_KEY, TlsError, server_config};
use crate::config::TlsOptions;

/// TLS of a server that has it.
#[derive(Debug)]
pub(crate) struct Tls {
    options: TlsOptions,
    config: RwLock<Arc<ServerConfig>>,
    /// Held during a reload: of two at once, the later one must win.
    reloading: Mutex<()>,
}

impl Tls {
    /// Reads the certificates.
    ///
    /// # Errors
    /// Those of [`server_config`].
    pub(crate) fn open(options: TlsOptions) -> Result<Tls, TlsError> {
        let config = server_config(&options.certificates, options.verify_peer)?;
        Ok(Tls { options, config: RwLock::new(config), reloading: Mutex::new(()) })
    }

    /// Returns whether clients may or must use TLS.
    pub(crate) fn policy(&self) -> TlsPolicy {
        if self.options.is_required { TlsPolicy::Require } else { TlsPolicy::On }
    }

    /// Returns the configuration for a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the directory of the certificates.
    pub(crate) fn directory(&self) -> &Path {
        &self.options.certificates
    }

    /// Reads the certificates again, for connections that start TLS from now on. If that fails, the
    /// previous ones stay in use.
    ///
    /// # Errors
    /// Those of [`server_config`].
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let config = server_config(&self.options.certificates, self.options.verify_peer)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Returns the directories that a reload reads from: that of the certificates, and those that
    /// links in it point to.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let directory = self.directory();
        let files = [CA_CERT, CA_CRL, SERVER_CERT, SERVER_KEY].map(|name| directory.join(name));
        let targets = files.iter().filter_map(|file| file.canonicalize().ok());
        let mut directories: Vec<_> =
            targets.filter_map(|target| Some(target.parent()?.to_owned())).collect();
        directories.extend(directory.canonicalize());
        directories.sort();
        directories.dedup();
        directories
    }
}
