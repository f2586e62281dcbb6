//! The plug: a list where the bios of a batch wait for neighbours.
//!
//! Counterpart in Linux: `struct blk_plug`. This is the list of one thread for one disk. A plugged
//! request has no tag and holds nothing that another thread's progress needs. Its rules:
//!
//! - I2 a list is detached as a whole before any of it is dispatched;
//! - I3 requests leave in the order in which they arrived;
//! - I6 the newest request is the only merge candidate, so the cost of a bio does not depend on the
//!   length of the list;
//! - the list is unplugged early, before another request is added, if it is full
//!   ([`PLUG_MAX_REQUESTS`]) or its newest request is large ([`PLUG_FLUSH_BYTES`]).

use crate::limits::QueueLimits;
use crate::list::push;
use crate::merge::{self, MergeKind};
use crate::policy::MergePolicy;
use crate::request::Request;
use alloc::vec::{Drain, Vec};

/// The maximum number of requests of one disk in a plug, as in Linux (`BLK_MAX_REQUEST_COUNT`).
pub const PLUG_MAX_REQUESTS: usize = 32;

/// If the newest request has this many bytes, the plug is unplugged before another is added, as in
/// Linux (`BLK_PLUG_FLUSH_SIZE`).
pub const PLUG_FLUSH_BYTES: u64 = 128 * 1024;

/// Why requests were unplugged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnplugCause {
    /// The outermost plug ended.
    Outermost,
    /// An inner plug ended, under `plug=per-level`.
    Level,
    /// The caller requested it.
    Explicit,
    /// The list reached a limit.
    Limit,
    /// The thread was about to wait.
    Wait,
}

impl UnplugCause {
    /// All causes, in the order of the counters.
    pub const ALL: [UnplugCause; 5] = [
        UnplugCause::Outermost,
        UnplugCause::Level,
        UnplugCause::Explicit,
        UnplugCause::Limit,
        UnplugCause::Wait,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            UnplugCause::Outermost => "outermost",
            UnplugCause::Level => "level",
            UnplugCause::Explicit => "explicit",
            UnplugCause::Limit => "limit",
            UnplugCause::Wait => "wait",
        }
    }
}

/// Returns the capacity of a list of requests: of a software queue, and of a hardware context. They
/// are swapped with each other, so each must have room for the contents of the other.
pub(crate) fn list_capacity(queue_depth: u32) -> usize {
    (queue_depth as usize).max(2 * PLUG_MAX_REQUESTS)
}

/// The requests of one thread for one disk: those in the plug, and the outgoing ones, which have
/// left it. One list holds both, so unplugging moves no request.
#[derive(Debug)]
pub(crate) struct PlugList {
    /// Oldest first. The outgoing requests are in front of those in the plug.
    requests: Vec<Request>,
    nr_outgoing: usize,
}

impl PlugList {
    /// Creates an empty list.
    pub(crate) fn new(queue_depth: u32) -> PlugList {
        let requests = Vec::with_capacity(list_capacity(queue_depth));
        PlugList { requests, nr_outgoing: 0 }
    }

    /// Returns the number of requests in the plug.
    #[inline]
    pub(crate) fn nr_plugged(&self) -> usize {
        self.requests.len() - self.nr_outgoing
    }

    /// Returns the number of outgoing requests.
    #[inline]
    pub(crate) fn nr_outgoing(&self) -> usize {
        self.nr_outgoing
    }

    /// Merges `new` with the newest request of the plug, if there is one of the same level. If the
    /// requests do not merge, also returns whether the plug is due: it must be unplugged before
    /// another request is added.
    #[inline]
    pub(crate) fn try_merge(
        &mut self,
        limits: &QueueLimits,
        nomerges: MergePolicy,
        new: Request,
    ) -> Result<MergeKind, (Request, bool)> {
        let nr_plugged = self.nr_plugged();
        if nr_plugged == 0 {
            return Err((new, false));
        }
        let Some(newest) = self.requests.last_mut() else { return Err((new, false)) };
        if nomerges == MergePolicy::Never {
            return Err((new, nr_plugged >= PLUG_MAX_REQUESTS));
        }
        let merged = match newest.level == new.level {
            true => merge::try_merge(limits, newest, new),
            false => Err(new),
        };
        let is_due = nr_plugged >= PLUG_MAX_REQUESTS || newest.len >= PLUG_FLUSH_BYTES;
        merged.map_err(|new| (new, is_due))
    }

    /// Appends a request to the plug.
    #[inline]
    pub(crate) fn push(&mut self, rq: Request) {
        debug_assert!(self.nr_plugged() < PLUG_MAX_REQUESTS);
        self.requests.push(rq);
    }

    /// Appends an outgoing request, which goes past the plug.
    #[inline]
    pub(crate) fn push_outgoing(&mut self, rq: Request) {
        match self.nr_plugged() {
            0 => push(&mut self.requests, rq),
            _ => self.requests.insert(self.nr_outgoing, rq),
        }
        self.nr_outgoing += 1;
    }

