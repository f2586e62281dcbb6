//! Memory orderings of the core, one entry for each: those of the run word, delayed runs and tags.

use super::{Mutant, Unseen};

/// Files in which the table must cover every ordering.
pub(super) const FILES: [&str; 14] = [
    "durability.rs",
    "owner/bucket.rs",
    "owner/bucket/setting.rs",
    "owner/peers.rs",
    "owner/tree.rs",
    "retry/counts.rs",
    "retry/mod.rs",
    "run_state.rs",
    "run_timer.rs",
    "tag/bitmap.rs",
    "tag/bitmap/word.rs",
    "tag/bitmap/resize.rs",
    "tag/count.rs",
    "wait/cell.rs",
];

pub(super) const fn mutant(
    file: &'static str,
    from: &'static str,
    to: &'static str,
    test: &'static str,
) -> Mutant {
    Mutant { file, from, to, test }
}

const TAKE_ONE: &str = "\
            // Acquire: as in `take`.
            let before = self.0.fetch_and(!wanted, Ordering::Acquire);";
const TAKE: &str = "\
            let wanted = lowest(free, nr - taken.count_ones());
            let before = self.0.fetch_and(!wanted, Ordering::Acquire);";
const GIVE: &str = "self.0.fetch_or(bits, Ordering::Release)";
const GROWN: &str = "\
        fence(Ordering::SeqCst);
        for (index, word)";
const PARKED: &str = "\
        parked.give(high);
        fence(Ordering::SeqCst);";
const ANNOUNCE: &str = "\
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);";
const LOOK: &str = "\
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0";

/// Loom treats SeqCst accesses as AcqRel, so the mutants weaken these from AcqRel.
const CHANGE: &str = "\
            let next = to(word);
            let order = (Ordering::SeqCst, Ordering::Relaxed);";
const RELEASE: &str = "\
        // The common case: no mark, no leader, all gates open.
        let order = (Ordering::SeqCst, Ordering::Relaxed);";
const TRY_TAKE_IDLE: &str = "\
    pub fn try_take_idle(&self) -> bool {
        let order = (Ordering::SeqCst, Ordering::Relaxed);";
const TRY_TAKE: &str = "self.word.fetch_or(RUNNING, Ordering::SeqCst) & RUNNING == 0";

const DELAY: &str = "self.at_ns.fetch_min(at_ns, Ordering::AcqRel) > at_ns";
const BEGIN: &str = "&& self.at_ns.swap(NONE, Ordering::AcqRel) != NONE";
const BEGIN_IF_DUE: &str = "let order = (Ordering::AcqRel, Ordering::Relaxed);";

pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        "tag/bitmap/word.rs",
        TAKE_ONE,
        "let before = self.0.fetch_and(!wanted, Ordering::Relaxed);",
        "tags::three_threads_share_two_words",
    ),
    mutant(
        "tag/bitmap/word.rs",
        TAKE,
        "let wanted = lowest(free, nr - taken.count_ones());
            let before = self.0.fetch_and(!wanted, Ordering::Relaxed);",
        "tags::batches_and_single_tags_mix",
    ),
    mutant(
        "tag/bitmap/word.rs",
        GIVE,
        "self.0.fetch_or(bits, Ordering::Relaxed)",
        "tags::three_threads_share_two_words",
    ),
    mutant(
        "tag/bitmap/resize.rs",
        GROWN,
        "for (index, word)",
        "tags::a_put_against_two_resizes_loses_nothing",
    ),
    mutant(
        "tag/bitmap/resize.rs",
        PARKED,
        "parked.give(high);",
        "tags::a_put_against_two_resizes_loses_nothing",
    ),
    mutant(
        "tag/count.rs",
        ANNOUNCE,
        "self.count.fetch_add(1, Ordering::Relaxed);",
        "waits::one_waiter_and_one_waker",
    ),
    mutant(
        "tag/count.rs",
        ANNOUNCE,
        "self.count.fetch_add(1, Ordering::Relaxed); fence(Ordering::AcqRel);",
        "waits::one_waiter_and_one_waker",
    ),
    mutant(
        "tag/count.rs",
        LOOK,
        "self.count.load(Ordering::Relaxed) != 0",
        "waits::one_waiter_and_one_waker",
    ),
    mutant(
        "tag/count.rs",
        LOOK,
        "fence(Ordering::AcqRel); self.count.load(Ordering::Relaxed) != 0",
        "waits::one_waiter_and_one_waker",
    ),
    mutant(
        "run_state.rs",
        CHANGE,
        "let next = to(word);
            let order = (Ordering::Acquire, Ordering::Relaxed);",
        "run_state::two_producers_lose_nothing",
    ),
    mutant(
        "run_state.rs",
        CHANGE,
        "let next = to(word);
            let order = (Ordering::Release, Ordering::Relaxed);",
        "leader::a_leader_hands_off_to_a_follower",
    ),
    mutant(
        "run_state.rs",
        RELEASE,
        "let order = (Ordering::Acquire, Ordering::Relaxed);",
        "run_state::two_producers_lose_nothing",
    ),
    mutant(
        "run_state.rs",
        TRY_TAKE_IDLE,
        "pub fn try_take_idle(&self) -> bool {
        let order = (Ordering::Release, Ordering::Relaxed);",
        "run_state::an_idle_context_is_taken_with_its_gates_open",
    ),
    mutant(
        "run_state.rs",
        TRY_TAKE,
        "self.word.fetch_or(RUNNING, Ordering::Release) & RUNNING == 0",
        "run_state::changes_of_a_holder_are_visible_to_the_next",
    ),
    mutant(
        "run_state.rs",
        "self.word.load(Ordering::Acquire)",
        "self.word.load(Ordering::Relaxed)",
        "run_state::quiesce_against_run",
    ),
    mutant(
        "run_timer.rs",
        DELAY,
        "self.at_ns.fetch_min(at_ns, Ordering::Acquire) > at_ns",
        "run_timer::two_runs_at_once_lose_nothing",
    ),
    mutant(
        "run_timer.rs",
        BEGIN_IF_DUE,
        "let order = (Ordering::Release, Ordering::Relaxed);",
        "run_timer::two_runs_at_once_lose_nothing",
    ),
    mutant(
        "run_timer.rs",
        BEGIN,
        "&& self.at_ns.swap(NONE, Ordering::Release) != NONE",
        "run_timer::a_run_for_another_reason_makes_the_delayed_run_or_leaves_its_mark",
    ),
];

/// Orderings whose weakening no model detects.
pub(super) const UNSEEN: &[Unseen] = &[
    Unseen {
        file: "run_state.rs",
        from: "self.word.load(Ordering::SeqCst)",
        why: "the holder has acquired by taking the token; SeqCst is for a thread that freezes and \
              counts entries in another word, and loom takes such accesses for AcqRel",
    },
    Unseen {
        file: "run_state.rs",
        from: RELEASE,
        why: "that it acquires: it found no mark, so nothing is read after it; earlier releases \
              stay in the word for the next holder",
    },
    Unseen {
        file: "run_state.rs",
        from: TRY_TAKE_IDLE,
        why: "that it releases: the owner takes the token before it changes the context, and \
              its release publishes the changes",
    },
    Unseen {
        file: "run_state.rs",
        from: TRY_TAKE,
        why: "that it releases: a thread that only helps has published nothing",
    },
    Unseen {
        file: "run_state.rs",
        from: CHANGE,
        why: "that it is SeqCst and not AcqRel: as the load of `gates`",
    },
    Unseen {
        file: "run_timer.rs",
        from: DELAY,
        why: "that it acquires: a thread that requests a run reads nothing after it; any change \
              carries on what those before it have released",
    },
    Unseen {
        file: "run_timer.rs",
        from: BEGIN,
        why: "that it releases: a thread that runs has published nothing with this step",
    },
    Unseen { file: "run_timer.rs", from: BEGIN_IF_DUE, why: "that it releases: as `begin`" },
    Unseen {
        file: "run_timer.rs",
        from: "self.at_ns.swap(NONE, Ordering::AcqRel);",
        why: "a thread that cancels reads nothing after it and has published nothing: the word of \
              the gate orders the effects of a stop",
    },
    Unseen {
        file: "run_timer.rs",
        from: "self.at_ns.load(Ordering::Acquire)",
        why: "it only gives the time to sleep; all work after the sleep begins with `begin`",
    },
];
