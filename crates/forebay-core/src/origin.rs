//! The origin of a bio: its I/O priority, and the owner whose limits it counts against.
//!
//! Counterparts in Linux: `bi_ioprio` of `struct bio`, with the values of `ioprio_set(2)`, and
//! `bi_blkg`. Two requests merge only if their origins are equal. That is one comparison, because
//! an origin is one word.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The class of an I/O priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Class {
    /// Goes before all other I/O.
    RealTime,
    /// The usual class.
    #[default]
    BestEffort,
    /// Goes when there is no other I/O, or after it has waited for long.
    Idle,
}

impl Class {
    /// All classes, the highest first.
    pub const ALL: [Class; 3] = [Class::RealTime, Class::BestEffort, Class::Idle];

    /// Returns the name used in options and reports, which is that of `ionice(1)`.
    pub const fn name(self) -> &'static str {
        match self {
            Class::RealTime => "realtime",
            Class::BestEffort => "best-effort",
            Class::Idle => "idle",
        }
    }
}

/// The number of levels within a class. Level 0 is the highest.
pub const PRIORITY_LEVELS: u8 = 8;

/// The level of I/O that has no priority of its own, as in Linux (`IOPRIO_BE_NORM`).
const LEVEL_USUAL: u8 = 4;

/// An I/O priority: a class and a level within it.
///
/// Only I/O schedulers look at it. Without one it has no effect.
///
/// Counterpart in Linux: an `ioprio` value (`include/uapi/linux/ioprio.h`).
///
/// ```
/// use forebay_core::{Class, Priority};
///
/// let priority = Priority::new(Class::BestEffort, 4).unwrap();
/// assert_eq!(priority, Priority::default());
/// assert_eq!(Priority::new(Class::Idle, 8), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Priority {
    /// The class in the upper bits, counted from the usual one, and the level in the lower three
    /// bits, likewise. So the usual priority is 0.
    bits: u8,
}

impl Priority {
    /// Creates a priority. `level` is 0 (the highest) to 7. Returns `None` for any other level.
    pub const fn new(class: Class, level: u8) -> Option<Priority> {
        if level >= PRIORITY_LEVELS {
            return None;
        }
        let class = (class as u8) ^ (Class::BestEffort as u8);
        Some(Priority { bits: class << 3 | (level ^ LEVEL_USUAL) })
    }

    /// Returns the class.
    #[inline]
    pub const fn class(self) -> Class {
        match (self.bits >> 3) ^ (Class::BestEffort as u8) {
            0 => Class::RealTime,
            1 => Class::BestEffort,
            _ => Class::Idle,
        }
    }

    /// Returns the level: 0, the highest, to 7.
    #[inline]
    pub const fn level(self) -> u8 {
        (self.bits & 7) ^ LEVEL_USUAL
    }
}

impl Default for Priority {
    /// Returns the usual priority: best effort, level 4.
    fn default() -> Priority {
        Priority { bits: 0 }
    }
}

/// A text that is no priority.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPriority {
    /// There is no such class.
    Class(String),
    /// There is no such level.
    Level(String),
}

impl fmt::Display for BadPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPriority::Class(name) => {
                let names = Class::ALL.map(Class::name).join(", ");
                write!(f, "unknown class `{name}`: expected one of {names}")
            }
            BadPriority::Level(level) => {
                write!(f, "level `{level}`: expected a number from 0, the highest, to 7")
            }
        }
    }
}

impl core::error::Error for BadPriority {}

impl FromStr for Priority {
    type Err = BadPriority;

    /// Parses a class, perhaps with a level after a slash: `idle`, `realtime/0`. The usual level is
    /// 4.
    fn from_str(text: &str) -> Result<Priority, BadPriority> {
        let (name, level) = match text.split_once('/') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let class = Class::ALL.into_iter().find(|class| class.name() == name);
        let class = class.ok_or_else(|| BadPriority::Class(name.to_owned()))?;
        let Some(level) = level else {
            return Ok(Priority::new(class, LEVEL_USUAL).expect("a level"));
        };
        let priority = level.parse().ok().and_then(|level| Priority::new(class, level));
        priority.ok_or_else(|| BadPriority::Level(level.to_owned()))
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class().name(), self.level())
    }
}

/// The origin of a bio, as one word: its priority and the number of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin(u32);

/// The number of bits of the priority in an [`Origin`].
const OWNER_SHIFT: u32 = 8;

/// The largest number of an owner.
pub const OWNER_MAX: u32 = u32::MAX >> OWNER_SHIFT;

impl Origin {
    /// The usual priority, and no owner.
    pub const NONE: Origin = Origin(0);

    /// Returns this origin with another priority.
    #[must_use]
    #[inline]
    pub const fn with_priority(self, priority: Priority) -> Origin {
        Origin(self.0 >> OWNER_SHIFT << OWNER_SHIFT | priority.bits as u32)
    }

    /// Returns this origin with another owner. 0 means none.
    ///
    /// # Panics
    /// Panics if `owner` is greater than [`OWNER_MAX`].
    #[must_use]
    #[inline]
    pub const fn with_owner(self, owner: u32) -> Origin {
        assert!(owner <= OWNER_MAX, "the number of an owner has 24 bits");
        Origin(self.0 & ((1 << OWNER_SHIFT) - 1) | owner << OWNER_SHIFT)
    }

    /// Returns the priority.
    #[inline]
    pub const fn priority(self) -> Priority {
        Priority { bits: self.0 as u8 }
    }

    /// Returns the number of the owner, or 0 if there is none.
    #[inline]
    pub const fn owner(self) -> u32 {
        self.0 >> OWNER_SHIFT
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of owner {}", self.priority(), self.owner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn word_keeps_every_priority_and_owner() {
        for class in Class::ALL {
            for level in 0..PRIORITY_LEVELS {
                let priority = Priority::new(class, level).expect("the level exists");
                assert_eq!((priority.class(), priority.level()), (class, level));
                for owner in [0, 1, 77, OWNER_MAX] {
                    let origin = Origin::NONE.with_owner(owner).with_priority(priority);
                    assert_eq!((origin.priority(), origin.owner()), (priority, owner));
                    let other = Origin::NONE.with_priority(priority).with_owner(5);
                    assert_eq!(other.with_owner(owner), origin);
                }
            }
            assert_eq!(Priority::new(class, PRIORITY_LEVELS), None);
        }
    }

    #[test]
    fn a_class_has_the_usual_level_unless_one_is_given() {
        let priority = |class, level| Priority::new(class, level).expect("a level");
        let parse = |text: &str| text.parse::<Priority>().map_err(|bad| bad.to_string());
        assert_eq!(parse("realtime"), Ok(priority(Class::RealTime, 4)));
        assert_eq!(parse("idle/0"), Ok(priority(Class::Idle, 0)));
        assert_eq!(parse("best-effort/7"), Ok(priority(Class::BestEffort, 7)));
        for (text, why) in [
            ("rt", "unknown class `rt`: expected one of realtime, best-effort, idle"),
            ("", "unknown class ``: expected one of realtime, best-effort, idle"),
            ("idle/8", "level `8`: expected a number from 0, the highest, to 7"),
            ("idle/", "level ``: expected a number from 0, the highest, to 7"),
            ("idle/-1", "level `-1`: expected a number from 0, the highest, to 7"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn usual_priority_without_an_owner_is_the_zero_word() {
        let usual = Priority::new(Class::BestEffort, 4).expect("the level exists");
        assert_eq!(Origin::NONE.with_priority(usual), Origin::default());
        assert_eq!(Origin::default(), Origin::NONE);
    }
}
