//! A naive model of `kyber`: one list, a scan of it for each rule, and a sorted list of samples.

use super::super::domain::{Domain, NR_MEASURED};
use super::Kyber;
use crate::bio::Op;
use crate::sched::beside::Model;
use crate::sched::{Neighbours, Position, Queued, are_alike};
use crate::tag::Tag;
use alloc::vec::Vec;

/// A wrong rule of the model. A test that compares the two must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// KY1: writes and discards share a FIFO.
    MixDomains,
    /// KY2: a domain may use the device alone.
    IgnoreDepth,
    /// KY2: the depth of a domain is that of Linux on every device.
    FullDepth,
    /// KY3: a batch never ends.
    EndlessBatch,
    /// KY3: a turn without a request ends the dispatch.
    StopAtEmpty,
    /// KY4: a latency equal to the target is above it.
    ExcludeTarget,
    /// KY4: a percentile waits for its samples for ever.
    WaitForSamples,
    /// KY4: samples are kept after a percentile.
    KeepSamples,
    /// KY5: the total decides whether the device is congested.
    CongestedByTotal,
    /// KY5: depths are scaled by the time at the device.
    ScaleByDevice,
    /// KY5: congestion does not shrink a depth.
    NeverShrink,
    /// KY5: only congestion lets a depth grow.
    NeverGrow,
    /// KY6: percentiles are forgotten.
    ForgetPercentile,
    /// KY6: a percentile is used again.
    ReusePercentile,
    /// KY7: the head is the tail.
    IgnoreHead,
    /// KY8: a request that absorbs another keeps its own place.
    KeepPlace,
    /// KY9: a request that was given up keeps its room.
    CountGivenUp,
}

impl Bug {
    pub(super) const ALL: [Bug; 17] = [
        Bug::MixDomains,
        Bug::IgnoreDepth,
        Bug::FullDepth,
        Bug::EndlessBatch,
        Bug::StopAtEmpty,
        Bug::ExcludeTarget,
        Bug::WaitForSamples,
        Bug::KeepSamples,
        Bug::CongestedByTotal,
        Bug::ScaleByDevice,
        Bug::NeverShrink,
        Bug::NeverGrow,
        Bug::ForgetPercentile,
        Bug::ReusePercentile,
        Bug::IgnoreHead,
        Bug::KeepPlace,
        Bug::CountGivenUp,
    ];
}

#[derive(Clone, Copy, Debug)]
struct Item {
    rq: Queued,
    inserted_ns: u64,
    is_head: bool,
    /// The order among equal starts.
    sorted_at: u64,
}

/// The samples of one kind of latency, and since when a percentile has waited for more.
#[derive(Clone, Debug, Default)]
struct Samples {
    latencies_ns: Vec<u64>,
    waits_since_ns: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Naive {
    bug: Option<Bug>,
    targets_ns: [u64; NR_MEASURED],
    /// In the order of insertion.
    items: Vec<Item>,
    /// Requests at the device, and whether they are given up.
    out: Vec<(Item, bool)>,
    turn: usize,
    nr_in_batch: u32,
    nr_sorted: u64,
    newest_discard: Option<Tag>,
    /// By domain: at the device, and in total.
    samples: [[Samples; 2]; NR_MEASURED],
    latest_p99: [Option<u64>; NR_MEASURED],
    window_since_ns: Option<u64>,
    depths_max: [u64; 4],
    depths: [u64; 4],
}

const FULL: [u64; 4] = [256, 128, 64, 16];
const BATCHES: [u32; 4] = [16, 8, 1, 1];

fn domain_of(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Discard => 2,
        Op::Flush | Op::WriteZeroes => 3,
    }
}

