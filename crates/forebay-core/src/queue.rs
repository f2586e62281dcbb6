//! The request queue of a disk: from bio to driver and back, driven by one function.
//!
//! Counterpart in Linux: `struct request_queue` with its software and hardware context
//! (`block/blk-mq.c`).

use crate::bio::Bio;
use crate::driver::{Completions, Driver};
use crate::limits::QueueLimits;
use crate::plug::{PlugList, UnplugCause};
use crate::policy::{MergePolicy, PlugPolicy, Policy};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::slab::{BioId, BioSlab};
use crate::split;
use crate::stats::QueueStats;
use crate::status::BlockStatus;
use crate::tag::{Tag, Tags};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The bios, the plug list and the hardware context of one disk, for one thread.
///
/// # The order of calls
/// - [`queue_bio`](Self::queue_bio) takes a bio in; it says whether a turn is due.
/// - [`unplug`](Self::unplug) moves the plug's requests to the inbox; a turn is due.
/// - [`turn`](Self::turn) does all the rest, in one fixed order, and hands over the bios that have
///   ended. Nothing makes progress outside of it.
/// - The times given must not go backwards. They are nanoseconds of any clock.
///
/// # Invariants
/// - Q1 each part of a bio is in exactly one request, which is in the plug, in the inbox or in the
///   request table; the bio ends once, when the last of these requests is done.
/// - Q2 a request in the inbox has no tag; one in the table has exactly one.
/// - Q3 every capacity is fixed at open. The slab bounds the number of bios, so it bounds the plug
///   list and the inbox; the depth bounds the table. Nothing is allocated per I/O.
#[derive(Debug)]
pub struct RequestQueue {
    limits: QueueLimits,
    policy: Policy,
    bios: BioSlab,
    plug: PlugList,
    pub(crate) hctx: HardwareContext,
    stats: QueueStats,
}

/// What may reach the driver: counterpart in Linux: `struct blk_mq_hw_ctx`.
#[derive(Debug)]
pub(crate) struct HardwareContext {
    /// Unplugged, or never plugged, and without a tag yet.
    pub(crate) inbox: VecDeque<Request>,
    pub(crate) tags: Tags,
    pub(crate) table: Box<[Slot]>,
    /// Tagged, and to be issued (again) before anything of the inbox.
    pub(crate) dispatch: VecDeque<Tag>,
    pub(crate) completions: Completions,
    pub(crate) nr_in_flight: u32,
    /// No request at the driver joins more bios than this.
    pub(crate) bios_per_request_max: u32,
    /// Requests at the driver whose completion is followed by another command.
    pub(crate) nr_with_more_commands: u32,
    /// Something was issued since the last commit.
    pub(crate) uncommitted: bool,
    pub(crate) busy_since_ns: u64,
}

/// Where a tag stands. Counterpart in Linux: `enum mq_rq_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Idle,
    /// Has a request that is not at the driver: on the dispatch list.
    Waiting,
    /// At the driver.
    Issued,
}

/// One row of the request table.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    pub(crate) rq: Option<Request>,
}

/// What became of a bio that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Its name until it ends.
    pub id: BioId,
    /// Whether it waits in the plug, merged or not; if not, it is in the inbox.
    pub plugged: bool,
    /// Whether something reached the inbox, so that a turn is due.
    pub turn_due: bool,
}

/// When a turn commits what it has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// At the end of the turn.
    Now,
    /// Not in this turn: the caller means to wait in the driver next
    /// ([`RequestQueue::prepare_wait`]), which does both with one system call. A caller that does
    /// not wait after all calls [`RequestQueue::commit`].
    AtWait,
}

/// The end of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which; the name may be given to another bio after this.
    pub id: BioId,
    /// The owner that was given when it was queued.
    pub owner: u32,
    /// The bio's own `user_data`.
    pub user_data: u64,
    /// The bytes from its start that were moved (its length for what moves none), fewer only at
    /// the end of a file; or why the first byte that was not moved was not.
    pub result: Result<u64, BlockStatus>,
}

/// What a turn leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Requests at the driver.
    pub nr_in_flight: u32,
    /// Whether requests are left that could not be issued: for want of tags, or because the
    /// driver was busy.
    pub work_left: bool,
}

