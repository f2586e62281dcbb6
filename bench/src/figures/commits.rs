//! Durability figures: many threads that write, wait for durability and share syncs, against as
//! many threads that each call `fdatasync`.
//!
//! The disk of the test machine flushes within microseconds, and its kernel joins flushes as the
//! layer does. So each sync gets an added cost, in one of two ways, the same on both sides:
//!
//! - beside others: threads that call `fdatasync` wait for it concurrently, as with a distant
//!   device that takes any number of flushes at once;
//! - one by one: these threads sleep under a mutex, as with a device that takes one flush at a time
//!   and has no layer above it that joins flushes. With n threads they are n / 2 times slower by
//!   construction, which the titles state.

use super::{Figure, Program, Side};
use crate::table::{Aim, What};
use std::path::{Path, PathBuf};

/// Returns the path of the example that runs both sides. It was built beside the program.
pub(super) fn program(forebay: &Path) -> PathBuf {
    forebay.with_file_name("examples").join("commit_cost")
}

macro_rules! commits {
    (
        $name:literal, $load:literal, $threads:literal, $us:literal, $how:literal,
        $a:expr, $b:expr, $aim:expr
    ) => {
        Figure {
            name: $name,
            title: concat!($load, ", threads: ", $threads, ", added to a sync: ", $us, " us", $how),
            a: $a,
            b: $b,
            load: concat!("--numjobs=", $threads, " --delay_us=", $us),
            rows: &[(What::Iops, $aim), (What::P99, Aim::None), (What::Shared, Aim::None)],
        }
    };
}

/// Threads that append 4 KiB to a log and commit.
macro_rules! log {
    ($threads:literal, $us:literal, together, $aim:expr) => {
        log!($threads, $us, ", beside others", GROUP, ALONE, $aim)
    };
    ($threads:literal, $us:literal, one_by_one, $aim:expr) => {
        log!(
            $threads,
            $us,
            ", one by one; by construction: callers of fdatasync sleep one after another",
            GROUP,
            ALONE_ONE_BY_ONE,
            $aim
        )
    };
    ($threads:literal, $aim:expr) => {
        log!($threads, "0", "", GROUP, ALONE, $aim)
    };
    ($threads:literal, $us:literal, $how:literal, $a:expr, $b:expr, $aim:expr) => {
        commits!("group-commit", "4k appended to a log", $threads, $us, $how, $a, $b, $aim)
    };
}

/// Threads that each write 4 KiB to a disk durably.
macro_rules! durable {
    (random, $threads:literal, $aim:expr) => {
        durable!("random 4k, a file, direct", $threads, "0", "", DURABLE, DIRECT, $aim)
    };
    (adjacent, $threads:literal, $aim:expr) => {
        durable!(
            "adjacent 4k, a file, direct",
            $threads,
            "0",
            "",
            DURABLE_ADJACENT,
            DIRECT_ADJACENT,
            $aim
        )
    };
    (in_two, $threads:literal, $aim:expr) => {
        durable!("random 4k, a file, direct, in two calls", $threads, "0", "", IN_TWO, DIRECT, $aim)
    };
    (psync, $threads:literal, $aim:expr) => {
        durable!("random 4k, psync, direct", $threads, "0", "", PSYNC, DIRECT, $aim)
    };
    ($threads:literal, $us:literal, together, $aim:expr) => {
        durable!(
            "random 4k, a file, direct",
            $threads,
            $us,
            ", beside others",
            DURABLE,
            DIRECT,
            $aim
        )
    };
    ($threads:literal, $us:literal, one_by_one, $aim:expr) => {
        durable!(
            "random 4k, a file, direct",
            $threads,
            $us,
            ", one by one; by construction: callers of fdatasync sleep one after another",
            DURABLE,
            DIRECT_ONE_BY_ONE,
            $aim
        )
    };
    (
        $load:literal, $threads:literal, $us:literal, $how:literal, $a:expr, $b:expr, $aim:expr
    ) => {
        commits!("durable", $load, $threads, $us, $how, $a, $b, $aim)
    };
}

const fn side(title: &'static str, program: Program, options: &'static str) -> Side {
    Side { title, program, options }
}

const GROUP: Side = side("GroupCommit", Program::Log, "--by=group");
const ALONE: Side = side("fdatasync each", Program::Log, "--by=alone");
const ALONE_ONE_BY_ONE: Side =
    side("fdatasync each", Program::Log, "--by=alone --delays=one_by_one");

const DURABLE: Side = side("write_durable_at", Program::Commits, "--by=fua --rw=randwrite");
const DURABLE_ADJACENT: Side = side("write_durable_at", Program::Commits, "--by=fua");
const IN_TWO: Side = side("write_at, durable", Program::Commits, "--by=durable --rw=randwrite");
const PSYNC: Side =
    side("write_durable_at", Program::Commits, "--by=fua --driver=psync --rw=randwrite");
const DIRECT: Side = side("fdatasync each", Program::Commits, "--by=direct --rw=randwrite");
const DIRECT_ADJACENT: Side = side("fdatasync each", Program::Commits, "--by=direct");
const DIRECT_ONE_BY_ONE: Side =
    side("fdatasync each", Program::Commits, "--by=direct --rw=randwrite --delays=one_by_one");

const NOT_SLOWER: Aim = Aim::AtLeast(0.97);
const EIGHTFOLD: Aim = Aim::AtLeast(8.0);

pub(super) const FIGURES: &[Figure] = &[
    log!("1", NOT_SLOWER),
    log!("16", NOT_SLOWER),
    log!("64", NOT_SLOWER),
    log!("1", "1000", one_by_one, Aim::None),
    log!("16", "1000", one_by_one, Aim::None),
    log!("64", "1000", one_by_one, EIGHTFOLD),
    log!("64", "5000", one_by_one, EIGHTFOLD),
    log!("64", "10000", one_by_one, EIGHTFOLD),
    log!("1", "1000", together, Aim::None),
    log!("16", "1000", together, Aim::None),
    log!("64", "1000", together, Aim::None),
    log!("64", "5000", together, Aim::None),
    log!("64", "10000", together, Aim::None),
    durable!(random, "1", NOT_SLOWER),
    durable!(random, "16", NOT_SLOWER),
    durable!(random, "64", NOT_SLOWER),
    durable!(adjacent, "1", NOT_SLOWER),
    durable!(adjacent, "16", NOT_SLOWER),
    durable!(adjacent, "64", NOT_SLOWER),
    durable!(in_two, "1", Aim::None),
    durable!(in_two, "16", Aim::None),
    durable!(in_two, "64", Aim::None),
    durable!(psync, "1", NOT_SLOWER),
    durable!(psync, "16", NOT_SLOWER),
    durable!(psync, "64", NOT_SLOWER),
    durable!("16", "1000", one_by_one, Aim::None),
    durable!("64", "1000", one_by_one, EIGHTFOLD),
    durable!("64", "5000", one_by_one, EIGHTFOLD),
    durable!("64", "10000", one_by_one, EIGHTFOLD),
    durable!("64", "1000", together, Aim::None),
    durable!("64", "5000", together, Aim::None),
    durable!("64", "10000", together, Aim::None),
];
