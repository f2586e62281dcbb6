//! `kyber`: a limit on the requests of each kind at the device, tuned by their latencies.
//!
//! Source: the rules and defaults of Linux 6.12 (`block/kyber-iosched.c`). Differences: a request
//! can merge with every queued one, not only with the last eight of a processor; and the context
//! limits the tags of all requests but reads (`async_depth`, Q9), where Linux excepts writes that a
//! program waits for. The class of a priority has no effect, as
//! there.
//!
//! - KY1 *Domains.* Reads, writes, discards and other requests (write-zeroes) are domains. Each has
//!   a FIFO.
//! - KY2 *Depths.* At most as many requests of a domain are at the device as its depth. At first
//!   that is the greatest one: 256, 128, 64 and 16, or for a device that takes fewer than 256, that
//!   share of its depth, and at least 1. (In Linux these numbers do not depend on the device.)
//! - KY3 *Batches.* Domains have turns of up to 16, 8, 1 and 1 requests. A turn ends early if its
//!   domain has no request, or no room at the device.
//! - KY4 *Latencies.* The time at the device and the total since the insertion are counted in
//!   buckets of a quarter of the domain's target: `read_lat_nsec`, `write_lat_nsec`, or 5 s for
//!   discards. A percentile needs 500 samples, or a second. (In Linux, the totals of a domain with
//!   fewer samples per second can wait for longer.)
//! - KY5 *Tuning.* The device is congested if the 90th percentile at the device of any domain is
//!   above its target. Then every depth is multiplied by the ratio of the 99th percentile of the
//!   domain's total to its target. Otherwise only depths with a ratio above 1 are.
//! - KY6 *Memory.* During congestion, a domain without a new percentile uses its last one, once.
//! - KY7 *Head.* Requests that are inserted at the head go before all others of their domain, in
//!   their order, and do not merge.
//! - KY8 *Merges.* A request that absorbs another one takes its place in the FIFO and its age, if
//!   these are earlier.
//! - KY9 *Given up.* A request that was given up (H5) no longer counts as being at the device, and
//!   its latency is not counted.

mod domain;
mod histogram;
mod tuning;

use crate::bio::Op;
use crate::origin::Origin;
use crate::plant::plants;
use crate::sched::sorted::SortedTags;
use crate::sched::tag_list::{Links, TagList};
use crate::sched::{Neighbours, Position, Queued, Scheduler};
use crate::scheduling::KyberParams;
use crate::tag::Tag;
use alloc::boxed::Box;
use domain::{Domain, NR_DOMAINS};
use tuning::Tuning;

/// The requests of a domain.
#[derive(Clone, Debug, Default)]
struct OfDomain {
    /// Requests that were inserted at the head (KY7).
    head: TagList,
    fifo: TagList,
    /// The requests of the FIFO, for merges.
    sorted: SortedTags,
    /// How many requests are at the device and not given up.
    nr_out: u32,
}

/// A tag's request.
#[derive(Clone, Copy, Debug)]
struct Row {
    rq: Queued,
    inserted_ns: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not in the scheduler.
    None,
    /// In the list of requests that were inserted at the head.
    Head,
    /// In the FIFO and the sorted list of its domain.
    Fifo,
    /// Handed out and not completed.
    Out,
    /// Handed out and given up.
    GivenUp,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Kyber {
    /// By tag.
    rows: Box<[Row]>,
    links: Links,
    domains: [OfDomain; NR_DOMAINS],
    nr_queued: usize,
    /// The domain whose turn it is, and how many requests of it went.
    turn: Domain,
    nr_in_batch: u32,
    /// The discard that was inserted last, while it is queued.
    newest_discard: Option<Tag>,
    /// Large beside the other schedulers.
    tuning: Box<Tuning>,
}

impl Kyber {
    /// Creates the scheduler of a context with `depth` tags.
    pub(crate) fn new(params: KyberParams, depth: u32) -> Kyber {
        let rq = Queued {
            tag: Tag::from_index(0),
            op: Op::Read,
            origin: Origin::NONE,
            start: 0,
            len: 0,
            since_ns: 0,
        };
        Kyber {
            rows: (0..depth).map(|_| Row { rq, inserted_ns: 0, place: Place::None }).collect(),
            links: Links::new(depth),
            domains: Default::default(),
            nr_queued: 0,
            turn: Domain::Read,
            nr_in_batch: 0,
            newest_discard: None,
            tuning: Box::new(Tuning::new(domain::targets_ns(&params))),
        }
    }

    fn row(&self, tag: Tag) -> &Row {
        &self.rows[tag.index()]
    }

    fn domain_mut(&mut self, rq: &Queued) -> &mut OfDomain {
        &mut self.domains[Domain::of(rq.op) as usize]
    }

    /// Hands out the next request of the domain whose turn it is, if it has one and room for it.
    fn take_in_turn(&mut self) -> Option<Tag> {
        let of_domain = &self.domains[self.turn as usize];
        if of_domain.nr_out >= self.tuning.depth(self.turn) && !plants!(IgnoreDomainDepth) {
            return None;
        }
        let tag = of_domain.head.first().or(of_domain.fifo.first())?;
        self.nr_in_batch += 1;
        Some(self.take(tag))
    }

    /// Hands a request out.
    fn take(&mut self, tag: Tag) -> Tag {
        self.remove(tag);
        let row = &mut self.rows[tag.index()];
        row.place = Place::Out;
        let rq = row.rq;
        self.domain_mut(&rq).nr_out += 1;
        tag
    }

