//! The seeds of a simulation, and the loop over them.

use std::fmt;

use forebay_sim::Violation;

use super::{Args, replay};
use crate::failure::Failure;

/// Consecutive seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seeds {
    first: u64,
    nr: u64,
}

impl Seeds {
    /// Returns `nr` seeds from `first` on.
    pub(super) fn new(first: u64, nr: u64) -> Seeds {
        Seeds { first, nr }
    }

    /// Returns the first of them.
    pub(super) fn first(self) -> u64 {
        self.first
    }

    /// Returns their number.
    pub(super) fn nr(self) -> u64 {
        self.nr
    }

    /// Runs the simulation of each seed, in order, and passes its result to `add`.
    ///
    /// # Errors
    /// The first failure, after which no other seed is run. That of a broken rule ends with the
    /// command that repeats the run.
    pub(super) fn for_each<T>(
        self,
        args: &Args,
        run: impl Fn(u64) -> Result<Result<T, Box<Violation>>, Failure>,
        mut add: impl FnMut(T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for nth in 0..self.nr {
            let seed = self.first.wrapping_add(nth);
            let result = run(seed)?.map_err(|violation| {
                let replay = Seeds::new(seed, 1).replay(args);
                Failure::Run(format!("{violation}\nreplay with: {replay}"))
            });
            add(result?)?;
        }
        Ok(())
    }

    /// Returns the command that repeats the runs of these seeds.
    pub(super) fn replay(self, args: &Args) -> String {
        replay(args, self.first, self.nr)
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nr {
            1 => write!(f, "seed {}", self.first),
            nr => write!(f, "{nr} seeds from {}", self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_wrap_around() {
        let seeds = Seeds::new(u64::MAX, 3);
        let (mut seen, args) = (Vec::new(), Args::default());
        let run = |seed| Ok(Ok(seed));
        let add = |seed| {
            seen.push(seed);
            Ok(())
        };
        seeds.for_each(&args, run, add).expect("no failure");
        assert_eq!(seen, [u64::MAX, 0, 1]);
    }
}
