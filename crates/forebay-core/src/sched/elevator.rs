//! The elevator of a hardware context: its scheduler, and the requests that it has handed out.
//!
//! Counterpart in Linux: `struct elevator_queue` with `block/blk-mq-sched.c`.

use crate::bio::{BioFlags, Op};
use crate::limits::QueueLimits;
use crate::origin::Class;
use crate::owner::Owners;
use crate::plant::plants;
use crate::policy::Policy;
use crate::request::Request;
use crate::sched::bfq::Bfq;
use crate::sched::kyber::Kyber;
use crate::sched::mq_deadline::MqDeadline;
use crate::sched::{Neighbours, Position, Queued, Scheduler};
use crate::scheduling::SchedulerPolicy;
use crate::tag::{QUEUE_DEPTH_MAX, Tag};
use alloc::boxed::Box;

/// The tag of a request that has none yet.
const NO_TAG: Tag = Tag::from_index(u16::MAX as usize);

const _: () = assert!(QUEUE_DEPTH_MAX <= NO_TAG.index() as u32);

/// The scheduler of a context, and how many of its requests are at the device.
#[derive(Debug)]
pub(crate) struct Elevator {
    kind: Kind,
    /// The requests that have tags. By tag.
    rows: Box<[Row]>,
    nr_out: u32,
    device_depth: u32,
    /// The number of requests that [`limits`](Self::limits) names.
    nr_limited: u32,
    /// The most that may have tags (Q9).
    limited_max: u32,
    /// The time of the current turn.
    now: u64,
}

/// The request of a tag, as far as the elevator counts it.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    out: Out,
    /// [`limits`](Elevator::limits) names it.
    is_limited: bool,
    /// When the scheduler handed it out.
    since_ns: u64,
}

/// Whether a request was handed out and still has its tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Out {
    #[default]
    No,
    /// By the scheduler.
    Yes,
    /// Before the scheduler was chosen. The request was given up (Q8).
    Earlier,
}

/// Each scheduler. A call is a `match`, not a virtual call. Only `Bfq` is boxed. The functions of
/// `mq-deadline` are inlined there, those of the others are calls.
// The number is a byte of its own: to derive it from another field would cost more in each call.
#[derive(Debug)]
#[repr(u8)]
enum Kind {
    MqDeadline(MqDeadline),
    Kyber(Kyber),
    Bfq(Box<Bfq>),
}

/// Calls a function of the scheduler.
macro_rules! scheduler {
    ($elevator:expr, $name:ident($($argument:expr),*)) => {
        match &$elevator.kind {
            Kind::MqDeadline(it) => it.$name($($argument),*),
            Kind::Kyber(it) => it.$name($($argument),*),
            Kind::Bfq(it) => it.$name($($argument),*),
        }
    };
    (mut $elevator:expr, $name:ident($($argument:expr),*)) => {
        match &mut $elevator.kind {
            Kind::MqDeadline(it) => it.$name($($argument),*),
            Kind::Kyber(it) => it.$name($($argument),*),
            Kind::Bfq(it) => it.$name($($argument),*),
        }
    };
}

impl Elevator {
    /// Creates the elevator of a context with `depth` tags, of which `nr_requests` may be in use.
    /// Returns `None` without a scheduler.
    pub(crate) fn new(
        policy: &Policy,
        limits: &QueueLimits,
        depth: u32,
        nr_requests: u32,
    ) -> Option<Box<Elevator>> {
        let kind = match policy.scheduler {
            SchedulerPolicy::Auto | SchedulerPolicy::None => return None,
            SchedulerPolicy::Bfq => Kind::Bfq(Box::new(Bfq::new(policy.bfq, limits, depth))),
            SchedulerPolicy::Kyber => Kind::Kyber(Kyber::new(policy.kyber, depth)),
            SchedulerPolicy::MqDeadline => {
                Kind::MqDeadline(MqDeadline::new(policy.mq_deadline, depth))
            }
        };
        let device_depth = policy.device_depth_of(limits);
        let mut elevator = Box::new(Elevator {
            kind,
            rows: (0..depth).map(|_| Row::default()).collect(),
            nr_out: 0,
            device_depth,
            nr_limited: 0,
            limited_max: depth,
            now: 0,
        });
        elevator.set_nr_requests(policy, nr_requests);
        Some(elevator)
    }

    /// Records that `nr_requests` tags may be in use.
    pub(crate) fn set_nr_requests(&mut self, policy: &Policy, nr_requests: u32) {
        self.limited_max = policy.async_depth_of(nr_requests);
        scheduler!(mut self, set_depths(self.device_depth, nr_requests));
    }

    /// Returns whether a request is one of those that do not get every tag: no read, and not
    /// reserved, because other I/O may depend on reserved I/O (Q9).
    pub(crate) fn limits(op: Op, flags: BioFlags) -> bool {
        op != Op::Read && !flags.contains(BioFlags::RESERVED)
    }

    /// Returns how many more tags requests may have that are not reads (Q9).
    pub(crate) fn nr_limited_left(&self) -> u32 {
        self.limited_max.saturating_sub(self.nr_limited)
    }

    /// Replaces the owners, and takes over their weights.
    pub(crate) fn set_owners(&mut self, owners: &Owners) {
        scheduler!(mut self, set_owners(owners));
    }

