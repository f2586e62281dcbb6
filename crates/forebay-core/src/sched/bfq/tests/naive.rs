//! A naive model of `bfq`: lists, and scans of them for each rule.

use super::super::class_of;
use super::super::slice::CLASS_WAIT_NS;
use crate::bio::Op;
use crate::sched::{Neighbours, Position, Queued, are_alike};
use crate::scheduling::BfqParams;
use crate::tag::Tag;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A wrong rule of the model. A test that compares the two must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// BF2: the lowest address is always next.
    ForgetPosition,
    /// BF3: deadlines are ignored.
    IgnoreExpiry,
    /// BF4: a slice has no budget.
    NoBudget,
    /// BF4: a slice has no time.
    NoTimeout,
    /// BF5: all owners have the same weight.
    IgnoreWeight,
    /// BF5: slow slices cost their bytes.
    CheapTime,
    /// BF6: no queue is awaited.
    NoIdling,
    /// BF6: a queue that is awaited is awaited for ever.
    EndlessIdling,
    /// BF6: a queue is also awaited after a write.
    AwaitWrites,
    /// BF6: a random reader is always awaited.
    AwaitSeeks,
    /// BF6: a queue is awaited although no tag is free.
    AwaitTags,
    /// BF6: a queue of the class idle is awaited.
    AwaitIdleClass,
    /// BF8: the slice of a lower class does not end.
    KeepSlice,
    /// BF8: a lower class waits without a limit.
    StarveClass,
    /// BF9: the head is the tail.
    IgnoreHead,
    /// BF9: requests at the head cost nothing.
    FreeHead,
    /// BF10: a request that absorbs another keeps its own deadline.
    KeepDeadline,
    /// BF12: a request that was given up is awaited.
    AwaitGivenUp,
}

impl Bug {
    pub(super) const ALL: [Bug; 18] = [
        Bug::ForgetPosition,
        Bug::IgnoreExpiry,
        Bug::NoBudget,
        Bug::NoTimeout,
        Bug::IgnoreWeight,
        Bug::CheapTime,
        Bug::NoIdling,
        Bug::EndlessIdling,
        Bug::AwaitWrites,
        Bug::AwaitSeeks,
        Bug::AwaitTags,
        Bug::AwaitIdleClass,
        Bug::KeepSlice,
        Bug::StarveClass,
        Bug::IgnoreHead,
        Bug::FreeHead,
        Bug::KeepDeadline,
        Bug::AwaitGivenUp,
    ];
}

/// All weights of the tests divide this number, so that the tags of the fair order are exact.
const UNIT: u64 = 400;

#[derive(Clone, Copy, Debug)]
struct Item {
    rq: Queued,
    /// The owner, or 0.
    number: u32,
    deadline_ns: u64,
    is_head: bool,
    /// The order among equal starts.
    sorted_at: u64,
}

/// An owner in a class.
#[derive(Clone, Debug, Default)]
struct Flow {
    start: u64,
    finish: u64,
    is_ready: bool,
    /// The order among equal start tags.
    order: u64,
    position: u64,
    last_end: u64,
    seeks: Vec<bool>,
    think_ns: u64,
    ended_ns: Option<u64>,
    reads: bool,
}

