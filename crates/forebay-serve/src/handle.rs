//! Handle to a running server, for other threads than the one that runs it.
//!
//! [`ServerHandle::reload`] is the one place for what a server can change while it runs.

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
        let resized = resize::reread(&shared);
        let Some(tls) = &shared.tls else { return resized };
        let directory = tls.directory().display();
        match tls.reload() {
            Ok(()) => {
                let line = format_args!("reloaded the TLS certificates in {directory}");
                shared.log.line(now_ns(), line);
                resized
            }
            Err(error) => {
                let what = "reload failed, new connections use the previous TLS certificates";
                shared.log.line(now_ns(), format_args!("{what}: {error}"));
                resized.and(Err(error.into()))
            }
        }
    }
}
