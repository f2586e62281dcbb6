//! Notes about options and keys that have no effect on the jobs of a disk.
//!
//! The figures are the same without them, so they are no errors. Keys without effect on the disk
//! itself are reported when it is open ([`crate::output::notices`]).

use forebay::Disk;
use forebay_fio::generator::Direction;
use forebay_fio::job::Job;

use super::plan::{Target, distinct, file_below};

/// Keys that have no effect in any job of `bench`, or not the one that their name suggests.
const NEVER_USED: [(&str, &str); 2] = [
    ("fua", "has no effect: bench jobs write without FUA"),
    (
        "reserved_tags",
        "only leaves fewer tags: bench jobs do no reserved I/O; to limit the tags, use nr_requests",
    ),
];

/// Keys that have an effect on flushes alone.
const OF_FLUSHES: [&str; 3] = ["elide", "flush", "flush_pending_ms"];

/// A key that has an effect on I/O of several priority classes alone.
const AGING: &str = "prio_aging_expire";

/// Returns the notes, a line each.
pub(super) fn notes(jobs: &[Job], targets: &[Target]) -> Vec<String> {
    let mut notes = Vec::new();
    for target in distinct(targets) {
        let job = &jobs[target.job];
        notes.extend(of_files(job, target));
        let name_of = |key: &str| match job.policies.iter().any(|(name, _)| *name == key) {
            true => format!("--{key}"),
            false => format!("the key {key}"),
        };
        let is_given = |key: &str| target.spec.get(key).is_some();
        for (key, what) in NEVER_USED.into_iter().filter(|(key, _)| is_given(key)) {
            notes.push(format!("{}: {} {what}", job.name, name_of(key)));
        }
        let sharing = || {
            let shared = targets.iter().filter(|other| other.disk == target.disk);
            shared.map(|other| &jobs[other.job])
        };
        if is_given(AGING) && has_one_class(sharing()) {
            let (job, key, disk) = (&job.name, name_of(AGING), target.name());
            let why = "the jobs have one priority class";
            notes.push(format!("{job}: {key} has no effect: {why} on {disk}"));
        }
        if sharing().any(flushes) {
            continue;
        }
        for key in OF_FLUSHES.into_iter().filter(|key| is_given(key)) {
            let (job, key, disk) = (&job.name, name_of(key), target.name());
            notes.push(format!("{job}: {key} has no effect: no job flushes {disk}"));
        }
    }
    notes.dedup();
    notes
}

/// Returns notes about options that only disks on files have.
fn of_files(job: &Job, target: &Target) -> Vec<String> {
    if file_below(&target.spec).is_some() {
        return Vec::new();
    }
    const RING: &str = "only disks on a file or block device have an io_uring";
    let options = [
        ("direct", job.direct == Some(true), "only files and block devices have a page cache"),
        ("fixedbufs", job.fixedbufs == Some(true), RING),
        ("sqthread_poll", job.sqthread_poll == Some(true), RING),
    ];
    let given = options.into_iter().filter(|(_, is_given, _)| *is_given);
    let note = |(option, _, why): (&str, bool, &str)| {
        format!("{}: --{option} has no effect on {}: {why}", job.name, target.name())
    };
    given.map(note).collect()
}

/// Returns notes about options that have an effect beside certain schedulers alone.
pub(super) fn of_schedulers(jobs: &[Job], targets: &[Target], disks: &[Disk]) -> Vec<String> {
    let mut notes = Vec::new();
    for target in distinct(targets) {
        let job = &jobs[target.job];
        let scheduler = disks[target.disk].info().policy.scheduler;
        if scheduler.is_none() && target.spec.get("async_depth").is_some() {
            let (name, disk) = (&job.name, target.name());
            notes.push(format!(
                "{name}: async_depth has no effect on {disk}: without a scheduler it limits \
                 background I/O, which bench jobs never submit"
            ));
        }
        if scheduler.orders_by_class() || !job.priorities.is_given() {
            continue;
        }
        let (name, disk) = (&job.name, target.name());
        notes.push(format!(
            "{name}: its I/O priorities have no effect on {disk}: only \
             scheduler=mq-deadline and scheduler=bfq order by them; add one of these"
        ));
    }
    notes
}

/// Returns whether all I/O of these jobs has one priority class.
pub(crate) fn has_one_class<'a>(jobs: impl Iterator<Item = &'a Job>) -> bool {
    let of_job = |job: &'a Job| job.priorities.classes(|direction| job.rw.has(direction));
    let classes: Vec<_> = jobs.flat_map(of_job).collect();
    classes.iter().all(|class| class == &classes[0])
}

