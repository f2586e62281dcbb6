//! Settings of the server.

use forebay_nbd::export::ExportInfo;

/// Settings of the server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) exports: Vec<ExportInfo>,
    pub(crate) nr_workers: usize,
    /// The maximum length of a bio.
    pub(crate) piece_bytes: u64,
    /// The maximum number of requests of a connection in flight.
    pub(crate) nr_flights_max: usize,
    pub(crate) nr_bufs: usize,
    /// Zeroes can be written fast.
    pub(crate) is_zeroing_fast: bool,
}
