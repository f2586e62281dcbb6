//! The tag set: no tag live twice, none lost, none hidden (T7).

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Ghost;

use forebay_core::{Tag, TagSet};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use loom::thread;

use crate::common::explore;

/// A set of which all but a few tags were taken beforehand, and the slots of its requests.
struct Table {
    tags: TagSet,
    /// The first tag that has a slot.
    first: usize,
    live: Vec<Ghost>,
    /// What the owner of a tag does with its slot, without any order of its own.
    slots: Vec<AtomicU32>,
}

impl Table {
    /// Two words of 64 and 2 tags; of the first word one is free, of the second `nr_free_second`.
    fn new(nr_free_second: u32) -> Arc<Table> {
        let tags = TagSet::new(66);
        assert!(tags.try_get_exact(63, &mut 0, &mut |_| ()).is_ok());
        assert!(tags.try_get_exact(2 - nr_free_second, &mut 1, &mut |_| ()).is_ok());
        Table::of(tags, 63)
    }

    /// Three slots, from tag `first` on.
    fn of(tags: TagSet, first: usize) -> Arc<Table> {
        let live = (0..3).map(|_| Ghost::new(0)).collect();
        let slots = (0..3).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Table { tags, first, live, slots })
    }

    /// Takes note of a tag that was got: it is nobody else's, and all that its last owner did with
    /// the slot has been seen.
    fn note(&self, tag: Tag) -> Tag {
        let place = tag.index() - self.first;
        assert_eq!(self.live[place].fetch_add(1, Relaxed), 0, "a tag is live twice");
        let nr_uses = self.slots[place].load(Relaxed);
        self.slots[place].store(nr_uses + 1, Relaxed);
        tag
    }

    fn forget(&self, tag: Tag) -> Tag {
        self.live[tag.index() - self.first].fetch_sub(1, Relaxed);
        tag
    }

    /// One get and put; returns how many tags were got.
    fn use_one(&self, mut hint: u32) -> u32 {
        let tag = self.tags.try_get(&mut hint).map(|tag| self.note(tag));
        tag.into_iter().for_each(|tag| self.tags.put(self.forget(tag)));
        u32::from(tag.is_some())
    }

    /// Gets two, or none if `all`, and puts them in one batch.
    fn use_two(&self, mut hint: u32, all: bool) -> u32 {
        let mut got = Vec::new();
        let mut out = |tag| got.push(self.note(tag));
        if all {
            _ = self.tags.try_get_exact(2, &mut hint, &mut out);
        } else {
            self.tags.try_get_many(2, &mut hint, &mut out);
        }
        let nr = got.len() as u32;
        self.tags.put_many(got.into_iter().map(|tag| self.forget(tag)));
        nr
    }
}

type Step = fn(&Table) -> u32;

fn check(nr_free_second: u32, bound: Option<usize>, steps: [Step; 3], nr_threads: usize) {
    explore(bound, move || {
        let table = Table::new(nr_free_second);
        let spawn = |step: Step| {
            let table = table.clone();
            thread::spawn(move || step(&table))
        };
        let others: Vec<_> = steps[1..nr_threads].iter().map(|step| spawn(*step)).collect();
        let mut nr_got = steps[0](&table);
        nr_got += others.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>();
        assert_eq!(table.tags.nr_free(), 1 + nr_free_second, "a tag was lost");
        let nr_uses: u32 = table.slots.iter().map(|slot| slot.load(Relaxed)).sum();
        assert_eq!(nr_uses, nr_got, "an owner did not see what the last one did");
    });
}

/// Two words, two free tags, three threads that get one and put it: no tag is live twice, none is
/// lost, and each owner sees all that the last one did.
#[test]
fn three_threads_share_two_words() {
    let steps: [Step; 3] =
        [|table| table.use_one(0), |table| table.use_one(1), |table| table.use_one(0)];
    check(1, None, steps, 3);
}

/// The same when one gets what it can of two and puts it in a batch. Bound 5: 4 s.
#[test]
fn batches_and_single_tags_mix() {
    let steps: [Step; 3] =
        [|table| table.use_two(0, false), |table| table.use_one(1), |table| table.use_one(0)];
    check(2, Some(5), steps, 3);
}

/// The same when two get all or nothing: what was held in vain is put back. Bound 3.
#[test]
fn all_or_nothing_loses_nothing() {
    let steps: [Step; 3] =
        [|table| table.use_two(0, true), |table| table.use_two(1, true), |table| table.use_one(1)];
    check(1, Some(3), steps, 3);
}

/// T7: tags that are free all the time are found, whatever other allocators do at that moment: two
/// free tags and two allocators, neither of which goes away with nothing.
#[test]
fn a_free_tag_is_never_hidden() {
    let get: Step = |table| {
        let tag = table.tags.try_get(&mut 1);
        table.note(tag.expect("a free tag was missed"));
        table.tags.put(table.forget(tag.unwrap()));
        1
    };
    check(1, None, [get, get, get], 2);
}

