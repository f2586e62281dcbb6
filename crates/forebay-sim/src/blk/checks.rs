//! Checks of the calls that a session makes to its ring (Y1, Y3, Y4).

use super::rules::{Y1, Y3, Y4};
use crate::check::{Verdict, broken};

/// A used entry without a notification may be this old when a reap adds another one, ns (Y4).
const NOTIFY_NS: u64 = 50_000;

/// State of a ring since it was started, for the checks.
#[derive(Debug, Default)]
pub(super) struct RingChecks {
    /// The ring has returned an error, or a request that cannot be answered.
    has_failed: bool,
    /// The session has reported that the ring is broken.
    is_reported: bool,
    /// The ring must stop, so its driver may be notified at any time.
    is_stopping: bool,
    /// A request was taken, and the session has not found the ring empty since.
    may_have_more: bool,
    /// When the first and the last used entry was added of which the driver was not notified, ns.
    unnotified: Option<(u64, u64)>,
    /// The driver was notified although no used entry was old.
    was_notified_early: bool,
}

impl RingChecks {
    /// Returns whether the session has reported that the ring is broken.
    pub(super) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Returns whether the ring takes no more requests.
    pub(super) fn is_ending(&self) -> bool {
        self.is_stopping || self.has_failed
    }

    /// Records that the ring stops, or the server.
    pub(super) fn stops(&mut self) {
        self.is_stopping = true;
    }

    /// Records that the ring is unusable.
    pub(super) fn fails(&mut self) {
        self.has_failed = true;
    }

    /// Checks a use of the ring other than an answer.
    pub(super) fn uses(&self, call: &str) -> Verdict {
        match self.has_failed {
            true => broken(Y1, format!("the session calls {call} after the ring has failed")),
            false => Ok(()),
        }
    }

    /// Records a check of the available ring that takes nothing. `found`: there is a request.
    pub(super) fn looks(&mut self, found: bool) {
        self.may_have_more &= found;
    }

    /// Checks a look at the available ring. `found`: there was a request.
    pub(super) fn takes(&mut self, is_notified: bool, found: bool) -> Verdict {
        self.may_have_more = found;
        match is_notified {
            true => broken(Y3, "a request is taken while the driver notifies the device".into()),
            false => Ok(()),
        }
    }

    /// Checks the end of the last round, before notifications are enabled.
    pub(super) fn enables(&mut self) -> Verdict {
        match std::mem::take(&mut self.may_have_more) {
            true => broken(Y3, "a round ends before the ring was seen empty".into()),
            false => Ok(()),
        }
    }

    /// Records a used entry.
    pub(super) fn adds_used(&mut self, now_ns: u64) {
        self.unnotified.get_or_insert((now_ns, now_ns)).1 = now_ns;
    }

    /// Records a notification that no driver receives, because the memory is gone.
    pub(super) fn loses_driver(&mut self) {
        self.unnotified = None;
    }

    /// Checks a notification of the driver. Returns whether it comes before the end of a round,
    /// because used entries are old.
    pub(super) fn notifies(&mut self, now_ns: u64) -> Result<bool, crate::check::Broken> {
        if self.was_notified_early {
            broken(Y4, "the driver is notified twice in a round".into())?;
        }
        let Some((since, _)) = self.unnotified.take() else {
            broken(Y4, "the driver is notified of nothing".into())?;
            return Ok(false);
        };
        let is_due = now_ns - since >= NOTIFY_NS;
        self.was_notified_early = !is_due && !self.is_stopping;
        Ok(is_due)
    }

    /// Checks the ring when its worker is about to reap completions.
    pub(super) fn reaps(&self, now_ns: u64) -> Verdict {
        if self.was_notified_early {
            return broken(Y4, "the driver is notified before the end of a round".into());
        }
        match self.unnotified {
            // The session had to notify the driver after the reap that has added the last one.
            Some((first, last)) if last - first >= NOTIFY_NS => {
                let age_ns = now_ns - first;
                broken(Y4, format!("a used entry is {age_ns} ns old, and the round goes on"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the ring at the end of a round. `is_last`: no other round follows at once.
    pub(super) fn ends_round(&mut self, is_last: bool) -> Verdict {
        self.was_notified_early = false;
        if self.unnotified.is_some() && is_last {
            return broken(Y4, "a round ends, and the driver was not notified".into());
        }
        match self.has_failed && !self.is_reported {
            true => broken(Y1, "a ring has failed, and is not reported".into()),
            false => Ok(()),
        }
    }

    /// Checks the report that the ring is broken.
    pub(super) fn reports(&mut self, why: &str) -> Verdict {
        if !self.has_failed {
            return broken(Y1, format!("a good ring is stopped: {why}"));
        }
        match std::mem::replace(&mut self.is_reported, true) {
            true => broken(Y1, format!("a broken ring is reported twice: {why}")),
            false => Ok(()),
        }
    }
}
