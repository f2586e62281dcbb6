//! Figures of the library's calls: blocking reads and multi-gets of several threads beside `pread`
//! and fio's engine `psync`.

use super::{Figure, Program, Side};
use crate::table::{Aim, What};

/// Eight threads that read blocks at random, with direct I/O.
const LOAD: &str = "--rw=randread --bs=4k --thread --group_reporting --numjobs=8";

const READ_AT: Side =
    Side { title: "read_at", program: Program::Ring, options: "--ioengine=psync" };

/// Each thread reads sixteen blocks at once: it submits them to its queue, and reaps all of them.
const MULTI_GET: Side = Side {
    title: "multi-get",
    program: Program::Ring,
    options: "--ioengine=io_uring --iodepth=16 --iodepth_batch=16 --iodepth_batch_complete=16",
};

const PREAD: Side = Side { title: "pread", program: Program::Pread, options: "" };
const FIO: Side = Side { title: "fio psync", program: Program::Fio, options: "--ioengine=psync" };

const fn figure(title: &'static str, a: Side, b: Side, rows: &'static [(What, Aim)]) -> Figure {
    Figure { name: "library", title, a, b, load: LOAD, rows }
}

const NO_AIM: &[(What, Aim)] = &[(What::Iops, Aim::None), (What::P99, Aim::None)];

pub(crate) const FIGURES: &[Figure] = &[
    figure(
        "random 4k reads by 8 threads, read_at against pread",
        READ_AT,
        PREAD,
        &[(What::Iops, Aim::AtLeast(1.0)), (What::P99, Aim::None)],
    ),
    figure("random 4k reads by 8 threads, read_at against fio psync", READ_AT, FIO, NO_AIM),
    figure(
        "random 4k reads by 8 threads, in queued multi-gets of 16 against pread",
        MULTI_GET,
        PREAD,
        &[(What::Iops, Aim::AtLeast(1.5))],
    ),
    figure(
        "random 4k reads by 8 threads, in queued multi-gets of 16 against fio psync",
        MULTI_GET,
        FIO,
        &[(What::Iops, Aim::None)],
    ),
    figure("random 4k reads by 8 threads, fio psync against pread", FIO, PREAD, NO_AIM),
];
