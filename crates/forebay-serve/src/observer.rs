//! Callbacks of a server's lifecycle.

use std::time::Duration;

/// Lifecycle callbacks, called on the thread that runs [`Server::run`](crate::Server::run). `()`
/// ignores them.
pub trait Observer {
    /// Returns the longest time between two calls of [`Observer::alive`]. `None`: no calls.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Called when the server has started to serve.
    fn ready(&mut self) {}

    /// Called from time to time while the server accepts connections.
    fn alive(&mut self) {}

    /// Called when the server stops accepting connections. It ends within a minute.
    fn stopping(&mut self) {}
}

impl Observer for () {}