fn flushes(job: &Job) -> bool {
    let is_asked = job.fsync > 0 || job.fdatasync > 0 || job.end_fsync;
    is_asked && (job.rw.has(Direction::Write) || job.rw.has(Direction::Trim))
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;
    use crate::bench::plan::plan;

    #[track_caller]
    fn check(args: &str, expected: &[&str]) {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        assert_eq!(notes(&command.jobs, &plan(&command.jobs).expect(args)), expected, "{args}");
    }

    #[test]
    fn options_of_files_are_noted_on_other_disks() {
        check(
            "--name=a --filename=ram:1M --fixedbufs --sqthread_poll --direct=1 --numjobs=2",
            &[
                "a: --direct has no effect on ram:1M: only files and block devices have a page \
                 cache",
                "a: --fixedbufs has no effect on ram:1M: only disks on a file or block device \
                 have an io_uring",
                "a: --sqthread_poll has no effect on ram:1M: only disks on a file or block device \
                 have an io_uring",
            ],
        );
        check("--name=a --filename=x --fixedbufs --sqthread_poll --direct=1", &[]);
        check("--name=a --filename=fault:x?rule=read:io --direct=1", &[]);
    }

    #[test]
    fn kinds_of_io_that_no_job_does_are_noted() {
        check(
            "--name=a --filename=x?reserved_tags=4&fua=off",
            &[
                "a: the key fua has no effect: bench jobs write without FUA",
                "a: the key reserved_tags only leaves fewer tags: bench jobs do no reserved I/O; \
                 to limit the tags, use nr_requests",
            ],
        );
    }

    #[test]
    fn aging_is_noted_if_the_jobs_of_a_disk_have_one_priority_class() {
        let note = "a: --prio_aging_expire has no effect: the jobs have one priority class on x";
        check("--name=a --filename=x --prio_aging_expire=5", &[note]);
        check("--name=a --filename=x --prio_aging_expire=5 --prioclass=1 --prio=3", &[note]);
        check("--name=a --filename=x --prio_aging_expire=5 --cmdprio_percentage=5", &[]);
        check(
            "--filename=x --prio_aging_expire=5 --name=a --prioclass=3 --name=b --prioclass=2",
            &[],
        );
    }

    #[test]
    fn options_of_schedulers_are_noted_on_disks_without_one() {
        let of = |args: &str| {
            let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
                panic!("{args}")
            };
            let targets = plan(&command.jobs).expect(args);
            let opened = crate::bench::open::open(&command.jobs, &targets).expect(args);
            of_schedulers(&command.jobs, &targets, &opened.disks)
        };
        let note = "a: its I/O priorities have no effect on ram:1M: only \
                    scheduler=mq-deadline and scheduler=bfq order by them; add one of these";
        assert_eq!(of("--name=a --filename=ram:1M --prio=2 --numjobs=2"), [note]);
        assert_eq!(of("--name=a --filename=ram:1M --cmdprio_percentage=2"), [note]);
        let none: [&str; 0] = [];
        assert_eq!(of("--name=a --filename=ram:1M"), none);
        assert_eq!(of("--name=a --filename=ram:1M --prio=2 --scheduler=mq-deadline"), none);
        assert_eq!(of("--name=a --filename=model:hdd --prio=2"), none);
        assert_eq!(of("--name=a --filename=ram:1M --prio=2 --scheduler=kyber"), [note]);
        let depth = "a: async_depth has no effect on ram:1M: without a scheduler it limits \
                     background I/O, which bench jobs never submit";
        assert_eq!(of("--name=a --filename=ram:1M --async_depth=4"), [depth]);
        assert_eq!(of("--name=a --filename=ram:1M --async_depth=4 --scheduler=kyber"), none);
    }

    #[test]
    fn settings_of_flushes_are_noted_if_no_job_of_the_disk_flushes() {
        let note = "a: the key elide has no effect: no job flushes x";
        check("--name=a --rw=write --filename=x?elide=on", &[note]);
        check("--name=a --rw=read --fsync=1 --filename=x?elide=on", &[note]);
        check("--name=a --rw=write --end_fsync=1 --filename=x?elide=on", &[]);
        let args = "--filename=x?elide=on --name=a --rw=read --name=b --rw=write --fdatasync=1";
        check(args, &[]);
        check(
            "--name=a --rw=write --filename=model:sata --flush=tail",
            &["a: --flush has no effect: no job flushes model:sata"],
        );
    }
}
