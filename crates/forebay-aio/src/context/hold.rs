//! Reads of several calls that become one request, for programs that submit them one by one.
//!
//! [`Hold`] decides which reads wait. They wait in the plug of their file, which the [`Keeper`]
//! registers when the first of them is held. A read joins others only if its descriptor refers to
//! the same inode, open in the same way. The context checks at each completion and each call
//! whether they have to be passed on; the service thread checks too.
//!
//! They are submitted by the program's descriptor, because its threads wait for the kernel's AIO.
//! A check before and one after that show that it still referred to the file. If the second one
//! fails, another thread has just closed it, and the data may be that of another file. Both checks
//! and the submission are one critical section, so no end of these requests was processed yet:
//! they are *doubtful*. When they end, their reads are repeated by the keeper, which has the file
//! until then.
//!
//! A context is one submitter, with one stream: that of the descriptor in its last call.

use super::{Context, Locked, State};
use crate::abi::opcode;
use crate::eventfds::Signals;
use crate::file::{Ended, File, LEN_MAX, Outgoing};
use crate::keeper::Keeper;
use crate::plan::{Planned, can_merge, op_of};
use crate::program::{self, FileId};
use crate::stats;
use forebay_core::{Bio, Hold, HoldLimits, Op, Tag};
use forebay_run::area::{self, Counter, FileNumber, Stage};
use std::time::Duration;

/// The stream of a context.
#[derive(Debug)]
pub(super) struct Stream {
    /// The descriptor of the last call.
    fd: u32,
    hold: Hold,
    /// The reads that are held.
    group: Option<Group>,
    keeper: Kept,
    doubtful: Option<Doubtful>,
    /// A group was begun since the service thread asked for the last time.
    is_fresh: bool,
}

/// The keeper of a context.
#[derive(Debug)]
enum Kept {
    /// None was needed so far.
    Unused,
    There(Box<Keeper>),
    /// The system refuses it, or it is used for other reads.
    Missing,
}

/// Requests in flight that may read from another file than that of their group.
#[derive(Debug)]
struct Doubtful {
    keeper: Box<Keeper>,
    index: u32,
    outgoing: Vec<Outgoing>,
}

/// Held reads of one file.
#[derive(Debug)]
struct Group {
    id: FileId,
    /// The index of the file in the context.
    index: u32,
    nr: u32,
    /// When they were held, if times are measured.
    starts: Vec<u64>,
    /// The time in nanoseconds at which they are passed on at the latest.
    deadline: u64,
}

impl Stream {
    pub(super) fn new(limits: HoldLimits) -> Stream {
        let (fd, hold) = (u32::MAX, Hold::new(limits));
        Stream { fd, hold, group: None, keeper: Kept::Unused, doubtful: None, is_fresh: false }
    }

    pub(super) fn nr_held(&self) -> u32 {
        self.group.as_ref().map_or(0, |group| group.nr)
    }

    /// Returns whether a group was begun since the last call.
    pub(super) fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.is_fresh)
    }

    /// Keeps the file of a descriptor.
    fn keep(&mut self, fd: u32) -> Option<()> {
        if let Kept::Unused = self.keeper {
            self.keeper = Keeper::new().map_or(Kept::Missing, |it| Kept::There(Box::new(it)));
        }
        let Kept::There(keeper) = &self.keeper else { return None };
        let is_kept = keeper.keep(fd as i32);
        if is_kept.is_none() {
            self.keeper = Kept::Missing;
        }
        is_kept
    }
}

