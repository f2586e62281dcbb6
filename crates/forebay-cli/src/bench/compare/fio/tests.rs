//! Unit tests of `fio`.

use super::*;
use crate::bench::plan::plan;
use forebay_fio::arguments;
use forebay_fio::cmdline::{Parsed, parse};

fn twin(args: &str) -> Result<String, String> {
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(args);
    let twins = twins(&command.jobs, &targets).map_err(|error| error.to_string())?;
    let twins: Vec<_> = twins.iter().flat_map(arguments::of).collect();
    // This program must interpret fio's arguments in the same way.
    let Ok(Parsed::Run(again)) = parse(twins.iter().map(Into::into)) else { panic!("{twins:?}") };
    let again: Vec<_> = again.jobs.iter().flat_map(arguments::of).collect();
    assert_eq!(again, twins);
    Ok(twins.join(" "))
}

#[track_caller]
fn check(args: &str, expected: &str) {
    assert_eq!(twin(args).as_deref(), Ok(expected), "{args}");
}

#[test]
fn a_job_on_a_file_is_the_same_job() {
    check(
        "--name=a --filename=x?direct=on&plug=none --rw=randread --kick=per-device",
        "--name=a --filename=x --ioengine=io_uring --rw=randread --bs=4096 --direct=1",
    );
    check(
        "--name=a --filename=file:x:y --ioengine=libaio --direct=0 --iodepth=4",
        "--name=a --filename=x\\:y --ioengine=libaio --rw=read --bs=4096 --iodepth=4 \
         --direct=0",
    );
    check(
        "--name=a --size=1m --numjobs=2 --name=b --rw=write --size=2m --ioengine=psync",
        "--name=a --ioengine=io_uring --rw=read --bs=4096 --size=1048576 --numjobs=2 --name=b \
         --ioengine=psync --rw=write --bs=4096 --size=2097152",
    );
}

#[test]
fn keys_of_files_become_options_of_fio() {
    check(
        "--name=a --filename=x?sqpoll=on&fixed_buffers=64k",
        "--name=a --filename=x --ioengine=io_uring --rw=read --bs=4096 --fixedbufs=1 \
         --sqthread_poll=1",
    );
    check(
        "--name=a --filename=x --fixedbufs=1 --name=b --filename=x --name=c --fixedbufs=0",
        "--name=a --filename=x --ioengine=io_uring --rw=read --bs=4096 --fixedbufs=1 --name=b \
         --filename=x --ioengine=io_uring --rw=read --bs=4096 --fixedbufs=1 --name=c \
         --ioengine=io_uring --rw=read --bs=4096 --fixedbufs=0",
    );
    check(
        "--name=a --filename=x?sqpoll=off",
        "--name=a --filename=x --ioengine=io_uring --rw=read --bs=4096 --sqthread_poll=0",
    );
    check(
        "--name=a --filename=x?engine=psync",
        "--name=a --filename=x --ioengine=psync --rw=read --bs=4096",
    );
    check(
        "--name=a --filename=x?engine=aio",
        "--name=a --filename=x --ioengine=libaio --rw=read --bs=4096",
    );
    check(
        "--name=a --filename=null:1M --fixedbufs=1 --sqthread_poll=1",
        "--name=a --ioengine=null --rw=read --bs=4096 --size=1048576",
    );
}

#[test]
fn keys_of_files_without_an_equal_are_refused() {
    assert_eq!(
        twin("--name=a --filename=x?engine=psync&nr_threads=4").expect_err("no equal"),
        "--compare=fio: a: fio has no counterpart of the key `nr_threads` of x; leave it out"
    );
    assert_eq!(
        twin("--name=a --ioengine=libaio --filename=x?engine=io_uring&sqpoll=on")
            .expect_err("no equal"),
        "--compare=fio: a: fio's engine libaio has no counterpart of the key `sqpoll` of x; \
         leave it out, or use --ioengine=io_uring"
    );
}

#[test]
fn titles_are_those_of_the_jobs_that_fio_runs() {
    let titles = |args: &str| {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let targets = plan(&command.jobs).expect(args);
        let twins = twins(&command.jobs, &targets).expect(args);
        descriptions(&twins, &targets)
    };
    assert_eq!(
        titles("--name=a --filename=x?sqpoll=on&plug=none --direct=1 --fixedbufs=1"),
        ["io_uring, x, direct=1, fixedbufs=1, sqthread_poll=1"]
    );
    assert_eq!(titles("--name=a --filename=x?engine=psync --direct=0"), ["psync, x"]);
    assert_eq!(titles("--name=a --filename=null:1M?plug=none"), ["null"]);
    assert_eq!(titles("--name=a --numjobs=2"), ["io_uring, a.0.0", "io_uring, a.1.0"]);
}

#[test]
fn idle_time_of_the_polling_thread_is_noted() {
    let Ok(Parsed::Run(command)) =
        parse(["--name=a", "--filename=x?sqpoll=on&sqpoll_idle_ms=5"].map(Into::into))
    else {
        panic!("two options")
    };
    let targets = plan(&command.jobs).expect("a plan");
    let twins = twins(&command.jobs, &targets).expect("twins");
    let notes = notes(&twins, &targets);
    assert!(notes[0].starts_with("fio has no counterpart of sqpoll_idle_ms: "), "{notes:?}");
}

#[test]
fn null_is_the_engine_null() {
    check(
        "--name=a --filename=null:1G --rw=randread",
        "--name=a --ioengine=null --rw=randread --bs=4096 --size=1073741824",
    );
    check(
        "--name=a --ioengine=null --filename=x --size=1m --direct=1",
        "--name=a --ioengine=null --rw=read --bs=4096 --size=1048576",
    );
    check(
        "--name=a --filename=null:1M --offset=50% --size=25%",
        "--name=a --ioengine=null --rw=read --bs=4096 --size=262144 --offset=524288",
    );
}

#[test]
fn option_without_a_counterpart_in_fio_is_refused() {
    let error = |args: &str| twin(args).expect_err(args);
    assert_eq!(
        error("--name=a --filename=ram:1G?plug=none"),
        "--compare=fio: a: fio has no device like ram:1G; compare with another spec, \
         such as --compare='?plug=none' or --compare=null:1G, or give the job a file (in \
         /dev/shm, if it is to be memory)"
    );
    assert!(error("--name=a --filename=fault:x?rule=read:io").contains("like fault:x;"));
    let nbd = error("--name=a --filename=nbd+unix:///x?plug=none&socket=/s");
    assert!(nbd.contains(" --uri='nbd+unix:///x?socket=/s',"), "{nbd}");
    assert_eq!(
        error("--name=a --filename=null:1G?kick_ns=1000"),
        "--compare=fio: a: fio has no counterpart of the key `kick_ns` of null:1G; leave it out"
    );
}

#[test]
fn an_old_fio_is_refused() {
    assert_eq!(is_new_enough("fio-3.33", true), Ok(()));
    assert_eq!(is_new_enough("fio-3.13-12-g123", true), Ok(()));
    assert_eq!(is_new_enough("fio-3.0", false), Ok(()));
    let error = is_new_enough("fio-3.1", true).expect_err("old");
    assert_eq!(
        error,
        "--compare=fio: fio-3.1 is too old: 3.13 or newer is needed for its engine io_uring; \
         --ioengine=libaio does with less"
    );
    assert!(is_new_enough("fio-2.21", false).is_err());
    assert!(is_new_enough("busybox", false).is_err());
}
