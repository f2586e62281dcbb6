//! I/O priorities: `prio`, `prioclass`, `cmdprio_percentage`, `cmdprio_bssplit`, `cmdprio_class`,
//! `cmdprio`.
//!
//! Source: fio's HOWTO and fio 3.33, and `ioprio_set(2)`. A job may have a priority, and a
//! percentage of its reads and writes, of all or of certain sizes, may have another one. Each I/O
//! carries its priority; fio sets that of the process, and of single I/Os with the engines libaio
//! and io_uring only. Trims always have the priority of the job, as in fio.

use crate::generator::Direction;
use crate::random::Xoshiro256;

/// The class of a priority, with fio's numbers 1 to 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Before all other I/O.
    RealTime,
    /// The usual class.
    BestEffort,
    /// After all other I/O.
    Idle,
}

impl Class {
    /// Returns the number of the class in `ioprio_set(2)`.
    pub fn number(self) -> u16 {
        match self {
            Self::RealTime => 1,
            Self::BestEffort => 2,
            Self::Idle => 3,
        }
    }

    /// Returns the class of a number of `prioclass`; `None` for 0, which means no class.
    pub fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::RealTime),
            2 => Some(Self::BestEffort),
            _ => Some(Self::Idle),
        }
    }
}

/// A priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// The class.
    pub class: Class,
    /// The level in the class: 0, the highest, to 7.
    pub level: u8,
}

impl Priority {
    /// Returns the number of `ioprio_set(2)`, as in logs.
    pub fn number(self) -> u16 {
        self.class.number() << 13 | u16::from(self.level)
    }
}

/// Returns whether a number of `ioprio_set(2)` is of the class [`Class::RealTime`].
pub(crate) fn is_real_time(number: u16) -> bool {
    number >> 13 == Class::RealTime.number()
}

/// An entry of `cmdprio_bssplit`: a percentage of the I/Os of a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeShare {
    /// The bytes of the I/Os.
    pub bytes: u32,
    /// The percentage of them.
    pub percent: u8,
    /// Their priority; `None`: that of `cmdprio_class` and `cmdprio`.
    pub priority: Option<Priority>,
}

/// The options as they were given. The pairs are for reads and writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PriorityOptions {
    pub prio: Option<u8>,
    pub prioclass: Option<u8>,
    pub cmdprio_percentage: [u8; 2],
    pub cmdprio_bssplit: Option<[Vec<SizeShare>; 2]>,
    pub cmdprio_class: Option<[u8; 2]>,
    pub cmdprio: Option<[u8; 2]>,
}

/// The priorities of a job's I/Os.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priorities {
    /// The priority of the job, if it has one.
    of_job: Option<Priority>,
    /// The other priorities of reads and of writes.
    rules: [Vec<Rule>; 2],
}

/// A part of the I/Os with another priority than the job.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// The size of the I/Os to which it applies, bytes; `None`: any size.
    bytes: Option<u32>,
    /// The percentage of them.
    percent: u8,
    priority: Priority,
}

impl Rule {
    fn is_about(&self, bytes: u32) -> bool {
        self.bytes.is_none_or(|it| it == bytes)
    }
}

impl PriorityOptions {
    /// Returns the priorities of a job, and warnings about options without effect.
    ///
    /// As in fio, the level is 0 if only the class is given, and the class is best effort if only
    /// the level is given. The class of `cmdprio` is real-time unless another one is given.
    ///
    /// # Errors
    ///
    /// A message if the options contradict each other.
    pub(crate) fn resolve(&self, warnings: &mut Vec<String>) -> Result<Priorities, String> {
        let of_job = self.of_job()?;
        let percentage = self.cmdprio_percentage;
        if percentage != [0; 2] && self.cmdprio_bssplit.is_some() {
            return Err(
                "--cmdprio_percentage contradicts --cmdprio_bssplit: leave one of them out"
                    .to_owned(),
            );
        }
        let levels = self.cmdprio.unwrap_or_default();
        let classes = self.cmdprio_class.unwrap_or_default();
        let other = |at: usize| Priority {
            class: Class::of_number(classes[at]).unwrap_or(Class::RealTime),
            level: levels[at],
        };
        let mut is_used = false;
        let rules = std::array::from_fn(|at| {
            let mut rule = |bytes, percent, given: Option<Priority>| {
                is_used |= given.is_none() && percent > 0;
                Rule { bytes, percent, priority: given.unwrap_or(other(at)) }
            };
            let mut rules = match &self.cmdprio_bssplit {
                None => vec![rule(None, percentage[at], None)],
                Some(split) => split[at]
                    .iter()
                    .map(|share| rule(Some(share.bytes), share.percent, share.priority))
                    .collect(),
            };
            rules.retain(|rule| rule.percent > 0);
            rules
        });
        let unused =
            [("cmdprio_class", self.cmdprio_class.is_some()), ("cmdprio", self.cmdprio.is_some())];
        for (name, _) in unused.into_iter().filter(|&(_, given)| given && !is_used) {
            warnings.push(match self.cmdprio_bssplit {
                None => format!("--{name} has no effect without --cmdprio_percentage"),
                Some(_) => format!("--{name} has no effect: --cmdprio_bssplit has all priorities"),
            });
        }
        Ok(Priorities { of_job, rules })
    }