/// A set that becomes smaller and larger again, between two others: nothing is lost, and nothing is
/// handed on unseen. Tag 1 is in use at first; `steps` are those of the others, and get it.
fn check_resize(bound: Option<usize>, steps: [fn(&Table, Tag); 2]) {
    explore(bound, move || {
        let table = Table::of(TagSet::new(2), 0);
        let low = table.note(table.tags.try_get(&mut 0).unwrap());
        let high = table.note(table.tags.try_get(&mut 0).unwrap());
        table.tags.put(table.forget(low));
        let others = steps.map(|step| {
            let table = table.clone();
            thread::spawn(move || step(&table, high))
        });
        table.tags.resize(1);
        table.tags.resize(2);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((table.tags.nr_free(), table.tags.nr_busy()), (2, 0), "a tag was lost");
        let got: Vec<Tag> = std::iter::from_fn(|| table.tags.try_get(&mut 0)).collect();
        assert!(got.into_iter().map(|tag| table.note(tag).index()).eq(0..2));
    });
}

/// A tag that is put while the depth falls below it and rises again is free in the end, wherever it
/// was meanwhile.
#[test]
fn a_put_against_two_resizes_loses_nothing() {
    let put: fn(&Table, Tag) = |table, high| table.tags.put(table.forget(high));
    check_resize(None, [put, |_, _| ()]);
}

/// The same with one that gets a tag, which may be the one that was put, and too high. Bound 4.
#[test]
fn a_get_against_two_resizes_loses_nothing() {
    let put: fn(&Table, Tag) = |table, high| table.tags.put(table.forget(high));
    let get: fn(&Table, Tag) = |table, _| {
        table.use_one(0);
    };
    check_resize(Some(4), [put, get]);
}

/// Once a shrink has ended, nothing is given out that is too high, though it was put meanwhile; and
/// a grow brings it back, with all that its last owner did.
#[test]
fn what_is_too_high_is_not_given_out() {
    explore(None, || {
        let table = Table::of(TagSet::new(2), 0);
        let low = table.note(table.tags.try_get(&mut 0).unwrap());
        let high = table.note(table.tags.try_get(&mut 0).unwrap());
        let other = table.clone();
        let thread = thread::spawn(move || other.tags.put(other.forget(high)));
        table.tags.resize(1);
        assert_eq!(table.tags.try_get(&mut 0), None, "a tag that is too high was given out");
        table.tags.put(table.forget(low));
        thread.join().unwrap();
        table.tags.resize(2);
        let mut got = 0;
        table.tags.try_get_many(2, &mut 0, &mut |tag| got += u32::from(table.note(tag) == high));
        assert_eq!(got, 1);
        assert_eq!(table.slots[1].load(Relaxed), 2, "an owner did not see what the last one did");
    });
}

/// T7, planted: lazy clearing as `sbitmap` had it without its lock. The allocator that moves the
/// freed bits from one word to the other holds all of them meanwhile, and the other finds none.
#[test]
#[should_panic(expected = "a free tag was missed")]
fn planted_freed_bits_are_moved_in_two_steps() {
    use loom::sync::atomic::Ordering::{Acquire, Release};
    fn get(used: &AtomicU64, cleared: &AtomicU64) -> Option<u64> {
        loop {
            let free = !used.load(Relaxed);
            let bit = free & free.wrapping_neg();
            if bit != 0 && used.fetch_or(bit, Acquire) & bit == 0 {
                return Some(bit);
            }
            if bit == 0 {
                let freed = cleared.swap(0, Acquire);
                if freed == 0 {
                    return None;
                }
                used.fetch_and(!freed, Release);
            }
        }
    }
    explore(None, || {
        let words = Arc::new((AtomicU64::new(u64::MAX), AtomicU64::new(0b11)));
        let other = words.clone();
        let thread = thread::spawn(move || get(&other.0, &other.1));
        let got = get(&words.0, &words.1);
        let tags = (got, thread.join().unwrap());
        assert!(tags.0.is_some() && tags.1.is_some(), "a free tag was missed");
        assert_ne!(tags.0, tags.1);
    });
}

/// Planted: two threads put the same tag, which only one of them got.
#[test]
#[should_panic(expected = "put twice")]
fn planted_a_tag_is_put_twice() {
    explore(None, || {
        let table = Table::new(1);
        let tag = table.tags.try_get(&mut 0).unwrap();
        let other = table.clone();
        let thread = thread::spawn(move || other.tags.put(tag));
        table.tags.put(tag);
        thread.join().unwrap();
    });
}