#[derive(Clone, Debug, Default)]
struct OfClass {
    flows: BTreeMap<u32, Flow>,
    now: u64,
    finish_max: u64,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    class: usize,
    number: u32,
    since_ns: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Naive {
    params: BfqParams,
    bug: Option<Bug>,
    nr_requests: usize,
    /// In the order of the FIFOs.
    items: Vec<Item>,
    /// With the number of the queue; `None` if the request was given up.
    out: Vec<(Queued, Option<u32>)>,
    /// By number. The first is for requests without an owner.
    weights: BTreeMap<u32, u64>,
    classes: [OfClass; 3],
    slice: Option<Slice>,
    nr_orders: u64,
    newest_discard: Option<Tag>,
    now: u64,
}

impl Naive {
    pub(super) fn new(params: BfqParams, nr_requests: usize, bug: Option<Bug>) -> Naive {
        Naive {
            params,
            bug,
            nr_requests,
            items: Vec::new(),
            out: Vec::new(),
            weights: BTreeMap::from([(0, 100)]),
            classes: Default::default(),
            slice: None,
            nr_orders: 0,
            newest_discard: None,
            now: 0,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn order(&mut self) -> u64 {
        self.nr_orders += 1;
        self.nr_orders
    }

    pub(super) fn nr_queued(&self) -> usize {
        self.items.len()
    }

    /// Returns the requests of a queue, without those at the head.
    fn of(&self, class: usize, number: u32) -> impl Iterator<Item = &Item> {
        let is_of = move |item: &&Item| class_of(&item.rq) == class && item.number == number;
        self.items.iter().filter(is_of).filter(|item| !item.is_head)
    }

    fn flow(&self, class: usize, number: u32) -> Flow {
        self.classes[class].flows.get(&number).cloned().unwrap_or_default()
    }

    fn flow_mut(&mut self, class: usize, number: u32) -> &mut Flow {
        self.classes[class].flows.entry(number).or_default()
    }

    fn nr_out(&self, class: usize, number: u32) -> usize {
        let is_of =
            |(rq, of): &&(Queued, Option<u32>)| class_of(rq) == class && *of == Some(number);
        self.out.iter().filter(is_of).count()
    }

    fn make_ready(&mut self, class: usize, number: u32) {
        let (now, order) = (self.classes[class].now, self.order());
        let flow = self.flow_mut(class, number);
        if !flow.is_ready {
            (flow.start, flow.order, flow.is_ready) = (now.max(flow.finish), order, true);
        }
    }

    fn next_flow(&self, class: usize) -> Option<u32> {
        let ready = self.classes[class].flows.iter().filter(|(_, flow)| flow.is_ready);
        ready.min_by_key(|(_, flow)| (flow.start, flow.order)).map(|(number, _)| *number)
    }

    fn charge(&mut self, class: usize, number: u32, bytes: u64) {
        let weight = if self.has(Bug::IgnoreWeight) { 100 } else { self.weights[&number] };
        let keeps = self.of(class, number).next().is_some()
            || self.slice.is_some_and(|it| (it.class, it.number) == (class, number));
        self.make_ready(class, number);
        let first = self.next_flow(class).expect("one is ready");
        self.classes[class].now = self.flow(class, first).start;
        let order = self.order();
        let flow = self.flow_mut(class, number);
        flow.finish = flow.start + bytes * UNIT / weight;
        (flow.start, flow.order, flow.is_ready) = (flow.finish, order, keeps);
        let finish = flow.finish;
        let of_class = &mut self.classes[class];
        of_class.finish_max = of_class.finish_max.max(finish);
        self.note_idle(class);
    }

    fn note_idle(&mut self, class: usize) {
        let of_class = &mut self.classes[class];
        if of_class.flows.values().all(|flow| !flow.is_ready) {
            of_class.now = of_class.now.max(of_class.finish_max);
        }
    }

    pub(super) fn set_weight(&mut self, number: u32, weight: u64) {
        self.weights.insert(number, weight);
    }

    pub(super) fn remove_owner(&mut self, number: u32) {
        for class in 0..3 {
            if self.slice.is_some_and(|it| (it.class, it.number) == (class, number)) {
                self.end_slice();
            }
            self.classes[class].flows.remove(&number);
            self.note_idle(class);
            // In the order of the FIFOs.
            let mut moved: Vec<Item> = self.of(class, number).copied().collect();
            self.items.retain(|item| {
                item.is_head || class_of(&item.rq) != class || item.number != number
            });
            let mut by_start: Vec<usize> = (0..moved.len()).collect();
            by_start.sort_by_key(|nth| (moved[*nth].rq.start, moved[*nth].sorted_at));
            for nth in by_start {
                (moved[nth].number, moved[nth].sorted_at) = (0, self.order());
            }
            if !moved.is_empty() {
                self.make_ready(class, 0);
            }
            self.items.extend(moved);
        }
        self.items.iter_mut().filter(|it| it.number == number).for_each(|it| it.number = 0);
        self.out.iter_mut().filter(|it| it.1 == Some(number)).for_each(|it| it.1 = Some(0));
        self.weights.remove(&number);
    }

    fn awaited_until_ns(&self) -> Option<u64> {
        let Slice { class, number, .. } = self.slice?;
        let flow = self.flow(class, number);
        let idle_ns = self.params.slice_idle_ns;
        let are_equal = self.weights.values().all(|weight| *weight == 100);
        let nr_seeks = flow.seeks.iter().rev().take(32).filter(|is_seek| **is_seek).count();
        let has_given_up = self.out.iter().any(|(_, of)| of.is_none());
        let is_awaited = idle_ns > 0
            && self.of(class, number).next().is_none()
            && !self.has(Bug::NoIdling)
            && (class != 2 || self.has(Bug::AwaitIdleClass))
            && (flow.reads || self.has(Bug::AwaitWrites))
            && flow.think_ns <= idle_ns
            && (!are_equal || nr_seeks <= 19 || self.has(Bug::AwaitSeeks))
            && (!has_given_up || self.has(Bug::AwaitGivenUp))
            && (self.items.len() + self.out.len() < self.nr_requests || self.has(Bug::AwaitTags));
        let until_ns = match self.nr_out(class, number) {
            0 if self.has(Bug::EndlessIdling) => u64::MAX,
            0 => flow.ended_ns.unwrap_or(0) + idle_ns,
            _ => u64::MAX,
        };
        is_awaited.then_some(until_ns)
    }

    pub(super) fn next_at_ns(&self) -> u64 {
        match self.items.is_empty() {
            true => u64::MAX,
            false => self.awaited_until_ns().unwrap_or(u64::MAX),
        }
    }

    fn settle(&mut self) {
        let Some(slice) = self.slice else { return };
        let is_empty = self.of(slice.class, slice.number).next().is_none();
        if is_empty && self.awaited_until_ns().is_none_or(|until_ns| until_ns <= self.now) {
            self.end_slice();
        }
    }

    fn budget(&self) -> u64 {
        u64::from(self.params.max_budget) * 512
    }

    fn end_slice(&mut self) {
        let Some(Slice { class, number, since_ns, bytes }) = self.slice.take() else { return };
        let is_empty = self.of(class, number).next().is_none();
        let ended_ns = self.flow(class, number).ended_ns.unwrap_or(0);
        let until_ns = if is_empty { ended_ns } else { self.now };
        let is_late = until_ns.saturating_sub(since_ns) >= self.params.timeout_sync_ns;
        let is_slow = is_late && bytes < self.budget() / 3 * 2 && !self.has(Bug::CheapTime);
        self.charge(class, number, if is_slow { self.budget() } else { bytes });
    }

    pub(super) fn insert(&mut self, rq: Queued, at: Position, now: u64) {
        self.now = now;
        self.settle();
        let class = class_of(&rq);
        let owner = rq.origin.owner();
        let number = if self.weights.contains_key(&owner) { owner } else { 0 };
        let expire_ns = match rq.op {
            Op::Read => self.params.fifo_expire_sync_ns,
            _ => self.params.fifo_expire_async_ns,
        };
        let is_head = at == Position::Head && !self.has(Bug::IgnoreHead);
        if self.items.iter().all(|item| class_of(&item.rq) != class) {
            self.classes[class].since_ns = now;
        }
        if !is_head {
            let is_quiet =
                self.of(class, number).next().is_none() && self.nr_out(class, number) == 0;
            let idle_ns = self.params.slice_idle_ns;
            let flow = self.flow_mut(class, number);
            if let Some(ended_ns) = flow.ended_ns
                && is_quiet
            {
                let sample_ns = (now - ended_ns).min(2 * idle_ns);
                flow.think_ns = flow.think_ns - flow.think_ns / 8 + sample_ns / 8;
            }
            flow.seeks.push(rq.start.abs_diff(flow.last_end) > 400 << 10);
            flow.last_end = rq.start + rq.len;
            if rq.op == Op::Discard {
                self.newest_discard = Some(rq.tag);
            }
        }
        let (deadline_ns, sorted_at) = (now + expire_ns, self.order());
        self.items.push(Item { rq, number, deadline_ns, is_head, sorted_at });
        if !is_head {
            self.make_ready(class, number);
        }
    }

    pub(super) fn neighbours(&self, rq: &Queued) -> Neighbours {
        let queued = self.items.iter().find(|item| item.rq.tag == rq.tag);
        let owner = rq.origin.owner();
        let known = if self.weights.contains_key(&owner) { owner } else { 0 };
        let number = queued.map_or(known, |item| item.number);
        let mut all: Vec<&Item> = self.of(class_of(rq), number).collect();
        all.sort_by_key(|item| (item.rq.start, item.sorted_at));
        let nearest = all.iter().map(|it| it.rq.start).filter(|start| *start < rq.start).max();
        let alike: Vec<&Queued> =
            all.iter().map(|item| &item.rq).filter(|other| are_alike(rq, other)).collect();
        let is_before =
            |other: &&&Queued| Some(other.start) == nearest && other.start + other.len == rq.start;
        let discard = self.items.iter().find(|it| Some(it.rq.tag) == self.newest_discard);
        Neighbours {
            before: alike.iter().rev().find(is_before).map(|other| other.tag),
            after: alike.iter().find(|it| it.start == rq.start + rq.len).map(|it| it.tag),
            discard: discard.map(|it| &it.rq).filter(|it| are_alike(rq, it)).map(|it| it.tag),
        }
    }

    fn place(&self, tag: Tag) -> usize {
        self.items.iter().position(|item| item.rq.tag == tag).expect("it is queued")
    }

    pub(super) fn grown(&mut self, tag: Tag, start: u64, len: u64) {
        let (place, order) = (self.place(tag), self.order());
        let item = &mut self.items[place];
        if item.rq.start != start {
            item.sorted_at = order;
        }
        (item.rq.start, item.rq.len) = (start, len);
        let (class, number) = (class_of(&item.rq), item.number);
        self.flow_mut(class, number).last_end = start + len;
    }

    pub(super) fn absorbed(&mut self, into: Tag, tag: Tag) {
        let (kept, gone) = (self.place(into), self.place(tag));
        let deadline_ns = self.items[gone].deadline_ns;
        if deadline_ns < self.items[kept].deadline_ns && !self.has(Bug::KeepDeadline) {
            self.items[kept].deadline_ns = deadline_ns;
            self.items.swap(kept, gone);
            self.items.remove(kept);
        } else {
            self.items.remove(gone);
        }
        self.forget_discard(tag);
    }

    fn forget_discard(&mut self, tag: Tag) {
        self.newest_discard = self.newest_discard.filter(|newest| *newest != tag);
    }

    fn has_any(&self, class: usize) -> bool {
        self.items.iter().any(|item| class_of(&item.rq) == class)
    }

    pub(super) fn next(&mut self, now: u64) -> Option<Tag> {
        self.now = now;
        if self.items.is_empty() {
            return None;
        }
        self.settle();
        if let Some(slice) = self.slice
            && (0..slice.class).any(|class| self.has_any(class))
            && !self.has(Bug::KeepSlice)
        {
            self.end_slice();
        }
        for class in [1, 2] {
            let in_service = self.slice.is_some_and(|slice| slice.class < class);
            let is_behind = in_service || (0..class).any(|class| self.has_any(class));
            let has_waited = now - self.classes[class].since_ns >= CLASS_WAIT_NS;
            if is_behind && has_waited && !self.has(Bug::StarveClass) {
                let of_flow = |number| self.choose(class, number, true);
                let head = self.head(class);
                if let Some(tag) = head.or_else(|| self.next_flow(class).and_then(of_flow)) {
                    return Some(self.serve_beside(tag));
                }
            }
        }
        for class in 0..3 {
            if let Some(tag) = self.head(class) {
                return Some(self.serve_beside(tag));
            }
            if let Some(slice) = self.slice.filter(|slice| slice.class == class) {
                let tag = self.choose(class, slice.number, slice.bytes == 0)?;
                let len = self.items[self.place(tag)].rq.len;
                let exceeds = slice.bytes + len > self.budget() && !self.has(Bug::NoBudget);
                let is_late = now - slice.since_ns >= self.params.timeout_sync_ns;
                let is_late = is_late && !self.has(Bug::NoTimeout);
                if slice.bytes == 0 || !exceeds && !is_late {
                    return Some(self.serve(tag));
                }
                self.end_slice();
            }
            if let Some(number) = self.next_flow(class) {
                self.slice = Some(Slice { class, number, since_ns: now, bytes: 0 });
                let tag = self.choose(class, number, true)?;
                return Some(self.serve(tag));
            }
        }
        None
    }

    fn head(&self, class: usize) -> Option<Tag> {
        let is_head = |item: &&Item| item.is_head && class_of(&item.rq) == class;
        self.items.iter().find(is_head).map(|item| item.rq.tag)
    }

    fn choose(&self, class: usize, number: u32, is_first: bool) -> Option<Tag> {
        let expired = self.of(class, number).filter(|item| item.deadline_ns <= self.now);
        let key = |item: &&Item| (item.deadline_ns, item.rq.op != Op::Read);
        let sorted = |item: &&Item| (item.rq.start, item.sorted_at);
        let position = match self.has(Bug::ForgetPosition) {
            true => 0,
            false => self.flow(class, number).position,
        };
        let from = self.of(class, number).filter(|item| item.rq.start >= position);
        let expired = expired.min_by_key(key).filter(|_| is_first && !self.has(Bug::IgnoreExpiry));
        let next = expired
            .or_else(|| from.min_by_key(sorted))
            .or_else(|| self.of(class, number).min_by_key(sorted));
        next.map(|item| item.rq.tag)
    }

    fn serve(&mut self, tag: Tag) -> Tag {
        let Item { rq, number, .. } = self.take(tag);
        let flow = self.flow_mut(class_of(&rq), number);
        (flow.position, flow.reads) = (rq.start + rq.len, rq.op == Op::Read);
        if let Some(slice) = &mut self.slice {
            slice.bytes += rq.len;
        }
        tag
    }

    fn serve_beside(&mut self, tag: Tag) -> Tag {
        let Item { rq, number, is_head, .. } = self.take(tag);
        let is_free = is_head && self.has(Bug::FreeHead);
        self.charge(class_of(&rq), number, if is_free { 0 } else { rq.len });
        tag
    }

    pub(super) fn take_any(&mut self, tag: Tag) {
        let Item { rq, number, is_head, .. } = self.take(tag);
        let class = class_of(&rq);
        let is_empty = self.of(class, number).next().is_none();
        let in_service = self.slice.is_some_and(|it| (it.class, it.number) == (class, number));
        if !is_head && is_empty && !in_service {
            self.flow_mut(class, number).is_ready = false;
            self.note_idle(class);
        }
    }

    fn take(&mut self, tag: Tag) -> Item {
        let item = self.items.remove(self.place(tag));
        self.forget_discard(tag);
        self.out.push((item.rq, Some(item.number)));
        self.classes[class_of(&item.rq)].since_ns = self.now;
        item
    }

    /// Ends the time of a request at the device.
    fn leave(&mut self, tag: Tag) -> usize {
        let place = self.out.iter().position(|(rq, _)| rq.tag == tag).expect("it is out");
        let (rq, number) = self.out[place];
        if let Some(number) = number {
            let now = self.now;
            self.flow_mut(class_of(&rq), number).ended_ns = Some(now);
        }
        place
    }

    pub(super) fn given_up(&mut self, tag: Tag) {
        let place = self.leave(tag);
        self.out[place].1 = None;
    }

    pub(super) fn completed(&mut self, tag: Tag, now: u64) {
        self.now = now;
        let place = self.leave(tag);
        self.out.remove(place);
    }
}