impl Naive {
    pub(super) fn new(targets_ns: [u64; 3], device_depth: u64, bug: Option<Bug>) -> Naive {
        let share = |full: u64| match bug {
            Some(Bug::FullDepth) => full,
            _ => full.min((full * device_depth).div_ceil(256)).max(1),
        };
        Naive {
            bug,
            targets_ns,
            items: Vec::new(),
            out: Vec::new(),
            turn: 0,
            nr_in_batch: 0,
            nr_sorted: 0,
            newest_discard: None,
            samples: Default::default(),
            latest_p99: [None; NR_MEASURED],
            window_since_ns: None,
            depths_max: FULL.map(share),
            depths: FULL.map(share),
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn domain_of(&self, rq: &Queued) -> usize {
        match rq.op {
            Op::Discard if self.has(Bug::MixDomains) => 1,
            op => domain_of(op),
        }
    }

    fn place(&self, tag: Tag) -> usize {
        self.items.iter().position(|item| item.rq.tag == tag).expect("it is queued")
    }

    fn take(&mut self, domain: usize) -> Option<Tag> {
        let is_counted = |out: &&(Item, bool)| {
            self.domain_of(&out.0.rq) == domain && (!out.1 || self.has(Bug::CountGivenUp))
        };
        let nr_out = self.out.iter().filter(is_counted).count() as u64;
        if nr_out >= self.depths[domain] && !self.has(Bug::IgnoreDepth) {
            return None;
        }
        let is_of =
            |item: &Item, is_head| item.is_head == is_head && self.domain_of(&item.rq) == domain;
        let first = |is_head| self.items.iter().position(|item| is_of(item, is_head));
        let place = first(true).or_else(|| first(false))?;
        let item = self.items.remove(place);
        self.newest_discard.take_if(|newest| *newest == item.rq.tag);
        self.out.push((item, false));
        self.nr_in_batch += 1;
        Some(item.rq.tag)
    }

    /// Returns the latency of a percentile of a domain, in quarters of its target, rounded up.
    fn percentile(&mut self, domain: usize, kind: usize, percent: usize, now: u64) -> Option<u64> {
        let (waits, keeps) = (self.has(Bug::WaitForSamples), self.has(Bug::KeepSamples));
        let excludes = u64::from(self.has(Bug::ExcludeTarget));
        let samples = &mut self.samples[domain][kind];
        let nr = samples.latencies_ns.len();
        if nr == 0 {
            return None;
        }
        let since_ns = *samples.waits_since_ns.get_or_insert(now);
        if nr < 500 && (now - since_ns < 1_000_000_000 || waits) {
            return None;
        }
        samples.latencies_ns.sort_unstable();
        let latency_ns = samples.latencies_ns[(nr * percent).div_ceil(100) - 1];
        samples.waits_since_ns = None;
        if !keeps {
            samples.latencies_ns.clear();
        }
        let quarter_ns = (self.targets_ns[domain] / 4).max(1);
        Some((latency_ns + excludes).div_ceil(quarter_ns).clamp(1, 8))
    }

    fn end_window(&mut self, now: u64) {
        let device = [0, 1, 2].map(|domain| self.percentile(domain, 0, 90, now));
        let total = [0, 1, 2].map(|domain| self.percentile(domain, 1, 99, now));
        let deciding = if self.has(Bug::CongestedByTotal) { total } else { device };
        let is_congested = deciding.iter().any(|quarters| quarters.is_some_and(|nr| nr > 4));
        let ratios = if self.has(Bug::ScaleByDevice) { device } else { total };
        for (domain, mut quarters) in ratios.into_iter().enumerate() {
            if is_congested {
                if !self.has(Bug::ForgetPercentile) {
                    quarters = quarters.or(self.latest_p99[domain]);
                }
                if !self.has(Bug::ReusePercentile) {
                    self.latest_p99[domain] = None;
                }
            } else if quarters.is_some() {
                self.latest_p99[domain] = quarters;
            }
            let Some(quarters) = quarters else { continue };
            let may_change = match quarters > 4 {
                true => is_congested || !self.has(Bug::NeverGrow),
                false => is_congested && !self.has(Bug::NeverShrink),
            };
            if may_change {
                let depth = self.depths[domain] * quarters / 4;
                self.depths[domain] = depth.clamp(1, self.depths_max[domain]);
            }
        }
    }
}

impl Model for Naive {
    type Scheduler = Kyber;

    fn insert(&mut self, rq: Queued, at: Position, now: u64) {
        let is_head = at == Position::Head && !self.has(Bug::IgnoreHead);
        self.nr_sorted += 1;
        let item = Item { rq, inserted_ns: now, is_head, sorted_at: self.nr_sorted };
        self.items.push(item);
        if rq.op == Op::Discard && !is_head {
            self.newest_discard = Some(rq.tag);
        }
    }

    fn neighbours(&self, rq: &Queued) -> Neighbours {
        let mut others: Vec<&Item> = self.items.iter().filter(|item| !item.is_head).collect();
        others.sort_by_key(|item| (item.rq.start, item.sorted_at));
        let is_domain_of = |item: &&&Item| domain_of(item.rq.op) == domain_of(rq.op);
        let below = others.iter().filter(is_domain_of).map(|item| item.rq.start);
        let nearest = below.filter(|start| *start < rq.start).max();
        let tag_of = |found: Option<&&Item>| found.map(|item| item.rq.tag);
        let is_alike = |item: &&&Item| are_alike(rq, &item.rq);
        Neighbours {
            before: tag_of(others.iter().rev().filter(is_alike).find(|item| {
                Some(item.rq.start) == nearest && item.rq.start + item.rq.len == rq.start
            })),
            after: tag_of(
                others.iter().filter(is_alike).find(|item| item.rq.start == rq.start + rq.len),
            ),
            discard: tag_of(
                others.iter().filter(is_alike).find(|it| Some(it.rq.tag) == self.newest_discard),
            ),
        }
    }

    fn grown(&mut self, tag: Tag, start: u64, len: u64) {
        let place = self.place(tag);
        let item = &mut self.items[place];
        if item.rq.start != start {
            self.nr_sorted += 1;
            item.sorted_at = self.nr_sorted;
        }
        (item.rq.start, item.rq.len) = (start, len);
    }

    fn absorbed(&mut self, into: Tag, tag: Tag) {
        let (kept, gone) = (self.place(into), self.place(tag));
        let since_ns = self.items[gone].inserted_ns;
        if since_ns < self.items[kept].inserted_ns && !self.has(Bug::KeepPlace) {
            self.items[kept].inserted_ns = since_ns;
            self.items.swap(kept, gone);
            self.items.remove(kept);
        } else {
            self.items.remove(gone);
        }
        self.newest_discard.take_if(|newest| *newest == tag);
    }

    fn next(&mut self, _now: u64) -> Option<Tag> {
        if self.items.is_empty() {
            return None;
        }
        if (self.nr_in_batch < BATCHES[self.turn] || self.has(Bug::EndlessBatch))
            && let Some(tag) = self.take(self.turn)
        {
            return Some(tag);
        }
        self.nr_in_batch = 0;
        for _ in 0..4 {
            self.turn = (self.turn + 1) % 4;
            if let Some(tag) = self.take(self.turn) {
                return Some(tag);
            }
            if self.has(Bug::StopAtEmpty) {
                return None;
            }
        }
        None
    }

    fn completed(&mut self, tag: Tag, now: u64, device_ns: u64) {
        let place = self.out.iter().position(|out| out.0.rq.tag == tag).expect("it is out");
        let (item, is_given_up) = self.out.remove(place);
        let Some(samples) = self.samples.get_mut(domain_of(item.rq.op)) else { return };
        if !is_given_up {
            samples[0].latencies_ns.push(device_ns);
            samples[1].latencies_ns.push(now - item.inserted_ns);
            self.window_since_ns.get_or_insert(now);
        }
    }

    fn given_up(&mut self, tag: Tag) {
        self.out.iter_mut().filter(|out| out.0.rq.tag == tag).for_each(|out| out.1 = true);
    }

    fn nr_queued(&self) -> usize {
        self.items.len()
    }

    /// The window ends at its end, as with a timer.
    fn pass(&mut self, now: u64) {
        let Some(since_ns) = self.window_since_ns else { return };
        let end_ns = since_ns + 100_000_000;
        if end_ns <= now {
            self.window_since_ns = None;
            self.end_window(end_ns);
        }
    }

    fn agrees(&self, scheduler: &Kyber) -> bool {
        self.depths == Domain::ALL.map(|domain| scheduler.tuning.depth(domain).into())
    }
}
