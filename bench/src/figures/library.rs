//! Figures of the library's calls: blocking reads and multi-gets of several threads beside `pread`
//! and fio's engine `psync`.

use super::{Figure, Program, Side};
use crate::table::{Aim, What};

/// Threads that read blocks at random, with direct I/O.
const ONE: &str = "--rw=randread --bs=4k --thread --group_reporting --numjobs=1";
const EIGHT: &str = "--rw=randread --bs=4k --thread --group_reporting --numjobs=8";

const READ_AT: Side =
    Side { title: "read_at", program: Program::Ring, options: "--ioengine=psync" };

/// Each thread reads sixteen blocks at once: it submits them to its queue, and reaps all of them.
const MULTI_GET: Side = Side {
    title: "multi-get",
    program: Program::Ring,
    options: "--ioengine=io_uring --iodepth=16 --iodepth_batch=16 --iodepth_batch_complete=16",
};

/// The same depth and batches without the library, which shows the most that the disk can do.
const FIO_BATCHES: Side = Side {
    title: "fio io_uring",
    program: Program::Fio,
    options: "--ioengine=io_uring --iodepth=16 --iodepth_batch=16 --iodepth_low=1 \
              --iodepth_batch_complete_min=16",
};

const PREAD: Side = Side { title: "pread", program: Program::Pread, options: "" };
const FIO: Side = Side { title: "fio psync", program: Program::Fio, options: "--ioengine=psync" };

const fn figure(
    title: &'static str,
    load: &'static str,
    a: Side,
    b: Side,
    rows: &'static [(What, Aim)],
) -> Figure {
    Figure { name: "library", title, a, b, load, rows }
}

const NO_AIM: &[(What, Aim)] =
    &[(What::Iops, Aim::None), (What::P99, Aim::None), (What::Cpu, Aim::None)];
const NOT_SLOWER: &[(What, Aim)] =
    &[(What::Iops, Aim::AtLeast(1.0)), (What::P99, Aim::None), (What::Cpu, Aim::None)];
const HALF_MORE: &[(What, Aim)] = &[(What::Iops, Aim::AtLeast(1.5)), (What::Cpu, Aim::None)];

pub(crate) const FIGURES: &[Figure] = &[
    figure(
        "random 4k reads by 8 threads, read_at against pread",
        EIGHT,
        READ_AT,
        PREAD,
        NOT_SLOWER,
    ),
    figure("random 4k reads by 8 threads, read_at against fio psync", EIGHT, READ_AT, FIO, NO_AIM),
    figure(
        "random 4k reads by 1 thread, in queued multi-gets of 16 against pread",
        ONE,
        MULTI_GET,
        PREAD,
        HALF_MORE,
    ),
    figure(
        "random 4k reads by 8 threads, in queued multi-gets of 16 against pread",
        EIGHT,
        MULTI_GET,
        PREAD,
        HALF_MORE,
    ),
    figure(
        "random 4k reads by 8 threads, in queued multi-gets of 16 against fio psync",
        EIGHT,
        MULTI_GET,
        FIO,
        NO_AIM,
    ),
    figure(
        "random 4k reads by 8 threads, in queued multi-gets of 16 against fio io_uring",
        EIGHT,
        MULTI_GET,
        FIO_BATCHES,
        NO_AIM,
    ),
    figure("random 4k reads by 8 threads, fio psync against pread", EIGHT, FIO, PREAD, NO_AIM),
];
