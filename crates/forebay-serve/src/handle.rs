//! Handle to a running server, for other threads than the one that runs it.
//!
//! [`ServerHandle::reload`] is the one place for what a server can change while it runs.

use std::path::Path;
use std::sync::{Arc, Weak};

use forebay::now_ns;

use crate::error::ServeError;
use crate::resize;
use crate::shared::Shared;

/// Handle to a server. It keeps no disk open: after the server has ended, it does nothing.
#[derive(Clone, Debug)]
pub struct ServerHandle(Weak<Shared>);

impl ServerHandle {
    pub(crate) fn new(shared: &Arc<Shared>) -> ServerHandle {
        ServerHandle(Arc::downgrade(shared))
    }

    /// Reloads what can change while the server runs: the sizes of the disks, which may grow, and
    /// the TLS certificates, for new connections. Writes the outcome to the log of the server.
    ///
    /// Virtual machines whose front end has a backend channel are notified of a new size. NBD
    /// clients get it when they connect. Connected ones may use the new range too. A disk that has
    /// become smaller is an error, and its export keeps its size.
    ///
    /// The directories that it reads are in [`Needs::readable`](crate::Needs::readable).
    ///
    /// # Errors
    /// Returns the first error if something cannot be read or used. That stays as it was, and the
    /// rest is reloaded.
    pub fn reload(&self) -> Result<(), ServeError> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        let resized = resize::reread(&shared, None);
        let reloaded = reload_certificates(&shared);
        resized.and(reloaded.map(drop))
    }
}

/// Reads the TLS certificates again, for new connections, and writes the outcome to the log.
/// Returns their directory, or `None` if TLS is off.
///
/// # Errors
/// Returns an error if they cannot be used. Then new connections use the previous ones.
pub(crate) fn reload_certificates(shared: &Shared) -> Result<Option<&Path>, ServeError> {
    let Some(tls) = &shared.tls else { return Ok(None) };
    let directory = tls.directory();
    match tls.reload() {
        Ok(()) => {
            let path = directory.display();
            shared.log.line(now_ns(), format_args!("reloaded the TLS certificates in {path}"));
            Ok(Some(directory))
        }
        Err(error) => {
            let what = "reload failed, new connections use the previous TLS certificates";
            shared.log.warn(now_ns(), format_args!("{what}: {error}"));
            Err(error.into())
        }
    }
}
