//! Notes about options and keys that have no effect on the jobs of a disk.
//!
//! The figures are the same without them, so they are no errors. Keys without effect on the disk
//! itself are reported when it is open ([`crate::output::notices`]).

use forebay::{BlockStatus, Disk, IoError};
use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use rustix::io::Errno;

use super::plan::{Target, distinct, file_below};

mod registered;

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
        notes.extend(of_errors(job));
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
        notes.extend(registered::notes(job, target, sharing()));
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

/// Returns a note about errors in `ignore_error` that no I/O of the layer ends with.
fn of_errors(job: &Job) -> Option<String> {
    let errnos = BlockStatus::ALL.map(|status| IoError::Ended(status).errno());
    let is_known = |errno: &i32| errnos.contains(errno) || *errno == Errno::ILSEQ.raw_os_error();
    let others: Vec<_> = job.control.on_error.ignored().filter(|errno| !is_known(errno)).collect();
    if others.is_empty() {
        return None;
    }
    let list = others.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
    Some(format!(
        "{}: --ignore_error: no I/O ends with error {list}: the layer reports EIO, ENODATA, ENOSPC \
         (also for EDQUOT), EINVAL (also for EFBIG), EOPNOTSUPP, ETIMEDOUT, ENOLINK, ENODEV, \
         ENOMEM, EAGAIN or EROFS",
        job.name
    ))
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
        if job.priorities.of_job().is_none() || file_below(&target.spec).is_none() {
            notes.push(format!(
                "{name}: its I/O priorities have no effect on {disk}: only \
                 scheduler=mq-deadline and scheduler=bfq order by them; add one of these"
            ));
            continue;
        }
        notes.push(format!(
            "{name}: on {disk}, only the kernel uses --prio and --prioclass, and only for I/O that \
             the job's own threads submit: shared contexts, sqthread_poll and write-back ignore \
             them; to sort I/O in the layer, add scheduler=mq-deadline or scheduler=bfq"
        ));
        if job.priorities.are_several() {
            notes.push(format!(
                "{name}: its --cmdprio options have no effect on {disk}: only \
                 scheduler=mq-deadline and scheduler=bfq order by them; add one of these"
            ));
        }
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
mod tests;
