//! The report of a run that broke a rule.

use std::fmt;

/// A broken rule: which one, where, and how to reproduce it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The step in which the violation was found.
    pub step: u64,
    /// The virtual time, ns.
    pub now_ns: u64,
    /// The name of the rule.
    pub rule: &'static str,
    /// A description of the violation.
    pub what: String,
    /// The state of the tasks and contexts.
    pub state: String,
    /// The last events, oldest first.
    pub last: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}, {} ns", self.seed, self.step, self.now_ns)?;
        writeln!(f, "broken rule: {}: {}", self.rule, self.what)?;
        write!(f, "{}last events:", self.state)?;
        self.last.iter().try_for_each(|event| write!(f, "\n  {event}"))
    }
}

impl std::error::Error for Violation {}