    fn of_job(&self) -> Result<Option<Priority>, String> {
        let level = self.prio.unwrap_or(0);
        match self.prioclass {
            None => Ok(self.prio.map(|level| Priority { class: Class::BestEffort, level })),
            Some(number) => match Class::of_number(number) {
                Some(class) => Ok(Some(Priority { class, level })),
                None if level == 0 => Ok(None),
                None => Err(format!(
                    "--prio={level} needs a class: give --prioclass=1, 2 or 3, or leave out \
                     --prioclass=0"
                )),
            },
        }
    }
}

impl Priorities {
    /// Returns the classes of the I/Os in these directions; a class may be repeated.
    pub fn classes(&self, has: impl Fn(Direction) -> bool) -> Vec<Class> {
        let mut classes = Vec::new();
        for direction in Direction::ALL.into_iter().filter(|&direction| has(direction)) {
            let rules = self.rules_of(direction);
            let is_whole = |rule: &Rule| rule.bytes.is_none() && rule.percent == 100;
            if !rules.iter().any(is_whole) {
                classes.push(self.of_job.map_or(Class::BestEffort, |priority| priority.class));
            }
            classes.extend(rules.iter().map(|rule| rule.priority.class));
        }
        classes
    }

    /// Returns the priority of the job, if it has one.
    pub fn of_job(&self) -> Option<Priority> {
        self.of_job
    }

    /// Returns whether any I/O may have a priority.
    pub fn is_given(&self) -> bool {
        self.of_job.is_some() || self.rules.iter().any(|rules| !rules.is_empty())
    }

    /// Returns whether the I/Os of a direction may have several priorities.
    pub fn are_several(&self) -> bool {
        self.rules.iter().any(|rules| !rules.is_empty())
    }

    /// Returns the rules of a direction. There are none for trims.
    fn rules_of(&self, direction: Direction) -> &[Rule] {
        self.rules.get(direction.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns the drawer of clone number `stream`; `None` if no I/O has a priority.
    pub fn drawer(&self, seed: u64, stream: u64) -> Option<PriorityDrawer> {
        /// Keeps these draws apart from those of offsets.
        const DRAWS_KEY: u64 = 0x7072_696f_0000_0001;
        self.is_given().then(|| PriorityDrawer {
            priorities: self.clone(),
            draws: Xoshiro256::new(seed ^ DRAWS_KEY, stream),
            last: self.of_job,
            repeats: false,
        })
    }
}

/// The source of the priorities of a clone's I/Os, one after another.
#[derive(Debug, Clone)]
pub struct PriorityDrawer {
    priorities: Priorities,
    draws: Xoshiro256,
    last: Option<Priority>,
    /// Whether the next I/O is the last one again.
    repeats: bool,
}

impl PriorityDrawer {
    /// Returns the priority of the next I/O, if it has one.
    pub fn next(&mut self, direction: Direction, bytes: u32) -> Option<Priority> {
        if std::mem::take(&mut self.repeats) {
            return self.last;
        }
        self.last = self.priorities.of_job;
        let rules = self.priorities.rules_of(direction);
        let mut of_size = rules.iter().filter(|rule| rule.is_about(bytes)).peekable();
        if of_size.peek().is_some() {
            let mut drawn = self.draws.below(100);
            for rule in of_size {
                let percent = u64::from(rule.percent);
                if drawn < percent {
                    self.last = Some(rule.priority);
                    break;
                }
                drawn -= percent;
            }
        }
        self.last
    }

    /// Makes the next call of [`PriorityDrawer::next`] return the last priority again: the I/O
    /// was refused, and is submitted once more. So the draws do not depend on the time.
    pub fn repeat(&mut self) {
        self.repeats = true;
    }
}

#[cfg(test)]
mod tests;