    /// Records the time of the turn that begins. A thread that has not seen yet that the disk needs
    /// the time passes 0 (Q8).
    pub(crate) fn begin_turn(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Records a request that is at the device, and that was given up before the scheduler was
    /// chosen. It keeps its room at the device (Q8).
    pub(crate) fn adopt(&mut self, tag: Tag, op: Op, flags: BioFlags) {
        let is_limited = self.count_limited(op, flags);
        self.rows[tag.index()] = Row { out: Out::Earlier, is_limited, since_ns: 0 };
        self.nr_out += 1;
    }

    /// Returns the number of requests that wait here.
    pub(crate) fn nr_queued(&self) -> usize {
        scheduler!(self, nr_queued())
    }

    /// Returns whether the device may get another request.
    pub(crate) fn has_room(&self) -> bool {
        self.nr_out < self.device_depth || plants!(IgnoreDeviceDepth)
    }

    /// Queues a request under its tag.
    #[inline(always)]
    pub(crate) fn insert(&mut self, tag: Tag, rq: &Request, at: Position) {
        let (queued, now) = (self.new_queued(tag, rq), self.now);
        let is_limited = self.count_limited(rq.op, rq.flags);
        self.rows[tag.index()].is_limited = is_limited;
        scheduler!(mut self, insert(queued, at, now));
    }

    /// Hands out a request that was not queued, if [`next`](Self::next) would return it after an
    /// insertion at the tail. No other request is queued. Returns whether it did.
    #[inline]
    pub(crate) fn pass(&mut self, tag: Tag, rq: &Request) -> bool {
        let queued = self.new_queued(tag, rq);
        let passes = self.has_room() && scheduler!(mut self, pass(queued));
        if passes {
            let is_limited = self.count_limited(rq.op, rq.flags);
            self.rows[tag.index()] = Row { out: Out::Yes, is_limited, since_ns: self.now };
            self.nr_out += 1;
        }
        passes
    }

    #[inline]
    fn new_queued(&self, tag: Tag, rq: &Request) -> Queued {
        let mut queued = queued(tag, rq);
        if queued.since_ns == 0 {
            // It left its plug before the disk needed the time.
            queued.since_ns = self.now;
        }
        queued
    }

    /// Returns whether a request without a tag has to wait for others of its kind (Q9).
    #[inline]
    pub(crate) fn is_full_for(&self, rq: &Request) -> bool {
        self.nr_limited >= self.limited_max && Elevator::limits(rq.op, rq.flags)
    }

    /// Counts a request that has its tag from now on. Returns whether [`limits`](Self::limits)
    /// names it.
    #[inline]
    fn count_limited(&mut self, op: Op, flags: BioFlags) -> bool {
        let is_limited = Elevator::limits(op, flags);
        self.nr_limited += u32::from(is_limited);
        is_limited
    }

    /// Returns the queued requests that a request may merge with. Its tag is `tag` if it is queued.
    #[inline(always)]
    pub(crate) fn neighbours(&mut self, tag: Option<Tag>, rq: &Request) -> Neighbours {
        scheduler!(mut self, neighbours(&queued(tag.unwrap_or(NO_TAG), rq)))
    }

    /// Records that another request was merged into a queued one.
    pub(crate) fn grown(&mut self, tag: Tag, rq: &Request) {
        scheduler!(mut self, grown(tag, rq.start, rq.len));
    }

    /// Removes the request of `tag`, which was merged into that of `into`.
    pub(crate) fn absorbed(&mut self, into: Tag, tag: Tag) {
        scheduler!(mut self, absorbed(into, tag));
    }

    /// Removes and returns the request to issue next. `is_gone`: the device takes no more requests,
    /// and those at the device may never end. So all that are queued are handed out, to be ended
    /// (H3).
    #[inline]
    pub(crate) fn next(&mut self, is_gone: bool) -> Option<Tag> {
        if !self.has_room() && !is_gone {
            return None;
        }
        let now = self.now;
        let tag = match is_gone {
            true => scheduler!(mut self, next_any())?,
            false => scheduler!(mut self, next(now))?,
        };
        let row = &mut self.rows[tag.index()];
        (row.out, row.since_ns) = (Out::Yes, now);
        self.nr_out += 1;
        Some(tag)
    }

    /// Records that a request that was handed out is given up (H5). It keeps its tag, and its room
    /// at the device.
    pub(crate) fn given_up(&mut self, tag: Tag) {
        scheduler!(mut self, given_up(tag));
    }

    /// Records that a tag was put.
    pub(crate) fn put(&mut self, tag: Tag) {
        let row = &mut self.rows[tag.index()];
        let Row { out, is_limited, since_ns } = *row;
        (row.out, row.is_limited) = (Out::No, false);
        self.nr_limited -= u32::from(is_limited);
        if out == Out::No {
            return;
        }
        self.nr_out -= 1;
        if out == Out::Yes {
            let now = self.now;
            scheduler!(mut self, completed(tag, now, now.saturating_sub(since_ns)));
        }
    }

    /// Returns whether a queued request goes before a flush (F9).
    pub(crate) fn passes_flush(&self, class: Class, since_ns: u64) -> bool {
        scheduler!(self, passes_flush(class, since_ns, self.now))
    }

    /// Returns when a turn is due although nothing else happens. `u64::MAX` means never.
    ///
    /// A time that has passed was of no use to this turn, because the device or the driver had no
    /// room. A completion or a delayed run brings the next turn.
    pub(crate) fn next_at_ns(&self) -> u64 {
        match scheduler!(self, next_at_ns()) {
            at_ns if at_ns > self.now && self.has_room() => at_ns,
            _ => u64::MAX,
        }
    }
}

/// Returns the part of a request that the scheduler keeps.
#[inline]
fn queued(tag: Tag, rq: &Request) -> Queued {
    let (op, origin, start, len) = (rq.op, rq.origin, rq.start, rq.len);
    Queued { tag, op, origin, start, len, since_ns: rq.unplugged_ns }
}
