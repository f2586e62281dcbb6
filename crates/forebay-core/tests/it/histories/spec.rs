//! The specification of histories: checks of a log of bios and of commands at the device.
//!
//! Each bio with data has a page of its own, so a command names its bios by its pages. Times are
//! numbers of steps. In a turn, completions come first, and then commands are issued.

use super::{K4, Letter};
use forebay_core::{BlockStatus, Policy, QueueLimits, SchedulerPolicy};

/// A bio.
#[derive(Debug)]
pub(super) struct Row {
    letter: Letter,
    page: u64,
    at: u64,
    /// Nothing else was in progress.
    is_alone: bool,
    pub(super) end: Option<Ended>,
}

/// The end of a bio.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) at: u64,
    pub(super) result: Result<u64, BlockStatus>,
}

/// A command that the device accepted.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) pages: Vec<u64>,
    pub(super) is_flush: bool,
    pub(super) is_fua: bool,
    pub(super) issued_at: u64,
    /// When it completed, and whether it succeeded.
    pub(super) done: Option<(u64, bool)>,
}

impl Command {
    fn is_good(&self) -> bool {
        self.done.is_some_and(|done| done.1)
    }

    fn done_at(&self) -> u64 {
        self.done.map_or(u64::MAX, |done| done.0)
    }
}

/// A history, as far as a caller and the device see it.
#[derive(Debug)]
pub(super) struct Log {
    limits: QueueLimits,
    policy: Policy,
    /// For messages.
    pub(super) history: Vec<Letter>,
    pub(super) now: u64,
    pub(super) bios: Vec<Row>,
    pub(super) commands: Vec<Command>,
}

impl Log {
    pub(super) fn new(limits: QueueLimits, policy: Policy) -> Log {
        let (bios, commands) = (Vec::new(), Vec::new());
        Log { limits, policy, history: Vec::new(), now: 0, bios, commands }
    }

    /// Records a bio. Returns its number and its page. The bios of a letter have adjacent pages in
    /// the order of their submission, so they can merge.
    pub(super) fn submit(&mut self, letter: Letter, is_alone: bool) -> (u64, u64) {
        let nr = self.bios.iter().filter(|bio| bio.letter == letter).count() as u64;
        let page = 100 * letter as u64 + nr;
        self.bios.push(Row { letter, page, at: self.now, is_alone, end: None });
        (self.bios.len() as u64 - 1, page)
    }

    pub(super) fn end(&mut self, id: u64, end: Ended) {
        let bio = &mut self.bios[id as usize];
        assert!(bio.end.is_none(), "{:?}: a bio ends twice: {bio:?}", self.history);
        bio.end = Some(end);
    }

    /// Q5 and F1: how many commands the device may have at once.
    pub(super) fn check_device(&self) {
        let nr = |is_flush: bool| {
            let running = self.commands.iter().filter(|command| command.done.is_none());
            running.filter(|command| command.is_flush == is_flush).count() as u32
        };
        let nr_requests = self.policy.nr_requests.expect("it is set");
        let most = match self.policy.scheduler {
            SchedulerPolicy::None => nr_requests,
            _ => self.policy.device_depth.expect("it is set").min(nr_requests),
        };
        assert!(nr(false) <= most, "{:?}: Q5: {self:?}", self.history);
        assert!(nr(true) <= 1, "{:?}: F1: {self:?}", self.history);
    }

    /// Checks a history in which everything has ended.
    pub(super) fn check(&self) {
        for bio in &self.bios {
            let wrong = self.wrong_result(bio).or_else(|| self.wrong_order(bio));
            if let Some(wrong) = wrong {
                panic!("{:?}: {wrong}: {bio:?} in {self:?}", self.history);
            }
        }
    }

    /// Returns the commands with the data of a bio, in the order of their issue.
    fn commands_of(&self, bio: &Row) -> Vec<&Command> {
        self.commands.iter().filter(|command| command.pages.contains(&bio.page)).collect()
    }

