//! The options of zones: `zonemode`, `zonesize`, `zonerange`, `zoneskip`.
//!
//! Source: fio's HOWTO and fio 3.33. fio refuses a `zonesize` without a `zonemode`; here that is a
//! warning.

use crate::generator::strided::Strided;

/// The bytes between two zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneSkip {
    /// A number of bytes.
    Bytes(u64),
    /// A multiple of `zonesize`.
    Zones(u64),
}

/// The options; 0 is "not given".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneOptions {
    /// `zonemode=strided`.
    pub is_strided: bool,
    /// `zonesize`.
    pub size: u64,
    /// `zonerange`.
    pub range: u64,
    /// `zoneskip`.
    pub skip: Option<ZoneSkip>,
}

impl ZoneOptions {
    /// Returns the zones, if there are any.
    pub(super) fn strided(&self) -> Option<Strided> {
        let Self { size, range, .. } = *self;
        let skip = match self.skip {
            None => 0,
            Some(ZoneSkip::Bytes(bytes)) => bytes,
            Some(ZoneSkip::Zones(nr)) => nr.saturating_mul(size),
        };
        let range = if range == 0 { size } else { range };
        (self.is_strided && size > 0).then_some(Strided { size, range, skip })
    }

    /// Returns why the options contradict each other.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        let lacks_size = self.is_strided && self.size == 0;
        lacks_size.then_some("--zonemode=strided needs --zonesize")
    }

    /// Returns warnings about options that have no effect.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let given = [
            ("zonesize", self.size > 0),
            ("zonerange", self.range > 0),
            ("zoneskip", self.skip.is_some()),
        ];
        let void = given.into_iter().filter(|&(_, is_given)| is_given && !self.is_strided);
        void.map(|(name, _)| format!("--{name} has no effect without --zonemode=strided"))
    }
}
