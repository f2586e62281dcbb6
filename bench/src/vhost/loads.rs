//! The loads for each server, with their aims.

use crate::servers::{self, Medium};

/// One load: random or sequential reads of 4 KiB.
pub(crate) type Load = servers::Load<Job, Aim>;

/// A job of reads.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) rw: &'static str,
    /// The depth of each job.
    pub(crate) depth: u32,
    /// The number of I/Os that a job submits, and reaps, at once.
    pub(crate) batch: u32,
    /// The number of jobs. Each has a queue of its own.
    pub(crate) nr_jobs: u32,
}

/// The aim of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    None,
    /// At least this multiple of the best other server's IOPS.
    Times(f64),
    /// The same, at no more than this multiple of its processor time for an I/O.
    TimesAtCost(f64, f64),
    /// At least this multiple of our own IOPS at another load, at no more than this multiple of its
    /// processor time.
    OfLoad(&'static str, f64, f64),
}

const fn load(
    name: &'static str,
    medium: Medium,
    rw: &'static str,
    (depth, batch, nr_jobs): (u32, u32, u32),
    aim: Aim,
    is_quick: bool,
) -> Load {
    Load { name, medium, work: Job { rw, depth, batch, nr_jobs }, aim, is_quick }
}

const ONE_NULL: &str = "null: random, depth 32";
const ONE_MODEL: &str = "model:nvme: random, depth 32";

use Aim::{OfLoad, Times, TimesAtCost};
use Medium::{Direct, Model, Null};

/// All loads, in the order of the table.
pub(crate) static ALL: &[Load] = &[
    load("null: random, depth 1", Null, "randread", (1, 1, 1), Times(1.2), true),
    load(ONE_NULL, Null, "randread", (32, 1, 1), Times(2.5), true),
    load(
        "null: random, 4 queues of depth 8",
        Null,
        "randread",
        (8, 1, 4),
        OfLoad(ONE_NULL, 0.97, 1.1),
        true,
    ),
    load("direct: random, depth 1", Direct, "randread", (1, 1, 1), TimesAtCost(0.97, 0.9), true),
    load("direct: random, depth 32", Direct, "randread", (32, 1, 1), TimesAtCost(0.97, 0.9), true),
    load(
        "direct: sequential, depth 64, batches of 16",
        Direct,
        "read",
        (64, 16, 1),
        Times(2.0),
        true,
    ),
    load("direct: sequential, depth 64, one by one", Direct, "read", (64, 1, 1), Times(1.3), true),
    load(ONE_MODEL, Model, "randread", (32, 1, 1), Aim::None, false),
    load(
        "model:nvme: random, 4 queues of depth 8",
        Model,
        "randread",
        (8, 1, 4),
        OfLoad(ONE_MODEL, 0.97, f64::INFINITY),
        false,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_aims_exist_and_come_first() {
        for (at, load) in ALL.iter().enumerate() {
            if let Aim::OfLoad(name, ..) = load.aim {
                let other = ALL.iter().position(|other| other.name == name).expect(name);
                assert!(other < at && ALL[other].medium == load.medium, "{}", load.name);
            }
        }
        assert_eq!(servers::chosen_loads(ALL, &[], true).expect("some").len(), 7);
        assert!(servers::chosen_loads(ALL, &["nothing".to_owned()], true).is_err());
    }
}
