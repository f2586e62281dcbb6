//! fio's options that are not rows of the table: which of them are ignored with a warning, and what
//! to do instead of the others.
//!
//! With [`super::OPTIONS`] this is every name that fio 3.33 lists (`--help`, `--cmdhelp=all`, and
//! `--enghelp` of each engine), and those of later versions up to 3.42. An option is ignored only
//! if the measurement is the same without it and no output is missing; all others are refused,
//! except for values that switch them off ([`Foreign::off`]). A name that becomes a row of the
//! table leaves this list.

mod command;
mod engines;
mod generic;

use super::same_name;

/// An option that fio has and this program does not.
#[derive(Debug)]
pub struct Foreign {
    /// Its name and its aliases.
    pub names: &'static [&'static str],
    /// Whether its value is optional. The next argument is then never taken for it.
    pub is_flag: bool,
    /// How it is handled.
    pub verdict: Verdict,
    /// Values that are accepted without a word, because they ask for what happens anyway.
    pub off: &'static [&'static str],
}

/// How an unsupported option is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A warning: it has no effect here, for this reason.
    Ignored(&'static str),
    /// An error, with what to do instead: the results would be others than in fio.
    Refused(&'static str),
}

/// Finds an option by any of its names.
pub(super) fn find(name: &str) -> Option<&'static Foreign> {
    all().find(|foreign| foreign.names.iter().any(|known| same_name(known, name)))
}

/// Returns all of them.
pub fn all() -> impl Iterator<Item = &'static Foreign> {
    generic::OPTIONS.iter().chain(command::OPTIONS).chain(engines::OPTIONS)
}

/// Returns whether an option is one of fio's engines.
pub(crate) fn is_of_engine(foreign: &Foreign) -> bool {
    engines::OPTIONS.iter().any(|row| std::ptr::eq(row, foreign))
}

/// Returns the row of an option that is ignored.
const fn ignored(names: &'static [&'static str], why: &'static str) -> Foreign {
    Foreign { names, is_flag: false, verdict: Verdict::Ignored(why), off: &[] }
}

/// Returns the row of an option that is refused.
const fn refused(names: &'static [&'static str], instead: &'static str) -> Foreign {
    Foreign { names, is_flag: false, verdict: Verdict::Refused(instead), off: &[] }
}

/// Makes the value of a row optional.
const fn flag(row: Foreign) -> Foreign {
    Foreign { is_flag: true, ..row }
}

/// Makes a row accept these values.
const fn unless(off: &'static [&'static str], row: Foreign) -> Foreign {
    Foreign { off, ..row }
}

/// The values by which a boolean option is switched off.
const OFF: &[&str] = &["0", "false", "no", "off"];