    /// Removes a queued request from its lists.
    fn remove(&mut self, tag: Tag) {
        let Row { rq, place, .. } = self.rows[tag.index()];
        let of_domain = &mut self.domains[Domain::of(rq.op) as usize];
        match place {
            Place::Head => of_domain.head.remove(tag, &mut self.links),
            Place::Fifo => {
                of_domain.fifo.remove(tag, &mut self.links);
                of_domain.sorted.remove(rq.start, tag);
            }
            Place::None | Place::Out | Place::GivenUp => unreachable!("the request is queued"),
        }
        self.nr_queued -= 1;
        if self.newest_discard == Some(tag) {
            self.newest_discard = None;
        }
    }
}

impl Scheduler for Kyber {
    #[inline(never)]
    fn insert(&mut self, rq: Queued, at: Position, now: u64) {
        let of_domain = &mut self.domains[Domain::of(rq.op) as usize];
        self.nr_queued += 1;
        let place = match at {
            Position::Head if !plants!(HeadToDomainTail) => {
                of_domain.head.push_back(rq.tag, &mut self.links);
                Place::Head
            }
            Position::Head | Position::Tail => {
                of_domain.fifo.push_back(rq.tag, &mut self.links);
                of_domain.sorted.insert(rq.start, rq.tag);
                if rq.op == Op::Discard {
                    self.newest_discard = Some(rq.tag);
                }
                Place::Fifo
            }
        };
        self.rows[rq.tag.index()] = Row { rq, inserted_ns: now, place };
    }

    #[inline(never)]
    fn neighbours(&mut self, rq: &Queued) -> Neighbours {
        let Kyber { domains, rows, .. } = self;
        let sorted = &mut domains[Domain::of(rq.op) as usize].sorted;
        Neighbours::find(rq, sorted, self.newest_discard, true, |tag| &rows[tag.index()].rq)
    }

    fn grown(&mut self, tag: Tag, start: u64, len: u64) {
        let Row { rq, place, .. } = &mut self.rows[tag.index()];
        if start != rq.start && *place == Place::Fifo {
            let sorted = &mut self.domains[Domain::of(rq.op) as usize].sorted;
            sorted.remove(rq.start, tag);
            sorted.insert(start, tag);
        }
        (rq.start, rq.len) = (start, len);
    }

    fn absorbed(&mut self, into: Tag, tag: Tag) {
        let (kept, gone) = (*self.row(into), *self.row(tag));
        assert!((kept.place, gone.place) == (Place::Fifo, Place::Fifo), "both are queued");
        // KY8.
        if gone.inserted_ns < kept.inserted_ns && !plants!(KeepPlace) {
            let fifo = &mut self.domains[Domain::of(kept.rq.op) as usize].fifo;
            fifo.remove(into, &mut self.links);
            fifo.insert_before(tag, into, &mut self.links);
            self.rows[into.index()].inserted_ns = gone.inserted_ns;
        }
        self.remove(tag);
        self.rows[tag.index()].place = Place::None;
    }

    #[inline(never)]
    fn next(&mut self, now: u64) -> Option<Tag> {
        self.tuning.tune(now);
        if self.nr_queued == 0 {
            return None;
        }
        // KY3.
        if (self.nr_in_batch < self.turn.batch() || plants!(EndlessTurn))
            && let Some(tag) = self.take_in_turn()
        {
            return Some(tag);
        }
        self.nr_in_batch = 0;
        Domain::ALL.iter().find_map(|_| {
            self.turn = self.turn.following();
            self.take_in_turn()
        })
    }

    #[inline(never)]
    fn next_any(&mut self) -> Option<Tag> {
        let lists = |of_domain: &OfDomain| [of_domain.head, of_domain.fifo];
        let tag = self.domains.iter().flat_map(lists).find_map(|list| list.first())?;
        Some(self.take(tag))
    }

    #[inline(never)]
    fn completed(&mut self, tag: Tag, now: u64, device_ns: u64) {
        // The sample belongs to the next window if this one has ended.
        self.tuning.tune(now);
        let row = &mut self.rows[tag.index()];
        let (rq, total_ns) = (row.rq, now.saturating_sub(row.inserted_ns));
        match core::mem::replace(&mut row.place, Place::None) {
            Place::Out => {
                self.domain_mut(&rq).nr_out -= 1;
                self.tuning.add(Domain::of(rq.op), device_ns, total_ns, now);
            }
            Place::GivenUp => {}
            Place::None | Place::Head | Place::Fifo => unreachable!("it was handed out"),
        }
    }

    fn given_up(&mut self, tag: Tag) {
        let row = &mut self.rows[tag.index()];
        assert!(row.place == Place::Out, "it was handed out");
        row.place = Place::GivenUp;
        let rq = row.rq;
        self.domain_mut(&rq).nr_out -= u32::from(!plants!(KeepDomainRoom));
    }

    fn nr_queued(&self) -> usize {
        self.nr_queued
    }

    fn next_at_ns(&self) -> u64 {
        // A domain without room waits for a completion. A window that ends needs no turn
        // (`tuning.rs`).
        u64::MAX
    }

    fn set_depths(&mut self, device_depth: u32, _nr_requests: u32) {
        self.tuning.set_device_depth(device_depth);
    }
}

#[cfg(test)]
mod tests;