impl Context {
    /// Holds the read of a call, if it should wait for those of later calls. Returns whether it
    /// does. A call of several iocbs, or of another one, passes the held reads on. The iocbs of the
    /// call are counted as submitted.
    pub(super) fn hold<'a>(
        &'a self,
        mut state: Locked<'a>,
        call: &[Planned],
    ) -> (Locked<'a>, bool) {
        if !self.holds {
            return (state, false);
        }
        // A call of another kind needs no bio.
        let read = match call {
            [it] if op_of(&it.copy) == Op::Read && can_merge(&it.copy) => {
                bio_of(it).map(|bio| (it, bio))
            }
            _ => None,
        };
        let fd = read.as_ref().map_or(u32::MAX, |(it, _)| it.copy.fildes);
        if fd != state.stream.fd {
            state = self.release(state);
            state.stream.fd = fd;
            state.stream.hold = Hold::new(self.hold_limits);
        }
        let Some((it, bio)) = read else { return (state, false) };
        // The clock is read only if it matters.
        let now = if state.stream.hold.continues(&bio) { self.now() } else { 0 };
        let outstanding = state.nr_out.saturating_sub(1);
        let in_flight = outstanding.saturating_sub(state.stream.nr_held());
        let step = state.stream.hold.next(&bio, outstanding, in_flight, now);
        let is_held = step.hold && self.join(&mut state, it, now).is_some();
        if step.release_before || step.release_after || step.hold && !is_held {
            state = self.release(state);
        }
        (state, is_held)
    }

    /// Adds a read to the group, or begins one with it. `None` if that is not possible.
    fn join(&self, state: &mut State, it: &Planned, now: u64) -> Option<()> {
        let segments = program::segments_of(&it.copy)?;
        let fd = it.copy.fildes;
        let id = program::direct_file(fd, Op::Read)?;
        if state.stream.group.as_ref().is_some_and(|group| group.id != id) {
            return None;
        }
        if state.stream.group.is_none() {
            let deadline = now.saturating_add(self.hold_limits.time_ns);
            state.stream.keep(fd)?;
            let index = state.files.index_of(id, || File::new(id, self.depth(), self.policy));
            state.stream.group = Some(Group { id, index, nr: 0, starts: Vec::new(), deadline });
            state.stream.is_fresh = true;
            // An event of the kernel may be the end of several iocbs from now on.
            if state.wait_min > 1 {
                self.kick(state);
            }
            if std::mem::take(&mut state.long_pause) {
                self.wake_service.notify_one();
            }
        }
        let group = state.stream.group.as_mut()?;
        let record = state.records.insert(super::submit::record_of(it, true));
        let is_plugged = state.files.get(group.index).is_some_and(|(_, file)| {
            area::count(file.number(), Counter::Full, u64::from(file.room() == 0));
            let is_plugged =
                file.room() > 0 && file.plug(Op::Read, it.copy.offset as u64, &segments, record);
            if is_plugged {
                stats::count_held(file.number());
            }
            is_plugged
        });
        match is_plugged {
            true => {
                group.nr += 1;
                group.starts.extend(Some(stats::now()).filter(|now| *now > 0));
            }
            false => drop(state.records.remove(record)),
        }
        is_plugged.then_some(())
    }

    /// Passes the held reads on, if there are any. The calling thread is counted as inside, or the
    /// context is gone.
    pub(super) fn release<'a>(&'a self, mut state: Locked<'a>) -> Locked<'a> {
        state.stream.hold.release();
        let Some(Group { id, index, starts, .. }) = state.stream.group.take() else { return state };
        let number = state.files.get(index).map_or(FileNumber::OTHER, |(_, file)| file.number());
        starts.iter().for_each(|start| stats::record_since(Stage::Held, number, *start));
        let mut ended = Vec::new();
        let mut outgoing: Vec<Outgoing> = Vec::new();
        if let Some((_, file)) = state.files.get(index) {
            file.unplug(&mut ended);
            outgoing = file.take_outgoing();
        }
        let is_same = || program::direct_file(id.fd, Op::Read) == Some(id);
        match std::mem::replace(&mut state.stream.keeper, Kept::Missing) {
            Kept::There(keeper) if is_same() => {
                let refused = self.pass(index, &mut outgoing);
                // The kernel has no place for a request: the keeper reads.
                let is_full = refused.iter().any(|(_, errno)| *errno == libc::EAGAIN);
                if is_same() && !is_full {
                    keeper.forget();
                    state.stream.keeper = Kept::There(keeper);
                    state.refuse(index, &refused, &mut ended);
                } else {
                    let is_refused = |rq: &Outgoing| refused.iter().any(|(tag, _)| *tag == rq.tag);
                    let (again, outgoing) = outgoing.into_iter().partition(is_refused);
                    state.stream.doubtful = Some(Doubtful { keeper, index, outgoing });
                    state = self.read_again(state, again, &mut ended);
                }
            }
            Kept::There(keeper) => {
                state.stream.doubtful = Some(Doubtful { keeper, index, outgoing: Vec::new() });
                state = self.read_again(state, outgoing, &mut ended);
            }
            // The keeper is there while there is a group.
            kept => state.stream.keeper = kept,
        }
        // Parts that are repeated go by the program's descriptor.
        state = self.issue(state, index, false, &mut ended);
        let mut signals = Signals::default();
        self.post_all(&mut state, ended, &mut signals);
        self.send(state, signals)
    }

    /// Returns whether a request in flight is doubtful.
    pub(super) fn is_doubtful(state: &State, index: u32, tag: Tag) -> bool {
        state
            .stream
            .doubtful
            .as_ref()
            .is_some_and(|it| it.index == index && it.outgoing.iter().any(|rq| rq.tag == tag))
    }

    /// Repeats a doubtful request that has ended, by the keeper.
    pub(super) fn repeat_doubtful<'a>(
        &'a self,
        mut state: Locked<'a>,
        tag: Tag,
        ended: &mut Vec<Ended>,
    ) -> Locked<'a> {
        let Some(doubtful) = &mut state.stream.doubtful else { return state };
        let again = doubtful.outgoing.extract_if(.., |rq| rq.tag == tag).collect();
        self.read_again(state, again, ended)
    }

    /// Reads from the file of the doubtful requests by the keeper, under the lock: that a file is
    /// closed between two checks is rare enough. The last such read frees the keeper.
    fn read_again<'a>(
        &'a self,
        mut state: Locked<'a>,
        requests: Vec<Outgoing>,
        ended: &mut Vec<Ended>,
    ) -> Locked<'a> {
        let Some(mut doubtful) = state.stream.doubtful.take() else { return state };
        super::counts::count_requests(&requests);
        for rq in &requests {
            area::count(rq.number, Counter::Repeats, 1);
        }
        let results = doubtful.keeper.read(&requests);
        if let Some((_, file)) = state.files.get(doubtful.index) {
            results.iter().for_each(|(tag, result)| file.complete(*tag, *result));
            file.turn(ended);
        }
        if doubtful.outgoing.is_empty() {
            doubtful.keeper.forget();
            state.stream.keeper = Kept::There(doubtful.keeper);
        } else {
            state.stream.doubtful = Some(doubtful);
        }
        state
    }

    /// Passes the held reads on if no request is at the kernel, whose end would do so; if fewer
    /// than the caller needs are there; or if they are too old.
    pub(super) fn release_due<'a>(&'a self, state: Locked<'a>, needed: usize) -> Locked<'a> {
        let Some(group) = &state.stream.group else { return state };
        let nr_sent = state.nr_out.saturating_sub(group.nr) as usize;
        let is_due = nr_sent == 0 || nr_sent < needed || group.deadline <= self.now();
        if is_due { self.release(state) } else { state }
    }

    /// Returns the time until the held reads are passed on at the latest.
    pub(super) fn time_to_release(&self, state: &State) -> Option<Duration> {
        let deadline = state.stream.group.as_ref()?.deadline;
        Some(Duration::from_nanos(deadline.saturating_sub(self.now())))
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Returns the bio of a read, without its memory: few reads are held. `None` if the kernel should
/// judge the read.
fn bio_of(it: &Planned) -> Option<Bio> {
    if matches!(it.resfd, Some(Err(_))) {
        return None;
    }
    let len = match it.copy.opcode {
        opcode::PREAD => it.copy.nbytes,
        _ => program::segments_of(&it.copy)?.iter().map(|segment| u64::from(segment.len)).sum(),
    };
    let is_right = (1..=LEN_MAX).contains(&len);
    is_right.then(|| Bio::range(Op::Read, it.copy.offset as u64, len))
}
