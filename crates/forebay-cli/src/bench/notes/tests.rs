//! Notes about options without effect.

use forebay_fio::cmdline::{Parsed, parse};

use super::*;
use crate::bench::plan::plan;

#[track_caller]
fn check(args: &str, expected: &[&str]) {
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
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
fn errors_that_do_not_occur_are_noted() {
    check("--name=a --filename=ram:1M --ignore_error=EIO,ENOSPC:22,EILSEQ", &[]);
    let args = "--name=a --filename=ram:1M --ignore_error=EIO,EDQUOT:104";
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let note = of_errors(&command.jobs[0]).expect("a note");
    assert!(note.starts_with("a: --ignore_error: no I/O ends with error 122, 104: "), "{note}");
}

#[test]
fn every_error_of_the_layer_is_in_the_note() {
    let args = "--name=a --filename=ram:1M --ignore_error=104";
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let note = of_errors(&command.jobs[0]).expect("a note");
    let (_, list) = note.split_once("reports ").expect("a list");
    let names = list.split(|c: char| !c.is_alphanumeric()).filter(|it| it.starts_with('E'));
    assert_eq!(names.count(), BlockStatus::ALL.len() + 2, "{list}");
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
    check("--filename=x --prio_aging_expire=5 --name=a --prioclass=3 --name=b --prioclass=2", &[]);
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
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("its length is set");
    let path = file.path().display();
    let notes = of(&format!("--name=a --filename={path} --prio=2 --cmdprio_percentage=5"));
    let [of_job, of_parts] = &notes[..] else { panic!("{notes:?}") };
    assert!(of_job.contains(", only the kernel uses --prio and --prioclass"), "{of_job}");
    assert!(of_parts.starts_with("a: its --cmdprio options have no effect"), "{of_parts}");
    let parts = of(&format!("--name=a --filename={path} --cmdprio_percentage=5"));
    assert!(parts[0].starts_with("a: its I/O priorities have no effect"), "{parts:?}");
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