    /// Seals the requests of `level` and above, and makes them outgoing. Level 1 means all. Returns
    /// whether there was one.
    #[inline]
    pub(crate) fn detach(&mut self, level: u32, now: u64) -> bool {
        if level > 1 {
            return self.detach_level(level, now);
        }
        let first = self.nr_outgoing;
        self.nr_outgoing = self.requests.len();
        leave(&mut self.requests[first..], now);
        self.nr_outgoing > first
    }

    /// Inner levels end first, so the requests of `level` and above are the newest.
    #[cold]
    fn detach_level(&mut self, level: u32, now: u64) -> bool {
        let plugged = &mut self.requests[self.nr_outgoing..];
        let first = plugged.partition_point(|rq| rq.level < level);
        let nr = plugged.len() - first;
        leave(&mut plugged[first..], now);
        plugged.rotate_right(nr);
        self.nr_outgoing += nr;
        nr > 0
    }

    /// Drains the outgoing requests, oldest first.
    #[inline]
    pub(crate) fn outgoing(&mut self) -> Drain<'_, Request> {
        let nr = core::mem::take(&mut self.nr_outgoing);
        self.requests.drain(..nr)
    }

    /// Moves the outgoing requests to an empty list.
    #[inline(always)]
    pub(crate) fn move_outgoing(&mut self, empty: &mut Vec<Request>) {
        assert!(empty.is_empty());
        // An exchange of the lists, unless the empty one has more room: in its place, the smaller
        // list would have to grow again.
        if self.nr_plugged() == 0 && empty.capacity() <= self.requests.capacity() {
            self.nr_outgoing = 0;
            return core::mem::swap(&mut self.requests, empty);
        }
        self.move_some(empty);
    }

    #[inline(never)]
    fn move_some(&mut self, empty: &mut Vec<Request>) {
        empty.extend(self.outgoing());
    }
}

/// Prepares requests to leave the plug.
#[inline]
fn leave(requests: &mut [Request], now: u64) {
    for rq in requests {
        rq.seal();
        rq.unplugged_ns = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::QueuedBio;
    use alloc::vec;

    fn request(number: u32, level: u32) -> Request {
        let mut rq = Request::of_bios(QueuedBio::new(0, number));
        rq.level = level;
        rq
    }

    fn numbers<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Vec<u32> {
        requests.into_iter().map(|rq| rq.first().number()).collect()
    }

    #[test]
    fn detached_requests_leave_in_order_and_lower_levels_stay() {
        let mut list = PlugList::new(1);
        for (number, level) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            list.push(request(number, level));
        }
        assert!(!list.detach(4, 0) && list.nr_outgoing() == 0);
        assert!(list.detach(2, 7));
        list.push_outgoing(request(4, 1));
        assert_eq!((list.nr_outgoing(), list.nr_plugged()), (3, 2));
        list.push(request(5, 2));
        assert!(list.detach(2, 8));
        let mut out = Vec::with_capacity(8);
        list.move_outgoing(&mut out);
        assert_eq!(numbers(&out), [2, 3, 4, 5]);
        assert_eq!((list.nr_outgoing(), list.nr_plugged()), (0, 2));
        assert!(list.detach(1, 9) && !list.detach(1, 9));
        assert_eq!(numbers(&list.outgoing().collect::<Vec<_>>()), [0, 1]);
        assert_eq!((list.nr_outgoing(), list.nr_plugged()), (0, 0));
    }

    #[test]
    fn lists_do_not_grow_and_the_smaller_one_is_never_taken_in_exchange() {
        let mut list = PlugList::new(1);
        let room = list.requests.capacity();
        let fill = |list: &mut PlugList| {
            (0..PLUG_MAX_REQUESTS as u32).for_each(|number| list.push(request(number, 1)));
        };
        // As many as a plug holds are outgoing while the plug fills again.
        fill(&mut list);
        assert!(list.detach(1, 0));
        fill(&mut list);
        assert_eq!(list.requests.capacity(), room);
        let mut out = Vec::with_capacity(2 * room);
        list.move_outgoing(&mut out);
        assert_eq!((list.requests.capacity(), out.capacity(), out.len()), (room, 2 * room, 32));
    }

    #[test]
    fn only_outgoing_requests_move() {
        let mut list = PlugList::new(1);
        let mut out = Vec::with_capacity(8);
        list.push(request(0, 1));
        list.move_outgoing(&mut out);
        assert_eq!((out.len(), list.nr_plugged()), (0, 1));
        list.push_outgoing(request(1, 0));
        list.move_outgoing(&mut out);
        assert_eq!((numbers(&out), list.nr_outgoing(), list.nr_plugged()), (vec![1], 0, 1));
    }

    #[test]
    fn outgoing_requests_move_the_same_with_and_without_a_swap() {
        for (capacity, nr_plugged) in [(0, 0), (0, 1), (1000, 0), (1000, 1)] {
            let mut list = PlugList::new(1);
            (0..3).for_each(|number| list.push(request(number, 1)));
            assert!(list.detach(1, 0));
            (0..nr_plugged).for_each(|number| list.push(request(3 + number, 1)));
            let mut out = Vec::with_capacity(capacity);
            list.move_outgoing(&mut out);
            assert_eq!(numbers(&out), [0, 1, 2]);
            assert_eq!((list.nr_outgoing(), list.nr_plugged()), (0, nr_plugged as usize));
        }
    }
}
