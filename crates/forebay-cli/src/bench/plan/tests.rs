//! Unit tests of `plan`.

use super::*;
use forebay_fio::cmdline::{Parsed, parse};

#[track_caller]
fn check(args: &str, specs: &[&str]) {
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(args);
    let shown: Vec<_> = targets.iter().map(|target| target.spec.to_string()).collect();
    assert_eq!(shown, specs, "{args}");
}

#[test]
fn options_of_io_uring_become_keys_of_a_file() {
    check(
        "--filename=x --name=a --rw=write --fixedbufs=1 --bs=4k --iodepth=2 --name=b \
         --rw=write --bs=512 --iodepth=3 --name=c --rw=write --fixedbufs=0",
        &["x?fixed_buffers=20480"; 3],
    );
    check(
        "--name=a --filename=x --rw=write --fixedbufs=1 --bsrange=512-16k --iodepth=2",
        &["x?fixed_buffers=32768"],
    );
    // The larger one of two stages.
    check(
        "--filename=x --fixedbufs=1 --bs=4k --name=a --rw=write --iodepth=2 --name=b --rw=write \
         --stonewall --iodepth=3",
        &["x?fixed_buffers=12288"; 2],
    );
    check("--name=a --filename=x --rw=trim --fixedbufs=1", &["x"]);
    check("--name=a --filename=x --rw=write --sqthread_poll=1", &["x?sqpoll=on"]);
    check("--name=a --filename=ram:1M --fixedbufs=1 --sqthread_poll=1", &["ram:1M"]);
}

#[test]
fn options_become_keys() {
    check("--name=a --filename=x --direct=1", &["x?direct=on&read_only=on"]);
    check("--name=a --filename=x --direct=0 --rw=write", &["x?direct=off"]);
    check("--name=a --filename=x?direct=on --rw=write", &["x?direct=on"]);
    check("--name=a --filename=ram:1M --direct=1", &["ram:1M"]);
    check("--name=a --filename=ram:1M --plug=per-level", &["ram:1M?plug=per-level"]);
    check("--name=a --filename=ram:1M --iodepth=5000", &["ram:1M?nr_bios=5000"]);
    check(
        "--name=a --filename=fault:x?rule=read:io --rw=rw --direct=1",
        &["fault:x?rule=read:io&direct=on"],
    );
}

#[test]
fn paths_of_directories_are_no_specs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let place = dir.path().join("50%3F?a");
    std::fs::create_dir(&place).expect("a directory");
    std::fs::write(place.join("x?y%25"), "x").expect("a file");
    let place = place.to_str().expect("a UTF-8 path");
    for (option, name) in [("opendir", "/x?y%25"), ("directory", "/a.0.0")] {
        let args = format!("--name=a --{option}={place}");
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let targets = plan(&command.jobs).expect(&args);
        assert_eq!(targets[0].path(), Some(format!("{place}{name}").into()), "{args}");
    }
}

#[test]
fn disks_on_one_file_have_the_same_place() {
    let args = "--name=a --filename=x:y --plug=none --name=b --filename=y --name=c \
                --filename=ram:1M --name=d --filename=y";
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(args);
    let places: Vec<_> = targets.iter().map(|target| target.place).collect();
    assert_eq!(places, [0, 1, 1, 2, 1], "{args}");
}

#[test]
fn names_of_one_file_have_the_same_place() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = dir.path().display();
    std::fs::write(dir.path().join("old"), "x").expect("a file");
    std::fs::hard_link(dir.path().join("old"), dir.path().join("hard")).expect("a link");
    std::os::unix::fs::symlink("new", dir.path().join("soft")).expect("a link");
    let args = format!(
        "--name=a --filename={at}/new:{at}/./new:{at}/soft --name=b --filename={at}/old:{at}/hard"
    );
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(&args);
    let places: Vec<_> = targets.iter().map(|target| target.place).collect();
    assert_eq!(places, [0, 0, 0, 1, 1], "{args}");
}

#[track_caller]
fn check_disks(args: &str, disks: &[usize]) {
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(args);
    let found: Vec<_> = targets.iter().map(|target| target.disk).collect();
    assert_eq!(found, disks, "{args}");
}

