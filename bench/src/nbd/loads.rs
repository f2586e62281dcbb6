//! The loads for each server, with their aims.

use crate::servers::{self, Medium};

/// One load.
pub(crate) type Load = servers::Load<Work, Aim>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    Fio(Job),
    /// `nbdcopy` from the server to `null:`.
    CopyOut,
    /// `nbdcopy` of a file to the server.
    CopyIn,
    /// This many connections that read once and then idle.
    Idle(usize),
}

/// A fio job. Each of the `nr_jobs` clients has one process and one connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) rw: &'static str,
    pub(crate) bs: &'static str,
    pub(crate) depth: u32,
    pub(crate) nr_jobs: u32,
}

/// The aim of a load, relative to the best of the other servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    None,
    /// At least this multiple of the best server's I/Os per second. If the client's thread is the
    /// limit: its limit, at half the best server's CPU time for each I/O.
    Times(f64),
    /// The lowest p50 and p99, within the project's tolerance.
    Latency,
    /// As many I/Os per second as `forebay` with one connection, within the tolerance.
    NotBelowOne,
    /// At most this many MiB.
    MaxMib(f64),
}

const fn fio(
    name: &'static str,
    medium: Medium,
    (rw, bs): (&'static str, &'static str),
    (depth, nr_jobs): (u32, u32),
    aim: Aim,
    is_quick: bool,
) -> Load {
    Load { name, medium, work: Work::Fio(Job { rw, bs, depth, nr_jobs }), aim, is_quick }
}

const SEQ: Aim = Aim::Times(2.0);
const RANDOM: Aim = Aim::Times(1.3);
const LARGE: Aim = Aim::Times(1.2);
const NULL: Aim = Aim::Times(1.5);

use Medium::{Cached, Direct, Folios, Null};

/// All loads, in the order of the table.
pub(crate) static ALL: &[Load] = &[
    fio("sequential 4k reads, depth 1", Cached, ("read", "4k"), (1, 1), Aim::Latency, true),
    fio("sequential 4k writes, depth 1", Cached, ("write", "4k"), (1, 1), Aim::Latency, false),
    fio("random 4k reads, depth 1", Cached, ("randread", "4k"), (1, 1), Aim::Latency, false),
    fio("random 4k writes, depth 1", Cached, ("randwrite", "4k"), (1, 1), Aim::Latency, false),
    fio("sequential 4k reads, depth 32", Cached, ("read", "4k"), (32, 1), SEQ, true),
    fio("sequential 4k writes, depth 32", Cached, ("write", "4k"), (32, 1), SEQ, true),
    fio("sequential 4k reads, depth 128", Cached, ("read", "4k"), (128, 1), SEQ, false),
    fio("sequential 4k writes, depth 128", Cached, ("write", "4k"), (128, 1), SEQ, false),
    fio("random 4k reads, depth 32", Cached, ("randread", "4k"), (32, 1), RANDOM, true),
    fio("random 4k writes, depth 32", Cached, ("randwrite", "4k"), (32, 1), RANDOM, true),
    fio("sequential 128k reads, depth 8", Cached, ("read", "128k"), (8, 1), LARGE, true),
    fio("sequential 128k writes, depth 8", Cached, ("write", "128k"), (8, 1), LARGE, true),
    fio("sequential 4k reads, depth 32, 2 clients", Cached, ("read", "4k"), (32, 2), SEQ, false),
    fio("sequential 4k writes, depth 32, 2 clients", Cached, ("write", "4k"), (32, 2), SEQ, false),
    fio("random 4k reads, depth 32, 2 clients", Cached, ("randread", "4k"), (32, 2), RANDOM, false),
    fio(
        "random 4k writes, depth 32, 2 clients",
        Cached,
        ("randwrite", "4k"),
        (32, 2),
        RANDOM,
        false,
    ),
    fio("sequential 4k reads, depth 32, 4 clients", Cached, ("read", "4k"), (32, 4), ONE, true),
    fio("sequential 4k writes, depth 32, 4 clients", Cached, ("write", "4k"), (32, 4), ONE, false),
    fio("random 4k reads, depth 32, 4 clients", Cached, ("randread", "4k"), (32, 4), ONE, true),
    fio("random 4k writes, depth 32, 4 clients", Cached, ("randwrite", "4k"), (32, 4), ONE, false),
    fio("sequential 128k reads, depth 8, 4 clients", Cached, ("read", "128k"), (8, 4), ONE, false),
    fio(
        "sequential 128k writes, depth 8, 4 clients",
        Cached,
        ("write", "128k"),
        (8, 4),
        ONE,
        false,
    ),
    fio("folios: sequential 4k writes, depth 32", Folios, ("write", "4k"), (32, 1), SEQ, true),
    fio("folios: sequential 4k writes, depth 128", Folios, ("write", "4k"), (128, 1), SEQ, false),
    fio("folios: random 4k writes, depth 32", Folios, ("randwrite", "4k"), (32, 1), RANDOM, false),
    fio("folios: sequential 128k reads, depth 8", Folios, ("read", "128k"), (8, 1), LARGE, true),
    fio("folios: sequential 128k writes, depth 8", Folios, ("write", "128k"), (8, 1), LARGE, true),
    fio("null: sequential 4k reads, depth 32", Null, ("read", "4k"), (32, 1), NULL, true),
    fio("null: sequential 4k writes, depth 32", Null, ("write", "4k"), (32, 1), NULL, true),
    fio(
        "null: random 4k reads, depth 32, 4 clients",
        Null,
        ("randread", "4k"),
        (32, 4),
        NULL,
        false,
    ),
    fio(
        "direct: random 4k reads, depth 1",
        Direct,
        ("randread", "4k"),
        (1, 1),
        Aim::Latency,
        false,
    ),
    fio("direct: sequential 4k reads, depth 32", Direct, ("read", "4k"), (32, 1), SEQ, true),
    fio("direct: sequential 4k writes, depth 32", Direct, ("write", "4k"), (32, 1), SEQ, false),
    fio("direct: sequential 4k reads, depth 128", Direct, ("read", "4k"), (128, 1), SEQ, false),
    fio("direct: random 4k reads, depth 32", Direct, ("randread", "4k"), (32, 1), RANDOM, true),
    fio("direct: random 4k writes, depth 32", Direct, ("randwrite", "4k"), (32, 1), RANDOM, false),
    fio("direct: sequential 128k reads, depth 8", Direct, ("read", "128k"), (8, 1), LARGE, false),
    Load {
        name: "nbdcopy from the server",
        medium: Cached,
        work: Work::CopyOut,
        aim: Aim::None,
        is_quick: true,
    },
    Load {
        name: "nbdcopy to the server",
        medium: Cached,
        work: Work::CopyIn,
        aim: Aim::None,
        is_quick: true,
    },
    Load {
        name: "memory with 100 idle connections",
        medium: Cached,
        work: Work::Idle(100),
        aim: Aim::MaxMib(64.0),
        is_quick: true,
    },
];

const ONE: Aim = Aim::NotBelowOne;

impl Load {
    /// Returns the same job with one client.
    pub(crate) fn with_one_client(&self) -> Option<Work> {
        match self.work {
            Work::Fio(job) => Some(Work::Fio(Job { nr_jobs: 1, ..job })),
            _ => None,
        }
    }
}
