//! Models of the tag set: no tag is live twice, lost, or hidden (T7).

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Ghost;

use forebay_core::{Tag, TagSet};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use loom::thread;

use crate::common::explore;

/// A set in which all but a few tags are taken, and the slots of its requests.
struct Table {
    tags: TagSet,
    /// The first tag that has a slot.
    first: usize,
    live: Vec<Ghost>,
    /// The accesses of a tag's owner to its slot. They are Relaxed: the tag set must order them.
    slots: Vec<AtomicU32>,
}

impl Table {
    /// Creates a set with two words of 64 and 2 tags. One tag of the first word is free, and
    /// `nr_free_second` tags of the second.
    fn new(nr_free_second: u32) -> Arc<Table> {
        let tags = TagSet::new(66);
        assert!(tags.try_get_exact(63, &mut 0, &mut |_| ()).is_ok());
        assert!(tags.try_get_exact(2 - nr_free_second, &mut 1, &mut |_| ()).is_ok());
        Table::of(tags, 63)
    }

    /// Creates a table with three slots, starting at tag `first`.
    fn of(tags: TagSet, first: usize) -> Arc<Table> {
        let live = (0..3).map(|_| Ghost::new(0)).collect();
        let slots = (0..3).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Table { tags, first, live, slots })
    }

    /// Checks and records a tag that was got: no other thread owns it, and its last owner's changes
    /// of the slot are visible.
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

    /// Gets a tag and puts it. Returns how many tags were got.
    fn use_one(&self, mut hint: u32) -> u32 {
        let tag = self.tags.try_get(&mut hint).map(|tag| self.note(tag));
        tag.into_iter().for_each(|tag| self.tags.put(self.forget(tag)));
        u32::from(tag.is_some())
    }

    /// Gets up to two tags (with `all`: two or none), and puts them in one batch. Returns their
    /// number.
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

/// Two words, two free tags, three threads that get one tag and put it: no tag is live twice, none
/// is lost, and each owner sees all changes of the last one.
#[test]
fn three_threads_share_two_words() {
    let steps: [Step; 3] =
        [|table| table.use_one(0), |table| table.use_one(1), |table| table.use_one(0)];
    check(1, None, steps, 3);
}

/// As above, but one thread gets up to two tags and puts them in a batch. Bound 5: 4 s.
#[test]
fn batches_and_single_tags_mix() {
    let steps: [Step; 3] =
        [|table| table.use_two(0, false), |table| table.use_one(1), |table| table.use_one(0)];
    check(2, Some(5), steps, 3);
}

/// As above, but two threads get two tags or none: tags held in vain are put back. Bound 3.
#[test]
fn all_or_nothing_loses_nothing() {
    let steps: [Step; 3] =
        [|table| table.use_two(0, true), |table| table.use_two(1, true), |table| table.use_one(1)];
    check(1, Some(3), steps, 3);
}

/// T7: tags that are free all the time are found, whatever other allocators do at that moment.
/// There are two free tags and two allocators, and each gets one.
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

/// Resizes a set down and up again, while two other threads use it: no tag is lost, and each owner
/// sees the last owner's changes. Tag 1 is in use at first. `steps` are those of the other threads,
/// and receive it.
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

/// As above, with a thread that gets a tag. This may be the tag that was put, and too high. Bound
/// 4.
#[test]
fn a_get_against_two_resizes_loses_nothing() {
    let put: fn(&Table, Tag) = |table, high| table.tags.put(table.forget(high));
    let get: fn(&Table, Tag) = |table, _| {
        table.use_one(0);
    };
    check_resize(Some(4), [put, get]);
}

/// Once a shrink has ended, no tag that is too high is given out, even if it was put meanwhile. A
/// grow brings it back, with all changes of its last owner.
#[test]
fn tags_above_the_depth_are_not_given_out() {
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
/// freed bits from one word to the other holds all of them meanwhile, and the other allocator finds
/// none.
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