#[test]
fn jobs_with_the_same_file_and_settings_share_a_disk() {
    check_disks("--filename=ram:1M --name=a --numjobs=3 --name=b --rw=write", &[0, 0, 0, 0]);
    check_disks("--filename=x --name=a --plug=none --name=b --name=c --plug=none", &[0, 1, 0]);
    check_disks("--filename=x --name=a --direct=1 --name=b --filename=y", &[0, 1]);
    check_disks("--name=a --numjobs=2 --name=b", &[0, 1, 2]);
    let args = "--filename=ram:1M --name=a --plug=none --nomerges=2 --name=b --nomerges=2 \
                --plug=none";
    check_disks(args, &[0, 0]);
}

#[test]
fn needs_of_jobs_that_share_a_disk_are_combined() {
    let args = "--filename=x --name=a --rw=write --name=b --rw=read --iodepth=5000";
    check(args, &["x?nr_bios=5000", "x?nr_bios=5000"]);
    check("--filename=x --name=a --name=b", &["x?read_only=on", "x?read_only=on"]);
}

#[test]
fn clones_without_a_filename_have_their_own() {
    check("--name=a --numjobs=2 --rw=write", &["a.0.0", "a.1.0"]);
    check("--name=ram:1 --rw=write", &["file:ram:1.0.0"]);
    check("--name=a --numjobs=2 --rw=write --filename=x", &["x", "x"]);
}

#[test]
fn the_header_names_working_features() {
    let engines = |args: &str| {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        engine_names(&plan(&command.jobs).expect(args), &command.jobs).join("; ")
    };
    assert_eq!(engines("--name=a --name=b --filename=ram:1M"), "file; ram");
    assert_eq!(engines("--ioengine=libaio --name=a"), "libaio (aio)");
    assert_eq!(engines("--ioengine=io_uring --name=a"), "io_uring");
    assert_eq!(engines("--ioengine=io_uring --name=a --filename=ram:1M"), "io_uring (ram)");
    assert_eq!(engines("--ioengine=null --name=a"), "null");
    assert_eq!(engines("--ioengine=psync --name=a"), "psync");
    assert_eq!(engines("--ioengine=sync --name=a"), "sync (psync)");
    assert_eq!(engines("--ioengine=libaio --name=a --filename=file:x"), "libaio (aio)");
    assert_eq!(engines("--ioengine=libaio --name=a --filename=psync:x"), "libaio (psync)");
}

#[test]
fn engines_are_drivers_of_files() {
    let write = |args: &str, specs: &[&str]| check(&format!("--rw=write {args}"), specs);
    write("--ioengine=libaio --filename=x --direct=1", &["aio:x?direct=on"]);
    write("--ioengine=libaio --filename=file:ram:x", &["aio:ram:x"]);
    write("--ioengine=libaio --name=a", &["aio:a.0.0"]);
    write("--ioengine=psync --filename=x", &["psync:x"]);
    write("--ioengine=sync --filename=x?nr_threads=2", &["psync:x?nr_threads=2"]);
    write("--ioengine=io_uring --filename=x", &["x?engine=io_uring"]);
    write("--ioengine=io_uring --filename=ram:1M", &["ram:1M"]);
    write("--ioengine=libaio --filename=x?engine=psync", &["x?engine=psync"]);
    write("--ioengine=libaio --filename=psync:x", &["psync:x"]);
    let fault = "--ioengine=libaio --filename=fault:x?rule=read:io";
    write(fault, &["fault:aio:x?rule=read:io"]);
    write("--filename=x", &["x"]);
}

#[test]
fn the_null_engine_needs_no_file() {
    check("--ioengine=null --filename=ram:1M", &["null:1M?logical_block_size=1"]);
    check("--name=a --ioengine=null --size=1m", &["null:1048576?logical_block_size=1"]);
    check("--ioengine=null", &["null:1099511627776?logical_block_size=1"]);
    check("--ioengine=null --filename=null:1G", &["null:1G"]);
}
