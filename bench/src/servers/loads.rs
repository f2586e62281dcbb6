//! Loads for servers, by name.

use anyhow::{Result, ensure};

/// The storage behind an export.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Medium {
    /// No storage: it measures the server itself.
    Null,
    /// A file, through the page cache, cached in pages of 4k.
    Cached,
    /// The same, cached in large folios.
    Folios,
    /// A file, with direct I/O.
    Direct,
    /// A modelled device, which only our server has.
    Model,
}

/// One load: the work `W` on a medium, with the aim `A`.
#[derive(Debug)]
pub(crate) struct Load<W, A> {
    pub(crate) name: &'static str,
    pub(crate) medium: Medium,
    pub(crate) work: W,
    pub(crate) aim: A,
    /// Whether `--quick` includes this load.
    pub(crate) is_quick: bool,
}

/// Returns the loads with one of `parts` in their names. Without `parts`, returns all loads, or the
/// quick ones.
pub(crate) fn chosen<W, A>(
    all: &'static [Load<W, A>],
    parts: &[String],
    is_quick: bool,
) -> Result<Vec<&'static Load<W, A>>> {
    let wanted = |load: &&Load<W, A>| match parts {
        [] => !is_quick || load.is_quick,
        parts => parts.iter().any(|part| load.name.contains(part.as_str())),
    };
    let loads: Vec<_> = all.iter().filter(wanted).collect();
    ensure!(!loads.is_empty(), "no load has {} in its name; see --list", parts.join(" or "));
    Ok(loads)
}
