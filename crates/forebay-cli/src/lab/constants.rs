//! The constants of the models, with the published rows that each was fitted to.
//!
//! A row that a constant was fitted to confirms nothing. All other rows in virtual time are
//! predictions.

use forebay_sim::lab::{Costs, RunCosts};

use super::flush::{LATE_NS, LATE_PER_MILLION};
use super::published::ROTATION;
use super::rows::{Part, Row, metric};
use super::virtual_time::{RUN_TAGS, device};

/// Published rows of one experiment on one device.
#[derive(Debug, Clone, Copy)]
struct Rows {
    experiment: &'static str,
    device: &'static str,
    metric: &'static str,
    policies: &'static [&'static str],
    xs: &'static [u32],
}

/// A constant.
#[derive(Debug, Clone)]
pub(super) struct Constant {
    /// The part of the model that has it, and its name, which ends with the unit.
    pub(super) name: String,
    pub(super) value: u64,
    /// The rows that it was fitted to.
    rows: &'static [Rows],
    /// The origin of the value.
    origin: &'static str,
}

/// How a figure came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// Simulated, with constants that were fitted to this published figure.
    Fitted,
    /// Simulated, with constants that were fitted to other figures or to none.
    Predicted,
    /// Measured on this machine.
    Measured,
}

impl Basis {
    /// Returns the name in JSON and in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Basis::Fitted => "fitted",
            Basis::Predicted => "predicted",
            Basis::Measured => "measured",
        }
    }
}

/// Returns how a row came about, and the names of the constants that were fitted to it.
pub(super) fn basis(row: &Row) -> (Basis, Vec<String>) {
    if row.part.is_measured() {
        return (Basis::Measured, Vec::new());
    }
    let constants = of_part(row.experiment, row.device, row.part).into_iter();
    let fitted = constants.filter(|constant| constant.rows.iter().any(|rows| rows.contain(row)));
    let names: Vec<String> = fitted.map(|constant| constant.name).collect();
    (if names.is_empty() { Basis::Predicted } else { Basis::Fitted }, names)
}

impl Rows {
    fn contain(&self, row: &Row) -> bool {
        let Rows { experiment, device, metric, policies, xs } = *self;
        row.published.is_some()
            && (experiment, device, metric) == (row.experiment, row.device, row.metric)
            && policies.contains(&row.policy)
            && xs.contains(&row.x)
    }
}

impl Constant {
    /// Returns the rows that it was fitted to, and the origin of its value.
    pub(super) fn source(&self) -> String {
        let Constant { rows, origin, .. } = self;
        let of_rows = |Rows { experiment, device, metric, policies, xs }: &Rows| {
            let xs: Vec<_> = xs.iter().map(ToString::to_string).collect();
            let (policies, xs) = (policies.join(", "), xs.join(", "));
            format!("{experiment}, {device}, {metric}; {policies}; at {xs}")
        };
        match rows.iter().map(of_rows).collect::<Vec<_>>() {
            all if all.is_empty() => format!("not fitted: {origin}"),
            all => format!("fitted to {}: {origin}", all.join(" and ")),
        }
    }
}

/// Returns the constants of a part of a report.
pub(super) fn of_part(experiment: &str, name: &str, part: Part) -> Vec<Constant> {
    if part.is_measured() {
        return Vec::new();
    }
    let mut all = match experiment == ROTATION.experiment {
        true => of_rotation(),
        false => of_device(name),
    };
    match experiment {
        "run" => all.extend(of_runs(part)),
        _ => all.extend(of_threads()),
    }
    if name == "sata" {
        all.extend(of_late_threads());
    }
    all
}

fn constant(
    owner: &str,
    name: &str,
    value: u64,
    rows: &'static [Rows],
    origin: &'static str,
) -> Constant {
    Constant { name: format!("{owner}.{name}"), value, rows, origin }
}

/// Returns the rows of the reads per second.
const fn iops(
    experiment: &'static str,
    device: &'static str,
    policies: &'static [&'static str],
    xs: &'static [u32],
) -> Rows {
    Rows { experiment, device, metric: metric::IOPS, policies, xs }
}

/// Only the sum of `hdd`'s constants follows from the row of 1 job.
const HDD: &[Rows] = &[iops("tags", "hdd", &["batch"], &[1, 24, 48, 72])];

const SSD_SAS_BYTES: &[Rows] = &[iops("tags", "ssd-sas", &["stash"], &[72])];

const SSD_SAS_COMMANDS: &[Rows] = &[iops("tags-4k-256", "ssd-sas", &["batch"], &[4, 32, 256])];

const NVME_BYTES: &[Rows] = &[iops("tags", "nvme", &["batch", "stash"], &[1])];

