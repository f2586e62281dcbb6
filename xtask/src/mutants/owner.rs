//! Memory orderings of the limits and latency goals of owners, one entry for each. All accesses to
//! the level of a bucket are relaxed.

use super::table::mutant;
use super::{Mutant, Unseen};

const SETTING: &str = "owner/bucket/setting.rs";
const TREE: &str = "owner/tree.rs";
const PEERS: &str = "owner/peers.rs";

/// Models.
const ONE_CHANGE: &str = "owner::bucket::models::reader_gets_the_numbers_of_one_change";
const NO_CHANGE_LOST: &str = "owner::bucket::models::no_change_is_lost_unless_it_is_refused";
const NEXT_WINDOW: &str = "owner::peers::models::second_window_continues_the_first";

pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        SETTING,
        "let mut before = self.changes.load(Ordering::Acquire) / 2;",
        "let mut before = self.changes.load(Ordering::Relaxed) / 2;",
        ONE_CHANGE,
    ),
    mutant(SETTING, "fence(Ordering::Acquire);", "// No fence.", ONE_CHANGE),
    mutant(
        SETTING,
        "let after = self.changes.load(Ordering::Acquire) / 2;",
        "let after = self.changes.load(Ordering::Relaxed) / 2;",
        ONE_CHANGE,
    ),
    mutant(
        SETTING,
        "let order = (Ordering::Acquire, Ordering::Relaxed);",
        "let order = (Ordering::Relaxed, Ordering::Relaxed);",
        NO_CHANGE_LOST,
    ),
    mutant(SETTING, "fence(Ordering::Release);", "// No fence.", ONE_CHANGE),
    mutant(
        SETTING,
        "self.changes.store(before.wrapping_add(2), Ordering::Release);",
        "self.changes.store(before.wrapping_add(2), Ordering::Relaxed);",
        ONE_CHANGE,
    ),
    mutant(
        PEERS,
        "let order = (Ordering::Acquire, Ordering::Relaxed);",
        "let order = (Ordering::Relaxed, Ordering::Relaxed);",
        NEXT_WINDOW,
    ),
    mutant(
        PEERS,
        "self.is_ending.store(0, Ordering::Release);",
        "self.is_ending.store(0, Ordering::Relaxed);",
        NEXT_WINDOW,
    ),
];

const ONE_AFTER_ANOTHER: &str = "a change of a bucket begins with a guess, which may be too old \
                                 without this order; under loom no guess is too old";

pub(super) const UNSEEN: &[Unseen] = &[
    Unseen {
        file: TREE,
        from: "let order = (Ordering::Acquire, Ordering::Relaxed);",
        why: ONE_AFTER_ANOTHER,
    },
    Unseen {
        file: TREE,
        from: "self.is_changing.store(0, Ordering::Release);",
        why: ONE_AFTER_ANOTHER,
    },
];
