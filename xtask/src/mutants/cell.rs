//! Memory orderings of the core, one entry for each: those of the wait cell.

use super::table::mutant;
use super::{Mutant, Unseen};

const FILE: &str = "wait/cell.rs";

const AWAITED: &str = "wait::cell::models::owner_sees_a_delivery_with_its_bio_or_is_woken";
const BELOW: &str = "wait::cell::models::delivery_below_the_goal_does_not_wake";
const TAGS: &str = "wait::cell::models::owner_that_waits_for_tags_sees_them_or_is_woken";
const BATON: &str = "wait::cell::models::owner_that_receives_the_baton_sees_the_work_before";
const LISTED: &str =
    "wait::cell::models::owner_that_is_listed_already_is_seen_by_the_thread_that_unlists_it";
const FREED: &str = "wait::cell::models::cell_is_freed_once_by_the_last_to_access_it";

const DELIVER: &str = "compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)";
const BEGIN: &str = "self.word.fetch_or(state as u64, Ordering::AcqRel)";
const ABANDON: &str = "let swap = (Ordering::AcqRel, Ordering::Acquire);";
const TOUCH: &str = "self.word.fetch_or(0, Ordering::AcqRel)";

pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        FILE,
        "guess!(self.word, Ordering::Acquire)",
        "guess!(self.word, Ordering::Relaxed)",
        BELOW,
    ),
    mutant(
        FILE,
        DELIVER,
        "compare_exchange(old, new, Ordering::Acquire, Ordering::Acquire)",
        AWAITED,
    ),
    mutant(FILE, DELIVER, "compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)", BELOW),
    mutant(
        FILE,
        "self.word.load(Ordering::Acquire) >> STATE_BITS",
        "self.word.load(Ordering::Relaxed) >> STATE_BITS",
        AWAITED,
    ),
    mutant(FILE, BEGIN, "self.word.fetch_or(state as u64, Ordering::Acquire)", BELOW),
    mutant(FILE, BEGIN, "self.word.fetch_or(state as u64, Ordering::Release)", TAGS),
    mutant(
        FILE,
        "fetch_and(!STATE_MASK, Ordering::AcqRel)",
        "fetch_and(!STATE_MASK, Ordering::Release)",
        BATON,
    ),
    mutant(FILE, ABANDON, "let swap = (Ordering::Acquire, Ordering::Acquire);", FREED),
    mutant(FILE, ABANDON, "let swap = (Ordering::AcqRel, Ordering::Relaxed);", FREED),
    mutant(FILE, "swap(1, Ordering::AcqRel)", "swap(1, Ordering::Acquire)", LISTED),
    mutant(FILE, "swap(0, Ordering::AcqRel)", "swap(0, Ordering::Release)", LISTED),
    mutant(FILE, TOUCH, "self.word.fetch_or(0, Ordering::Acquire)", TAGS),
    mutant(FILE, TOUCH, "self.word.fetch_or(0, Ordering::Release)", TAGS),
];

pub(super) const UNSEEN: &[Unseen] = &[
    Unseen {
        file: FILE,
        from: "WaitState::of(self.word.load(Ordering::Acquire))",
        why: "callers use the state alone; counts and the end of a wait are acquired by other \
              reads of the word",
    },
    Unseen {
        file: FILE,
        from: "compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire)",
        why: "the `fetch_or` before it has released and acquired the word; an owner that began \
              another wait since then sees the cleared flag itself",
    },
];
