//! Measurements for each I/O, and their report.

use crate::histogram::PERCENTILES;

/// The options. Their defaults are off or empty.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Measures {
    pub disable_lat: bool,
    pub disable_clat: bool,
    pub disable_slat: bool,
    pub disable_bw: bool,
    /// The percentiles to report instead of fio's seventeen, ascending.
    pub percentile_list: Option<Vec<f64>>,
    /// Whether to report percentiles of clat; `None`: yes.
    pub clat_percentiles: Option<bool>,
    pub lat_percentiles: bool,
    pub slat_percentiles: bool,
    /// `kb_base`, `unit_base`: the units in the text report.
    pub units: Units,
    /// `description`: a text for the report.
    pub description: Option<String>,
    /// `unified_rw_reporting`: whether to report all directions as one.
    pub unified: Unified,
}

/// The units in which sizes and rates are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Units {
    /// `kb_base=1000`: whether prefixes of powers of 1000 are preferred.
    pub decimal: bool,
    /// `unit_base=1`: whether rates are printed in bits.
    pub bits: bool,
}

/// How the directions are reported.
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
    /// Applies `gtod_reduce`: no measurement that needs the clock for each I/O.
    pub fn reduce(&mut self, on: bool) {
        self.disable_lat = on;
        self.disable_clat = on;
        self.disable_slat = on;
        self.disable_bw = on;
    }

    /// Returns the percentiles to report, ascending.
    pub fn percents(&self) -> &[f64] {
        self.percentile_list.as_deref().unwrap_or(&PERCENTILES)
    }

    /// Returns whether to report percentiles of the completion latency.
    pub fn shows_clat(&self) -> bool {
        self.clat_percentiles.unwrap_or(true)
    }

    /// Returns the latency that is counted by priority: as in fio, the total one if its percentiles
    /// are wanted.
    pub fn latency_by_priority(&self) -> &'static str {
        if self.lat_percentiles { "lat" } else { "clat" }
    }

    /// Returns whether percentiles of that latency are wanted.
    pub fn shows_priorities(&self) -> bool {
        self.lat_percentiles || self.shows_clat()
    }

    /// Returns whether the clock must be read for each I/O.
    pub fn is_timed(&self) -> bool {
        !(self.disable_lat && self.disable_clat && self.disable_slat)
    }
}
