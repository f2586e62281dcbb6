//! Settings of the server.

use forebay_front::nbd;

/// Settings of the server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Settings of the fronts. Each server has its own count of clients.
    pub(crate) front: nbd::Settings,
    pub(crate) nr_workers: usize,
    /// A query of the contents of a range may fail.
    pub(crate) may_fail: bool,
}