const VIRTIO_LATENCY: &[Rows] = &[iops("run", "virtio-ram", &["always", "dedupe"], &[16])];

const ONE_JOB: &[Rows] = &[
    iops("tags-4k-256", "nvme", &["batch"], &[1]),
    iops("tags-4k-1024", "nvme", &["batch"], &[1]),
    iops("tags-4k-2048", "nvme", &["batch"], &[1]),
];

const GAINS: Rows = Rows {
    experiment: "run",
    device: "virtio-ram",
    metric: metric::GAIN,
    policies: &["dedupe"],
    xs: &[16, 64, 256, 1024],
};

const TAIL: &[Rows] = &[Rows {
    experiment: "flush-each",
    device: "sata",
    metric: metric::IOPS_OF_HOLD,
    policies: &["tail"],
    xs: &[16],
}];

const TYPICAL: &str = "typical of flash, and far from the limit";
const OF_2011: &str = "usual in 2011";

/// Returns the constants of a device, in the order of its model.
fn of_device(name: &str) -> Vec<Constant> {
    let preset = device(name);
    // A part of the disk that is off takes no time.
    let on = preset.parameters.iter().filter(|parameter| parameter.default > 0);
    let all = on.map(|parameter| {
        let (rows, origin): (&[Rows], &str) = match (name, parameter.name) {
            ("hdd", "seek_ns" | "bytes_per_s") => {
                (HDD, "1 job gives the sum, 8.33 ms; the division was chosen for the others")
            }
            ("hdd", "nr_sorted") => (HDD, "NCQ has 32 commands; chosen with these rows in sight"),
            ("ssd-sas", "bytes_per_s") => (SSD_SAS_BYTES, "the highest rate, 1077 reads of 1 MiB"),
            ("ssd-sas", "commands_per_s") => (SSD_SAS_COMMANDS, "the highest rate, 198k reads"),
            ("nvme", "bytes_per_s") => (NVME_BYTES, "3018 reads of 1 MiB"),
            ("ssd-sas" | "nvme", "latency_ns" | "nr_channels") => (&[], TYPICAL),
            ("virtio-ram", "req_ns") => (&[], "part of the processors' time"),
            ("virtio-ram", "page_ns") => (&[], "a usual rate of memory"),
            ("virtio-ram", "latency_ns") => {
                (VIRTIO_LATENCY, "16 in flight at 190k per second, less the processors' time")
            }
            ("sata", "position_ns") => (TAIL, "the rest of the time of a write"),
            ("sata", "command_ns") => (&[], "usual"),
            ("sata", "link_bytes_per_s") => (&[], "3 Gbit/s"),
            ("sata", "flush_ns") => (&[], "the middle of 0.2 to 0.5 ms"),
            ("sata", "bytes_per_s" | "cache_bytes") => (&[], OF_2011),
            ("sata", "seek_ns") => (&[], "no load reads"),
            ("sata", "ncq_depth") => (&[], "SATA"),
            (_, other) => unreachable!("{name} has no {other}"),
        };
        constant(name, parameter.name, parameter.default, rows, origin)
    });
    all.collect()
}

/// Returns the constants of the disk with rotational latency.
fn of_rotation() -> Vec<Constant> {
    const ROWS: &[Rows] = &[iops("tags-rotation", "hdd", &["batch", "stash"], &[1, 24, 48, 72])];
    let of = |&(name, value): &(&str, u64)| match name {
        "turn_ns" => constant(ROTATION.device, name, value, &[], "7200 turns per minute"),
        _ => constant(ROTATION.device, name, value, ROWS, "chosen together for these rows"),
    };
    let sorted = of_device(ROTATION.device).into_iter().filter(|it| it.name == "hdd.nr_sorted");
    let sorted = sorted.map(|it| Constant { rows: &[], origin: "NCQ has 32 commands", ..it });
    ROTATION.constants.iter().map(of).chain(sorted).collect()
}

/// Returns the costs of job threads.
fn of_threads() -> Vec<Constant> {
    let Costs { submit_ns, tag_ns, reap_ns, wake_min_ns, wake_max_ns } = Costs::default();
    let sum = "2.5 us together: 400k reads per second by 1 job";
    let of = |name, value, rows, origin| constant("thread", name, value, rows, origin);
    vec![
        of("submit_ns", submit_ns, ONE_JOB, sum),
        of("tag_ns", tag_ns, ONE_JOB, sum),
        of("reap_ns", reap_ns, ONE_JOB, sum),
        of("wake_min_ns", wake_min_ns, &[], "usual"),
        of("wake_max_ns", wake_max_ns, &[], "usual"),
    ]
}

