//! Handle to a running server, for other threads than the one that runs it.
//!
//! [`ServerHandle::reload`] is the one place for what a server can change while it runs.

use std::sync::{Arc, Weak};

use forebay::now_ns;

use crate::error::ServeError;
use crate::shared::Shared;

/// Handle to a server. It keeps no disk open: after the server has ended, it does nothing.
#[derive(Clone, Debug)]
pub struct ServerHandle(Weak<Shared>);

impl ServerHandle {
    pub(crate) fn new(shared: &Arc<Shared>) -> ServerHandle {
        ServerHandle(Arc::downgrade(shared))
    }

    /// Reloads what can change while the server runs: the TLS certificates, for new connections.
    /// Writes the outcome to the log of the server.
    ///
    /// The directories that it reads are in [`Needs::readable`](crate::Needs::readable).
    ///
    /// # Errors
    /// Returns an error if something cannot be read or used. All of it stays as it was then.
    pub fn reload(&self) -> Result<(), ServeError> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        let Some(tls) = &shared.tls else {
            shared.log.line(now_ns(), "nothing to reload: TLS is off");
            return Ok(());
        };
        let directory = tls.directory().display();
        match tls.reload() {
            Ok(()) => {
                let line = format_args!("reloaded the TLS certificates in {directory}");
                shared.log.line(now_ns(), line);
                Ok(())
            }
            Err(error) => {
                let what = "reload failed, new connections use the previous TLS certificates";
                shared.log.line(now_ns(), format_args!("{what}: {error}"));
                Err(error.into())
            }
        }
    }
}
