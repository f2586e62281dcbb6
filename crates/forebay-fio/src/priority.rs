//! I/O priorities: `prio`, `prioclass`, `cmdprio_percentage`, `cmdprio_class`, `cmdprio`.
//!
//! Source: fio's HOWTO and fio 3.33, and `ioprio_set(2)`. A job has a priority, and a percentage of
//! its reads and writes may have another one. Each I/O carries its priority; fio sets that of the
//! process, and of single I/Os with the engines libaio and io_uring only. Trims always have the
//! priority of the job, as in fio.

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
    /// The priority of I/O without one, as in Linux.
    pub const USUAL: Self = Self { class: Class::BestEffort, level: 4 };
}

/// The options as they were given. The pairs are for reads and writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PriorityOptions {
    pub prio: Option<u8>,
    pub prioclass: Option<u8>,
    pub cmdprio_percentage: [u8; 2],
    pub cmdprio_class: Option<[u8; 2]>,
    pub cmdprio: Option<[u8; 2]>,
}

/// The priorities of a job's I/Os.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priorities {
    /// The priority of the job.
    pub of_job: Priority,
    /// `cmdprio_percentage`: the percentage of reads and of writes with another priority.
    pub percentage: [u8; 2],
    /// The other priority, for reads and for writes.
    pub other: [Priority; 2],
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
        let level = self.prio.unwrap_or(0);
        let of_job = match self.prioclass {
            None if self.prio.is_none() => Priority::USUAL,
            None => Priority { class: Class::BestEffort, level },
            Some(number) => match Class::of_number(number) {
                Some(class) => Priority { class, level },
                None if level == 0 => Priority::USUAL,
                None => {
                    return Err(format!(
                        "--prio={level} needs a class: give --prioclass=1, 2 or 3, or leave out \
                         --prioclass=0"
                    ));
                }
            },
        };
        let percentage = self.cmdprio_percentage;
        let unused =
            [("cmdprio_class", self.cmdprio_class.is_some()), ("cmdprio", self.cmdprio.is_some())];
        for (name, _) in unused.into_iter().filter(|&(_, given)| given && percentage == [0; 2]) {
            warnings.push(format!("--{name} has no effect without --cmdprio_percentage"));
        }
        let levels = self.cmdprio.unwrap_or_default();
        let classes = self.cmdprio_class.unwrap_or_default();
        let other = std::array::from_fn(|at| Priority {
            class: Class::of_number(classes[at]).unwrap_or(Class::RealTime),
            level: levels[at],
        });
        Ok(Priorities { of_job, percentage, other })
    }
}

impl Priorities {
    /// Returns the classes of the I/Os in these directions; a class may be repeated.
    pub fn classes(&self, has: impl Fn(Direction) -> bool) -> Vec<Class> {
        let mut classes = Vec::new();
        for direction in Direction::ALL.into_iter().filter(|&direction| has(direction)) {
            let percentage = self.percentage_of(direction);
            if percentage < 100 {
                classes.push(self.of_job.class);
            }
            if percentage > 0 {
                classes.push(self.other[direction.index()].class);
            }
        }
        classes
    }

    /// Returns whether any I/O may have another priority than the usual one.
    pub fn is_given(&self) -> bool {
        self.of_job != Priority::USUAL || self.percentage != [0; 2]
    }

    /// Returns the percentage of the I/Os of a direction that have the other priority.
    fn percentage_of(&self, direction: Direction) -> u8 {
        self.percentage.get(direction.index()).copied().unwrap_or(0)
    }

    /// Returns the drawer of clone number `stream`; `None` if all I/Os have the usual priority.
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
    last: Priority,
    /// Whether the next I/O is the last one again.
    repeats: bool,
}

impl PriorityDrawer {
    /// Returns the priority of the next I/O.
    pub fn next(&mut self, direction: Direction) -> Priority {
        if std::mem::take(&mut self.repeats) {
            return self.last;
        }
        let percentage = self.priorities.percentage_of(direction);
        let is_other = percentage > 0 && self.draws.below(100) < percentage.into();
        self.last = match is_other {
            true => self.priorities.other[direction.index()],
            false => self.priorities.of_job,
        };
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