    fn flushes(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| command.is_flush)
    }

    /// Returns whether a flush failed up to a step.
    fn has_failed_flush(&self, up_to: u64) -> bool {
        self.flushes().any(|flush| flush.done_at() <= up_to && !flush.is_good())
    }

    /// Returns whether a flush that was issued after the step `from` has made data durable up to
    /// the step `up_to`.
    fn is_flushed(&self, from: u64, up_to: u64) -> bool {
        self.flushes()
            .any(|flush| flush.is_good() && flush.issued_at >= from && flush.done_at() <= up_to)
    }

    /// Returns whether all writes that had ended before the step `before` are durable at the step
    /// `at`, and none of them may be lost.
    fn are_durable(&self, before: u64, at: u64) -> bool {
        self.bios.iter().all(|bio| {
            let Some(Ended { at: ended_at, result: Ok(_) }) = bio.end else { return true };
            let is_write = !matches!(bio.letter, Letter::Read | Letter::IdleRead | Letter::Flush);
            if !is_write || ended_at >= before {
                return true;
            }
            let commands = self.commands_of(bio);
            let Some(last) = commands.last() else { return false };
            let done_at = last.done_at();
            let is_lost = self.flushes().any(|flush| {
                let failed_at = flush.done_at();
                let is_failed = !flush.is_good() && last.issued_at < failed_at && failed_at <= at;
                is_failed && !self.is_flushed(done_at, failed_at - 1)
            });
            last.is_fua || self.is_flushed(done_at, at) && !is_lost
        })
    }

    /// Returns what is wrong with the result of a bio.
    fn wrong_result(&self, bio: &Row) -> Option<&'static str> {
        let Some(Ended { at, result }) = &bio.end else { return Some("it has not ended") };
        let commands = self.commands_of(bio);
        let last = commands.last();
        let has_flush = matches!(bio.letter, Letter::Fua | Letter::Preflush | Letter::Flush);
        let retries = &commands[..commands.len().saturating_sub(1)];
        if retries.iter().any(|command| command.is_good()) {
            return Some("its data were issued again although they had succeeded");
        }
        if bio.letter == Letter::Preflush
            && let Some(first) = commands.first()
            && !self.are_durable(bio.at, first.issued_at)
        {
            return Some("F4: its data were issued before its flush");
        }
        match result {
            Ok(len) => {
                let is_flush = bio.letter == Letter::Flush;
                if *len != if is_flush { 0 } else { K4 } {
                    return Some("a wrong length");
                }
                if !is_flush && !last.is_some_and(|last| last.is_good() && last.done_at() <= *at) {
                    return Some("success without its data");
                }
                if is_flush && !self.are_durable(bio.at, *at) {
                    return Some("F2: a flush covers what had completed before it");
                }
                let is_covered = match last {
                    Some(last) if bio.letter == Letter::Fua => {
                        last.is_fua && self.limits.fua || self.is_flushed(last.done_at(), *at)
                    }
                    _ => true,
                };
                (!is_covered).then_some("success of a FUA write that is not durable")
            }
            Err(BlockStatus::Again) => {
                let is_at_once = bio.letter == Letter::Nowait && bio.at == *at;
                let is_right = is_at_once && commands.is_empty() && !bio.is_alone;
                (!is_right).then_some("Again, and nothing is in its way or it was issued")
            }
            Err(BlockStatus::Medium) => {
                let is_own = last.is_some_and(|last| last.done == Some((*at, false)));
                let is_single = last.is_some_and(|last| last.pages.len() == 1);
                (!is_own || !is_single).then_some("a failure that is not its own")
            }
            Err(BlockStatus::Io) => {
                let is_right = has_flush && self.has_failed_flush(*at);
                (!is_right).then_some("F3: a failure without a failed flush")
            }
            Err(_) => Some("a status that the device has not given"),
        }
    }

    /// Returns when the data of a bio were issued first.
    fn first_issued_at(&self, bio: &Row) -> Option<usize> {
        self.commands.iter().position(|command| command.pages.contains(&bio.page))
    }

    /// Returns which rule of order the data of a bio break.
    fn wrong_order(&self, bio: &Row) -> Option<&'static str> {
        let issued = self.first_issued_at(bio)?;
        let is_plain =
            |bio: &Row| !matches!(bio.letter, Letter::Preflush | Letter::Flush | Letter::Nowait);
        let before = self.bios.iter().filter(|other| other.at < bio.at && is_plain(other));
        let overtaken = |other: &Row| self.first_issued_at(other).is_none_or(|at| at > issued);
        let is_in_order = |other: &&Row| {
            other.letter == bio.letter || self.policy.scheduler == SchedulerPolicy::None
        };
        if is_plain(bio) && before.filter(is_in_order).any(overtaken) {
            return Some("it overtakes an earlier bio");
        }
        // A request that a busy device has refused goes before all that are queued (Q5).
        let has_classes = !self.history.contains(&Letter::Busy)
            && self.policy.scheduler == SchedulerPolicy::MqDeadline
            && self.policy.nr_requests >= Some(self.policy.queue_depth);
        let issued_at = self.commands[issued].issued_at;
        let is_inside = |other: &Row| {
            let is_higher = !matches!(other.letter, Letter::IdleRead | Letter::Flush);
            let commands = self.commands_of(other);
            let begins_at = match other.letter {
                // From its flush on.
                Letter::Preflush => commands.first().map_or(u64::MAX, |first| first.issued_at),
                _ => other.at,
            };
            let done_at = commands.last().map_or(0, |last| last.done_at());
            is_higher && begins_at <= issued_at && done_at > issued_at
        };
        let is_passed =
            bio.letter == Letter::IdleRead && has_classes && self.bios.iter().any(is_inside);
        is_passed.then_some("DL4: an idle bio passes a higher class")
    }
}