impl RequestQueue {
    /// A queue for a device of these limits.
    ///
    /// # Panics
    /// If `limits` contradict themselves, or a number in `policy` is out of its range.
    pub fn new(limits: QueueLimits, policy: Policy) -> RequestQueue {
        assert!(limits.validate().is_ok(), "limits are checked at open");
        let depth = policy.queue_depth;
        let idle = || Slot { state: SlotState::Idle, rq: None };
        RequestQueue {
            limits,
            policy,
            bios: BioSlab::new(policy.nr_bios),
            plug: PlugList::new(),
            hctx: HardwareContext {
                inbox: VecDeque::with_capacity(policy.nr_bios as usize),
                tags: Tags::new(depth),
                table: (0..depth).map(|_| idle()).collect(),
                dispatch: VecDeque::with_capacity(depth as usize),
                completions: Completions::new(depth),
                nr_in_flight: 0,
                bios_per_request_max: 1,
                nr_with_more_commands: 0,
                uncommitted: false,
                busy_since_ns: 0,
            },
            stats: QueueStats::default(),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// The settings in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The counters so far.
    pub fn stats(&self) -> &QueueStats {
        &self.stats
    }

    /// How many bios are in the layer: plugged, waiting, or at the driver.
    pub fn nr_bios(&self) -> u32 {
        self.bios.nr_used()
    }

    /// Whether any bio waits in the plug.
    pub fn is_plugged(&self) -> bool {
        !self.plug.is_empty()
    }

    /// Takes a bio in. `owner` is returned with its end. `level` is the plug level on which it was
    /// queued, from 1 on, or 0 where no plug is open.
    ///
    /// # Errors
    /// The reason, and the bio back.
    #[inline]
    pub fn queue_bio(
        &mut self,
        bio: Bio,
        owner: u32,
        level: u32,
        now: u64,
    ) -> Result<Queued, (Refusal, Bio)> {
        if let Err(refusal) = self.limits.check(&bio) {
            return Err((refusal, bio));
        }
        if self.bios.is_full() {
            return Err((Refusal::WouldBlock, bio));
        }
        let segments = bio.segments.as_slice().iter().copied();
        let front = split::front(&self.limits, bio.op, bio.start, bio.len, segments);
        if front.len == 0 && bio.len > 0 {
            return Err((Refusal::Unsplittable { max_segments: self.limits.max_segments }, bio));
        }
        let id = self.bios.insert(bio, owner, now);
        // Levels make a difference under `per-level` alone; elsewhere all are the first.
        let plugged = level > 0 && self.policy.plug != PlugPolicy::None;
        let level = if self.policy.plug == PlugPolicy::PerLevel { level } else { 1 };
        let bio = &self.bios.get(id).bio;
        let rq = Request::of_bio(id, bio, front, &self.limits, level, now);
        if !plugged {
            self.hctx.inbox.push_back(rq);
            return Ok(Queued { id, plugged, turn_due: true });
        }
        let turn_due = self.plug_request(rq, now);
        Ok(Queued { id, plugged, turn_due })
    }

    /// Merges a request into the plug or adds it. Says whether the plug was emptied first.
    #[inline]
    fn plug_request(&mut self, rq: Request, now: u64) -> bool {
        if self.policy.nomerges != MergePolicy::Never
            && let Some(kind) = self.plug.try_merge(&self.limits, &mut self.bios, &rq)
        {
            self.stats.count_merge(rq.op, kind);
            return false;
        }
        let due = self.plug.is_due(self.policy.nomerges);
        if due {
            self.unplug(UnplugCause::Limit, 1, now);
        }
        self.plug.push(rq);
        due
    }

    /// Moves the plug's requests of `level` and above to the inbox, oldest first: 1 for all. Says
    /// whether there were any, and so whether a turn is due.
    pub fn unplug(&mut self, cause: UnplugCause, level: u32, now: u64) -> bool {
        let before = self.hctx.inbox.len();
        self.plug.detach(level, &mut self.hctx.inbox, now);
        let any = self.hctx.inbox.len() > before;
        if any {
            self.stats.count_unplug(cause);
        }
        any
    }

    /// Does everything that can be done now, in one fixed order: takes the driver's completions and
    /// ends their bios; issues what waits, oldest first, while there are tags; commits the
    /// batch. The bios that ended are added to `ended`, in the order of ending.
    ///
    /// This is the one driving order: whoever runs a queue, under whatever clock, calls this.
    #[inline]
    pub fn turn<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        commit: Commit,
        ended: &mut Vec<Ended>,
    ) -> Turned {
        let mut turn = Turn {
            limits: &self.limits,
            bios: &mut self.bios,
            hctx: &mut self.hctx,
            stats: &mut self.stats,
            iostats: self.policy.iostats,
            now,
            ended,
        };
        turn.reap(driver);
        turn.dispatch(driver);
        if commit == Commit::Now {
            self.commit(driver);
        }
        Turned {
            nr_in_flight: self.hctx.nr_in_flight,
            work_left: !self.hctx.inbox.is_empty() || !self.hctx.dispatch.is_empty(),
        }
    }

    /// For a caller that does not wait after a turn with [`Commit::AtWait`]: commits the batch.
    pub fn commit<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        if self.hctx.uncommitted {
            self.hctx.uncommitted = false;
            self.stats.commits += 1;
            driver.commit_rqs();
        }
    }

