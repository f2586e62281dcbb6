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
        "exhaustive",
        "counters_that_wrap_around",
        "forgotten_range_counts_as_overlapping",
        "owner::bucket::tests",
        "owner::fair::tests",
        "owner::tree::tests",
        "queues_behave_as_a_map_of_lists",
        "random_histories_agree_with_the_model",
        "sched::bfq::tests",
        "sched::kyber::tests",
        "sched::mq_deadline::tests",
        "sched::recorded",
        "sched::sorted::tests",
        "usual_number_of_owners_needs_no_growth",
    ],
}];

/// Miri is about a hundred times slower, and supports neither io_uring nor madvise.
const THREADS: &[Suite] = &[
    Suite {
        target: "--package forebay --lib",
        names: &["models", "miri", "contract::checked"],
        skips: &[],
    },
    Suite { target: "--package forebay-aio --lib", names: &["ring::tests"], skips: &[] },
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
