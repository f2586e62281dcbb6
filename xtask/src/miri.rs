//! `cargo xtask miri`: tests in an interpreter that detects undefined behaviour.
//!
//! Tests with threads run with one of [`NR_SEEDS`] seeds, selected by the hash of the commit. A
//! seed selects the schedule, and the old values that a weak load may still return.

use crate::command::Line;
use crate::suite::{self, Suite};
use crate::{Outcome, commit, nightly};

/// Tests with one thread and no `unsafe`: another seed would change nothing. The skipped tests,
/// which are exhaustive or take minutes under Miri, repeat safe code thousands of times.
const ALONE: &[Suite] = &[Suite {
    target: "--package forebay-core --lib",
    names: &[],
    skips: &[
        "accepts_exactly_the_valid_bios_of_one_request",
        "all_short_histories_agree_with_the_model",
        "debug_names_operations_kinds_and_causes",
        "each_bug_in_the_model_makes_a_difference",
        "each_planted_bug_makes_a_difference",
        "exhaustive",
        "counters_that_wrap_around",
        "forgotten_range_counts_as_overlapping",
        "guesses_never_change_a_result",
        "histories_with_much_load_agree_with_the_model",
        "owner::bucket::tests",
        "owner::fair::tests",
        "owner::tree::tests",
        "queues_behave_as_a_map_of_lists",
        "random_histories_agree_with_the_model",
        "random_reader_pays_for_its_time",
        "reader_that_thinks_keeps_its_share",
        "reads_keep_their_target_beside_writes_that_keep_theirs",
        "request_that_passes_counts_as_if_it_had_been_queued",
        "sequential_readers_share_the_bytes_by_weight",
        "usual_number_of_owners_needs_no_growth",
        "writes_of_one_class_wait_for_a_bounded_number_of_reads",
        "writes_that_miss_their_own_target_keep_the_greatest_depth",
    ],
}];

/// Miri is about a hundred times slower, and supports neither io_uring nor madvise.
const THREADS: &[Suite] = &[
    Suite {
        target: "--package forebay --lib",
        names: &["models", "miri", "contract::checked"],
        skips: &[],
    },
    Suite { target: "--package forebay-aio --lib", names: &["ring"], skips: &[] },
    Suite {
        target: "--package forebay --test it",
        names: &["miri", "group_commit", "backends::misbehaving", "drivers::small"],
        // The layer leaks what these leave behind, as it must.
        skips: &["forgotten_request_ends", "late_end_after_the_disk"],
    },
];

/// Allows real clocks, and casts of integers to pointers, as with a driver's user data.
const FLAGS: &str = "-Zmiri-permissive-provenance -Zmiri-disable-isolation";

/// Number of seeds; a CI run takes one of them.
const NR_SEEDS: u32 = 2;

pub(crate) fn run() -> Outcome {
    nightly::install()?;
    miri("setup").run()?;
    // A backtrace of an expected panic would take a second to symbolize.
    let test = miri("test").variable("RUST_BACKTRACE", "0");
    suite::run("miri", ALONE, &test.clone().variable("MIRIFLAGS", FLAGS))?;
    // Without a commit, any seed is as good.
    let seed = commit::number().unwrap_or(0) % NR_SEEDS;
    suite::run("miri", THREADS, &test.variable("MIRIFLAGS", format!("-Zmiri-seed={seed} {FLAGS}")))
}

/// Returns a Miri command. Miri's own build of std is made once, beside the toolchain.
fn miri(arguments: &str) -> Line {
    nightly::cargo(&format!("miri {arguments}"))
        .variable("MIRI_SYSROOT", nightly::place("miri-sysroot"))
}
