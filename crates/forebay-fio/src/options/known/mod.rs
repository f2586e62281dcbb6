//! fio's options that are not rows of the table: which of them are ignored with a warning, and what
//! to do instead of the others.
//!
//! With [`super::OPTIONS`] this is every name that fio 3.33 lists (`--help`, `--cmdhelp=all`, and
//! `--enghelp` of each engine), and those of later versions up to 3.42. An option is ignored only
//! if the same is measured without it, and no output is missing; all others are refused. A name
//! that becomes a row of the table leaves this list.

mod command;
mod engines;
mod generic;

use super::same_name;

/// An option that fio has and this program does not.
#[derive(Debug)]
pub struct Foreign {
    /// Its name and its aliases.
    pub names: &'static [&'static str],
    /// Whether its value may be left out, and then is never taken from the next argument.
    pub is_flag: bool,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// What becomes of an option that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It changes nothing here, for this reason: a warning.
    Ignored(&'static str),
    /// To ignore it would mislead: an error, with what to do instead.
    Refused(&'static str),
}

/// Finds an option by any of its names.
pub(super) fn find(name: &str) -> Option<&'static Foreign> {
    all().find(|foreign| foreign.names.iter().any(|known| same_name(known, name)))
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Foreign> {
    generic::OPTIONS.iter().chain(command::OPTIONS).chain(engines::OPTIONS)
}

/// A row that is ignored.
const fn ignored(names: &'static [&'static str], why: &'static str) -> Foreign {
    Foreign { names, is_flag: false, verdict: Verdict::Ignored(why) }
}

/// A row that is refused.
const fn refused(names: &'static [&'static str], instead: &'static str) -> Foreign {
    Foreign { names, is_flag: false, verdict: Verdict::Refused(instead) }
}

/// A row whose value may be left out.
const fn flag(row: Foreign) -> Foreign {
    Foreign { is_flag: true, ..row }
}