    /// For a caller that waits in the driver next, which commits the batch: how many completions to
    /// wait for, so that `nr_bios` bios may have ended, whosever they are. It is as many as that
    /// takes at least, where all of them are in flight; where something waits for a completion
    /// before it can be issued, it is one. A turn is due after the wait.
    ///
    /// # Panics
    /// If nothing is at the driver.
    #[inline]
    pub fn prepare_wait(&mut self, nr_bios: u32) -> u32 {
        let hctx = &mut self.hctx;
        assert!(hctx.nr_in_flight > 0, "there is something to wait for");
        if hctx.uncommitted {
            hctx.uncommitted = false;
            self.stats.commits += 1;
        }
        let is_waiting = !hctx.inbox.is_empty() || !hctx.dispatch.is_empty();
        if is_waiting || hctx.nr_with_more_commands > 0 {
            return 1;
        }
        nr_bios.div_ceil(hctx.bios_per_request_max).clamp(1, hctx.nr_in_flight)
    }

    /// Asserts that the structure is whole (Q1 to Q3). For tests: it looks at everything.
    ///
    /// # Panics
    /// If it is not.
    pub fn check_invariants(&self) {
        let tagged = self.hctx.table.iter().filter(|slot| slot.state != SlotState::Idle);
        let nr_tagged = tagged.clone().count() as u32;
        assert_eq!(nr_tagged + self.hctx.tags.nr_free(), self.policy.queue_depth);
        let issued = tagged.clone().filter(|slot| slot.state == SlotState::Issued).count();
        assert_eq!(issued as u32, self.hctx.nr_in_flight);
        assert_eq!(self.hctx.dispatch.len() as u32 + self.hctx.nr_in_flight, nr_tagged);
        let requests = tagged.filter_map(|slot| slot.rq.as_ref());
        let requests = requests.chain(self.hctx.inbox.iter()).chain(self.plug.iter());
        let (mut nr_parts, mut bios) = (0, alloc::collections::BTreeMap::new());
        for rq in requests {
            let mut id = rq.head;
            for nth in 1..=rq.nr_bios {
                *bios.entry(id.index()).or_insert(0) += 1;
                nr_parts += 1;
                assert_eq!(id == rq.tail, nth == rq.nr_bios, "the chain ends at its tail");
                id = self.bios.next(id).unwrap_or(id);
            }
        }
        assert_eq!(bios.len() as u32, self.bios.nr_used(), "no bio is lost");
        let slots = bios.iter().map(|(index, parts)| (BioId::from_index(*index), *parts));
        for (id, parts) in slots {
            assert_eq!(self.bios.get(id).parts, parts, "parts are counted");
        }
        assert!(nr_parts >= self.bios.nr_used());
        assert!(self.hctx.inbox.capacity() >= self.policy.nr_bios as usize);
    }
}

/// The parts of a queue that a turn works on, and what it was given.
pub(crate) struct Turn<'a> {
    pub(crate) limits: &'a QueueLimits,
    pub(crate) bios: &'a mut BioSlab,
    pub(crate) hctx: &'a mut HardwareContext,
    pub(crate) stats: &'a mut QueueStats,
    pub(crate) iostats: bool,
    pub(crate) now: u64,
    pub(crate) ended: &'a mut Vec<Ended>,
}