/// Returns the delays of threads in `flush`.
fn of_late_threads() -> Vec<Constant> {
    let origin = "otherwise threads that run in step may stay so, and nothing is lost";
    vec![
        constant("thread", "late_per_million", LATE_PER_MILLION.into(), TAIL, origin),
        constant("thread", "late_ns", LATE_NS, &[], "a tick of the scheduler"),
    ]
}

/// Returns the costs of completions and queue runs.
fn of_runs(part: Part) -> Vec<Constant> {
    const BASE: &[Rows] = &[iops("run", "virtio-ram", &["dedupe"], &[1024])];
    const ALWAYS: &[Rows] = &[iops("run", "virtio-ram", &["always"], &[256, 1024]), GAINS];
    const ALL_GAINS: &[Rows] = &[GAINS];
    let RunCosts { base_ns, queue_ns, requeue_ns, test_ns, begin_ns, look_ns } =
        RunCosts::default();
    let chosen = "not published; chosen for these rows";
    let of = |name, value, rows, origin| constant("run", name, value, rows, origin);
    let mut all = vec![
        of("nr_tags", RUN_TAGS.into(), ALL_GAINS, chosen),
        of("base_ns", base_ns, BASE, "250k reads per second without a queue run"),
        of("begin_ns", begin_ns, ALL_GAINS, chosen),
        of("look_ns", look_ns, ALL_GAINS, chosen),
    ];
    if part == Part::VirtualModelled {
        all.extend([
            of("queue_ns", queue_ns, &[], "injected; small beside the others"),
            of("requeue_ns", requeue_ns, ALWAYS, "injected; the additional time at depth 1024"),
            of("test_ns", test_ns, &[], "injected; small beside the others"),
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::published::{FLUSH_THREADS, RUN, SMALL, TAGS};
    use super::super::rows::sample;
    use super::*;

    const PARTS: [(&str, &str, Part); 11] = [
        ("tags", "hdd", Part::Virtual),
        ("tags-rotation", "hdd", Part::Virtual),
        ("tags", "ssd-sas", Part::Virtual),
        ("tags", "nvme", Part::Virtual),
        ("tags-4k-256", "ssd-sas", Part::Virtual),
        ("tags-4k-256", "nvme", Part::Virtual),
        ("tags-mixed", "hdd", Part::Virtual),
        ("run", "virtio-ram", Part::VirtualAsItIs),
        ("run", "virtio-ram", Part::VirtualModelled),
        ("flush-each", "sata", Part::Virtual),
        ("flush-100", "sata", Part::Virtual),
    ];

    #[test]
    fn every_constant_of_a_part_has_an_origin_and_a_name_of_its_own() {
        for (experiment, device, part) in PARTS {
            let all = of_part(experiment, device, part);
            let mut names: Vec<_> = all.iter().map(|constant| &constant.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len(), "{experiment}, {device}");
            assert!(all.iter().all(|constant| !constant.origin.is_empty()));
        }
        assert!(of_part("tags", "hdd", Part::Real).is_empty(), "nothing is modelled by the lab");
    }

    #[test]
    fn fitted_rows_were_published() {
        for (experiment, device, part) in PARTS {
            for rows in of_part(experiment, device, part).iter().flat_map(|it| it.rows) {
                let Rows { experiment, device, policies, xs, .. } = rows;
                let is_published = |policy: &str, x: u32| match *experiment {
                    "run" => RUN.iter().any(|(depth, _)| *depth == x),
                    "flush-each" => (policy, x) == ("tail", FLUSH_THREADS),
                    name => {
                        let mut tables = TAGS.iter().chain([&ROTATION]).chain(&SMALL);
                        let is_it = |it: &&super::super::published::Tags| {
                            (it.experiment, it.device) == (name, *device)
                        };
                        let table = tables.find(is_it).expect("a published table");
                        table.of(x, policy).0.is_some()
                    }
                };
                for policy in *policies {
                    assert!(xs.iter().all(|&x| is_published(policy, x)), "{rows:?}");
                }
            }
        }
    }

    #[test]
    fn rows_that_no_constant_was_fitted_to_are_predictions() {
        let of = |row: Row| {
            let (basis, names) = basis(&row);
            assert_eq!(basis == Basis::Fitted, !names.is_empty());
            basis
        };
        assert_eq!(of(sample()), Basis::Fitted);
        assert_eq!(basis(&sample()).1, ["hdd.seek_ns", "hdd.bytes_per_s", "hdd.nr_sorted"]);
        assert_eq!(of(Row { policy: "stash", ..sample() }), Basis::Predicted);
        assert_eq!(of(Row { metric: metric::SWITCHES, ..sample() }), Basis::Predicted);
        assert_eq!(of(Row { published: None, ..sample() }), Basis::Predicted);
        assert_eq!(of(Row { part: Part::Real, ..sample() }), Basis::Measured);
    }
}
