//! What is measured of each I/O, and what the report says of it.

use crate::histogram::PERCENTILES;

/// The options. Their defaults are all 0, or nothing.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Measures {
    pub disable_lat: bool,
    pub disable_clat: bool,
    pub disable_slat: bool,
    pub disable_bw: bool,
    /// The percentiles to show instead of fio's seventeen, ascending.
    pub percentile_list: Option<Vec<f64>>,
    /// Whether percentiles are shown: of clat, if nothing is said.
    pub clat_percentiles: Option<bool>,
    pub lat_percentiles: bool,
    pub slat_percentiles: bool,
    /// `unified_rw_reporting`: all directions as one.
    pub unified: Unified,
}

/// Whether the directions are reported one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unified {
    /// One by one.
    #[default]
    No,
    /// As one that is called `mixed`.
    Mixed,
    /// Both.
    Both,
}

impl Measures {
    /// `gtod_reduce`: nothing that needs a clock.
    pub fn reduce(&mut self, on: bool) {
        self.disable_lat = on;
        self.disable_clat = on;
        self.disable_slat = on;
        self.disable_bw = on;
    }

    /// The percentiles to show, ascending.
    pub fn percents(&self) -> &[f64] {
        self.percentile_list.as_deref().unwrap_or(&PERCENTILES)
    }

    /// Whether percentiles of the completion latency are shown.
    pub fn shows_clat(&self) -> bool {
        self.clat_percentiles.unwrap_or(true)
    }

    /// Whether a clock has to be read for each I/O.
    pub fn is_timed(&self) -> bool {
        !(self.disable_lat && self.disable_clat && self.disable_slat)
    }
}
