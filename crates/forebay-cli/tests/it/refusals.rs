//! Refused usage and failed runs: messages and exit codes.

use crate::common::{bench, data_file, folder, forebay, skip_unless_required, stderr, stdout};
use crate::unprivileged;

#[track_caller]
fn check(args: &str, code: i32, message: &str) {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let output = bench(&folder, &format!("{args} --output-format=json"));
    assert_eq!(stderr(&output), format!("forebay: {message}\n"), "{args}");
    assert_eq!(output.status.code(), Some(code), "{args}");
    assert_eq!(stdout(&output), "", "{args}");
}

#[test]
fn unknown_options_get_the_nearest_one() {
    check("--name=a --iodpth=4", 2, "unknown option --iodpth; did you mean --iodepth?");
    check(
        "--name=a --lockfile=exclusive",
        2,
        "--lockfile: forebay does not support this fio option; jobs do not lock files",
    );
    check(
        "--name=a --unlink_each_loop=1",
        2,
        "--unlink_each_loop: forebay does not support this fio option; run the command in a shell \
         before or after forebay",
    );
    check(
        "--name=a --unit_base=2",
        2,
        "--unit_base=2: unknown value '2'; did you mean '0'? (accepted: 0, 8, 1)",
    );
    check("job.fio", 1, "job.fio: cannot read the file: No such file or directory (os error 2)");
    check("-x", 2, "'-x' is not an option; options begin with --");
}

#[test]
fn bad_values_are_refused_with_the_accepted_ones() {
    check(
        "--name=a --bs=4z",
        2,
        "--bs=4z: unknown unit 'z' (accepted: a size such as 4096, 4k, 1m or 1g, where k = 1024 \
         and kib = 1000, or up to three: read,write,trim)",
    );
    check(
        "--name=a --rw=raed",
        2,
        "--rw=raed: unknown value 'raed'; did you mean 'read'? (accepted: read, write, randread, \
         randwrite, rw, readwrite, randrw, trim, randtrim)",
    );
    check(
        "--name=a --ioengine=rdma --verb=read",
        2,
        "--ioengine=rdma: forebay has no such engine (accepted: libaio, io_uring, psync, sync, \
         vsync, pvsync, pvsync2, mmap, posixaio, null, nbd, rbd, file)",
    );
    check("--name=a --time_based", 2, "a: --time_based needs --runtime");
    check(
        "--name=a --rw=write --verify=crc32c --verify_only --time_based --runtime=1",
        2,
        "a: --verify_only does not work with --time_based: which blocks an earlier run has \
         written depends on its speed; leave out --time_based",
    );
}

#[test]
fn all_wrong_options_are_reported_at_once() {
    let folder = folder();
    let text = "[a]\nfilename=ram:1M\nrw=raed\nlockfile=readwrite\n";
    std::fs::write(folder.path().join("a.fio"), text).expect("a file");
    let output = bench(&folder, "--iodpth=4 --compare=fio --compare-pairs=0 a.fio");
    let expected = "forebay: --compare-pairs=0: unknown value '0' (accepted: a number from 1 to \
                    1000)\n\
                    forebay: unknown option --iodpth; did you mean --iodepth?\n\
                    forebay: a.fio:3:4: rw=raed: unknown value 'raed'; did you mean 'read'? \
                    (accepted: read, write, randread, randwrite, rw, readwrite, randrw, trim, \
                    randtrim)\n  3 | rw=raed\n    |    ^^^^\n\
                    forebay: a.fio:4:1: lockfile: forebay does not support this fio option; jobs \
                    do not lock files\n  4 | lockfile=readwrite\n    | ^^^^^^^^\n";
    assert_eq!((stderr(&output).as_str(), output.status.code()), (expected, Some(2)));
}

#[test]
fn bad_specs_are_errors_of_usage() {
    check(
        "--name=a --filename=ram:1M?plugg=none",
        2,
        "a: unknown key `plugg` for driver `ram`; did you mean `plug`?",
    );
    check(
        "--name=a --filename=ram:1M --plug=maybe",
        2,
        "a: plug=maybe: expected outermost, per-level or none",
    );
    check(
        "--name=a --filename=disk.img?direct",
        2,
        "a: --filename=disk.img?direct: `direct` is not key=value; in a path, write `?` \
         as %3F",
    );
}

#[test]
fn option_beside_another_value_of_its_key_is_refused() {
    check(
        "--name=a --filename=ram:1M?plug=none --plug=per-level",
        2,
        "a: --filename=ram:1M?plug=none: --plug=per-level contradicts the key plug=none: leave one \
         of them out",
    );
    check(
        "--name=a --filename=disk.img?direct=off --direct=1",
        2,
        "a: --filename=disk.img?direct=off: --direct=1 contradicts the key direct=off: leave one \
         of them out",
    );
}

/// Runs a bench that succeeds, and checks its messages.
#[track_caller]
fn check_noted(args: &str, notes: &[&str]) {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let output = bench(&folder, &format!("--name=a --number_ios=3 {args} --output-format=json"));
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    let lines: String = notes.iter().map(|note| format!("forebay: {note}\n")).collect();
    assert_eq!(stderr(&output), lines, "{args}");
}

#[test]
fn options_and_keys_without_effect_are_noted() {
    check_noted(
        "--filename=ram:1M --direct=1",
        &["a: --direct has no effect on ram:1M: only files and block devices have a page cache"],
    );
    check_noted(
        "--filename=ram:1M --rw=write --end_fsync=1 --flush=tail",
        &["ram:1M: flush=tail has no effect: it needs a device that accepts a flush only by \
           itself"],
    );
    check_noted(
        "--filename=ram:1M?tag_need=parts&reserved_tags=3",
        &[
            "a: the key reserved_tags only leaves fewer tags: bench jobs do no reserved I/O; to \
             limit the tags, use nr_requests",
            "ram:1M: tag_need=parts has no effect: it needs wake=fair without reserved_tags and \
             async_depth",
        ],
    );
    check_noted(
        "--filename=disk.img --exclusive=on --elide=on",
        &["a: --elide has no effect: no job flushes disk.img"],
    );
    check_noted(
        "--filename=disk.img?lock=on --exclusive=on",
        &["disk.img: lock=on has no effect: lock=off is in force"],
    );
    check_noted(
        "--filename=ram:1M --max_sectors_kb=1m",
        &["ram:1M: max_sectors_kb=1m is limited to 1280 KiB, the max_hw_sectors_kb of the device"],
    );
    check_noted("--filename=disk.img --direct=1 --queue_depth=8", &[]);
}

#[test]
fn comparison_notes_what_has_no_effect_on_a_side() {
    let folder = folder();
    let args = "--name=a --number_ios=3 --filename=ram:1M --compare=?flush=tail --compare-pairs=1";
    let output = bench(&folder, args);
    assert_eq!(
        stderr(&output),
        "forebay: --compare=?flush=tail: ram:1M: flush=tail has no effect: it needs a device that \
         accepts a flush only by itself\n\
         forebay: --compare=?flush=tail: a: --flush has no effect: no job flushes ram:1M\n"
    );
}

#[test]
fn side_of_a_comparison_that_does_not_exist_is_not_created() {
    for with in ["./new.img", "new.img?direct=on", "psync:new.img"] {
        let folder = folder();
        data_file(&folder, "disk.img", 1 << 20);
        let args = format!("--name=a --size=1m --filename=disk.img --compare={with}");
        let output = bench(&folder, &args);
        let path = if with.starts_with('.') { "./new.img" } else { "new.img" };
        let message = format!(
            "forebay: --compare={with}: {path} does not exist, and a comparison does not create \
             it: check the path, or create the file first, such as with truncate -s SIZE {path}\n"
        );
        assert_eq!((stderr(&output), output.status.code()), (message, Some(2)), "{with}");
        assert!(!folder.path().join("new.img").exists());
    }
}

#[test]
fn disk_image_as_job_file_is_refused_with_the_option() {
    let folder = folder();
    std::fs::write(folder.path().join("disk.img"), [0; 1 << 16]).expect("a file");
    let random = data_file(&folder, "random.img", 1 << 16);
    assert!(std::fs::read(random).expect("the file").contains(&0));
    for (command, name) in [("bench", "disk.img"), ("bench", "random.img"), ("sim", "disk.img")] {
        let output = forebay(&folder).args([command, name]).output().expect("it runs");
        let message = format!(
            "forebay: {name}: this is binary data and not a job file; to measure a disk image, use \
             forebay bench --filename={name}\n"
        );
        assert_eq!((stderr(&output), output.status.code()), (message, Some(2)), "{command}");
    }
}

#[test]
fn disk_in_the_place_of_a_job_file_gets_the_option_for_it() {
    for name in ["ram:1G", "missing.img"] {
        let message = format!(
            "{name}: cannot read the file: No such file or directory (os error 2); this argument \
             is a job file; for a disk, use forebay bench --filename={name}"
        );
        check(name, 1, &message);
    }
}

#[test]
fn words_after_a_command_are_refused_with_what_it_takes() {
    for (args, message) in [
        (
            &["help", "bench", "direct"][..],
            "help bench: unexpected argument 'direct'; for the help of an option use forebay bench \
             --help=direct",
        ),
        (&["lab", "all"], "unknown command 'all'; expected one of tags, run, flush"),
        (
            &["everything"],
            "unknown command 'everything'; expected one of bench, info, serve, ctl, top, run, sim, \
             calibrate, lab, trace, help, man, completions",
        ),
    ] {
        let output = forebay(&folder()).args(args).output().expect("it runs");
        assert_eq!(stderr(&output), format!("forebay: {message}\n"), "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn report_into_a_missing_folder_names_the_folder() {
    check(
        "--name=a --filename=ram:1M --output=none/report",
        1,
        "--output=none/report: there is no folder none: create it first",
    );
}

#[test]
fn unknown_host_is_named_with_the_remedy() {
    let output = bench(&folder(), "--name=a --filename=nbd://no.such.host.invalid/x");
    let text = stderr(&output);
    let start = "forebay: a: nbd://no.such.host.invalid/x: cannot connect: the host name does not \
                 resolve: check it, or give an IP address (";
    assert!(text.starts_with(start), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn mistyped_driver_is_not_a_list_of_files() {
    check(
        "--name=a --filename=rma:1M",
        2,
        "a: --filename=rma:1M: `rma` is not a driver; did you mean the driver `ram`? For files of \
         these names, write ./rma:1M",
    );
    let folder = folder();
    let output = bench(&folder, r"--name=a --rw=write --size=4k --filename=one\:name");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(folder.path().join("one:name").exists());
}

#[test]
fn a_refused_command_leaves_no_file_behind() {
    for (args, message) in [
        ("--name=a --size=1m --filename=new?plugg=none", "unknown key `plugg`"),
        ("--name=a --size=1m --rw=write --nomerges=7", "nomerges=7: expected"),
        ("--name=a --size=1m --bs=2m", "the block size (2097152 bytes) is larger"),
        ("--name=a --size=1m --direct=1 --bs=1000", "--bs=1000 is not a multiple"),
        ("--name=a --size=1m --name=b --filename=missing", "missing does not exist or is empty"),
        ("--name=a --size=1m --name=b --filename=ram:1M?x=1", "unknown key `x`"),
        ("--name=a --size=1m --name=b --size=2m --filename=ram:1M", "is beyond the end"),
        ("--name=a --size=4096p --offset=4096p", "is larger than the largest file"),
        ("--name=a --size=1m --filename=/proc/no/file", "cannot lay out /proc/no/file: No such"),
        // The folder of the first job was created.
        ("--size=1m --name=a --filename=new/file --name=b --filename=/proc/no/file", "cannot lay"),
    ] {
        let folder = folder();
        let output = bench(&folder, &format!("{args} --output=report"));
        assert!(stderr(&output).contains(message), "{args}: {}", stderr(&output));
        assert_ne!(output.status.code(), Some(0), "{args}");
        let left = std::fs::read_dir(folder.path()).expect("the folder").count();
        assert_eq!(left, 0, "{args}");
    }
}

/// Runs the program under resource limits that the shell sets, and checks its error.
#[track_caller]
fn check_limited(limits: &str, args: &str, message: &str) {
    let folder = folder();
    let script = format!("{limits}; exec \"$0\" bench {args} --output-format=json");
    let program = env!("CARGO_BIN_EXE_forebay");
    let output = std::process::Command::new("sh")
        .args(["-c", &script, program])
        .current_dir(folder.path())
        .output()
        .expect("a shell");
    assert!(stderr(&output).contains(message), "{args}: {}", stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{args}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "{args}");
}

#[test]
fn a_layout_that_fails_is_taken_back() {
    let message = "a: cannot lay out a.0.0: File too large (os error 27); it needs 8388608 more \
                   bytes, and ";
    check_limited("trap '' XFSZ; ulimit -f 2048", "--name=a --size=8m", message);
}

#[test]
fn threads_that_cannot_be_started_are_no_reason_to_hang() {
    check_limited(
        // Stacks of 1 GiB: about a dozen fit into the address space.
        "export RUST_MIN_STACK=1073741824; ulimit -v 16777216",
        "--name=a --filename=null:1M --numjobs=64",
        " of 64 threads could be started: ",
    );
}

#[test]
fn more_memory_than_there_is_is_refused() {
    for (args, message) in [
        (
            "--bs=1g --iodepth=65536 --numjobs=64",
            "--bs=1073741824 x --iodepth=65536 x --numjobs=64",
        ),
        ("--rw=write --bs=64 --verify=crc32c", "one bit for each of --bs=64 in --size"),
    ] {
        let filename = "--filename=null:4194304T?logical_block_size=1";
        let output = bench(&folder(), &format!("--name=a {filename} {args}"));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Returns a block device that is mounted on this machine, if there is one.
pub(crate) fn mounted_device() -> Option<String> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mountinfo.lines().find_map(|line| {
        let uevent = format!("/sys/dev/block/{}/uevent", line.split(' ').nth(2)?);
        let uevent = std::fs::read_to_string(uevent).ok()?;
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
        Some(format!("/dev/{name}")).filter(|path| std::fs::exists(path).is_ok_and(|yes| yes))
    })
}

/// A loop device with a file system, mounted for a test.
struct MountedLoop {
    folder: tempfile::TempDir,
    device: Option<String>,
    is_mounted: bool,
}

impl MountedLoop {
    /// Sets up a device, or returns why that is not possible.
    fn new() -> Result<Self, String> {
        let run = |program: &str, args: &[&str]| {
            let output = std::process::Command::new(program).args(args).output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            match output.status.success() {
                true => Ok(stdout(&output).trim().to_owned()),
                false => Err(format!("{program}: {}", stderr(&output).trim())),
            }
        };
        let mut mounted = Self { folder: folder(), device: None, is_mounted: false };
        let path = |name: &str| mounted.folder.path().join(name).display().to_string();
        let (image, point) = (path("image"), path("point"));
        std::fs::write(&image, vec![0; 4 << 20]).expect("a file");
        std::fs::create_dir(&point).expect("a folder");
        let device = run("losetup", &["--find", "--show", &image])?;
        mounted.device = Some(device.clone());
        run("mkfs.ext2", &["-q", &device])?;
        run("mount", &[&device, &point])?;
        mounted.is_mounted = true;
        Ok(mounted)
    }
}

impl Drop for MountedLoop {
    fn drop(&mut self) {
        let run = |program: &str, arg: &std::ffi::OsStr| {
            // If this fails, the device stays; the test itself has ended by then.
            let _ = std::process::Command::new(program).arg(arg).status();
        };
        if self.is_mounted {
            run("umount", self.folder.path().join("point").as_os_str());
        }
        if let Some(device) = &self.device {
            let _ = std::process::Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

#[test]
fn a_mounted_device_is_not_written_to() {
    let test = "a_mounted_device_is_not_written_to";
    // A container may have no mounted device, but may be able to create one.
    let (device, _guard) = match mounted_device() {
        Some(device) => (device, None),
        None => match MountedLoop::new() {
            Ok(made) => (made.device.clone().unwrap_or_default(), Some(made)),
            Err(why) => {
                let why = format!("no block device is mounted here, and none can be: {why}");
                return skip_unless_required(test, &why);
            }
        },
    };
    // Without the refusal under test, the layer would still refuse each write.
    let args = format!("--name=a --rw=write --size=4k --filename={device}?read_only=on");
    let output = bench(&folder(), &args);
    let message = stderr(&output);
    assert!(message.starts_with(&format!("forebay: a: {device} is mounted at /")), "{message}");
    assert!(message.ends_with("; --allow_mounted_write=1 allows it\n"), "{message}");
    assert_eq!(output.status.code(), Some(1));
    let output = bench(&folder(), &format!("{args} --allow_mounted_write=1"));
    assert!(!stderr(&output).contains("is mounted"), "{}", stderr(&output));
}

#[test]
fn missing_files_need_a_size() {
    check(
        "--name=a --filename=missing.img",
        1,
        "a: missing.img does not exist or is empty; give --size to create it",
    );
    check(
        "--name=a --size=50%",
        1,
        "a: a.0.0 does not exist or is empty; give --size to create it",
    );
}

#[test]
fn jobs_must_fit_their_disk() {
    check(
        "--name=a --filename=ram:1M --size=2M",
        1,
        "a: offset 0 + size 2097152 is beyond the end of the device, which has 1048576 bytes; \
         lower --size or --offset",
    );
    check(
        "--name=a --filename=disk.img --bs=2m",
        1,
        "a: the block size (2097152 bytes) is larger than the region (1048576 bytes); lower --bs \
         or raise --size",
    );
}

#[test]
fn direct_io_needs_aligned_blocks() {
    check(
        "--name=a --filename=disk.img --direct=1 --bs=1000",
        1,
        "a: --bs=1000 is not a multiple of the logical block size of disk.img, 512 bytes",
    );
    check(
        "--name=a --filename=disk.img --direct=1 --offset=100",
        1,
        "a: --offset=100 is not a multiple of the logical block size of disk.img, 512 bytes",
    );
}

/// Runs a copy of the program on a file with this mode, as an unprivileged user. The superuser
/// ignores the mode.
#[track_caller]
fn as_unprivileged_user(test: &str, mode: u32, args: &[&str]) -> Option<std::process::Output> {
    let folder = unprivileged::folder_with_program();
    let path = data_file(&folder, "disk.img", 1 << 20);
    unprivileged::set_mode(&path, mode);
    unprivileged::run(test, &folder, args)
}

#[test]
fn missing_permission_is_reported() {
    let args = ["bench", "--name=a", "--filename=disk.img", "--output-format=json"];
    let Some(output) = as_unprivileged_user("missing_permission_is_reported", 0o000, &args) else {
        return;
    };
    assert_eq!(stderr(&output), "forebay: a: disk.img: no permission to read it\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn info_describes_a_disk_that_another_program_writes_to() {
    let folder = folder();
    let path = data_file(&folder, "disk.img", 1 << 20);
    let _writer = forebay::Disk::open(path.to_str().expect("a path in UTF-8")).expect("it opens");
    let output = forebay(&folder).args(["info", "disk.img"]).output().expect("it runs");
    assert_eq!(
        stderr(&output),
        "forebay: disk.img: another program uses it; opened with read_only=on&lock=off\n"
    );
    assert_eq!(output.status.code(), Some(0));
    let output = forebay(&folder).args(["info", "disk.img?read_only=on"]).output();
    let output = output.expect("it runs");
    assert!(stderr(&output).contains("another program writes to it"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn info_opens_a_disk_read_only_if_it_may_not_write() {
    let test = "info_opens_a_disk_read_only_if_it_may_not_write";
    let Some(output) = as_unprivileged_user(test, 0o444, &["info", "disk.img"]) else { return };
    assert_eq!(
        stderr(&output),
        "forebay: disk.img: no permission to write to it; opened with read_only=on\n"
    );
    assert!(stdout(&output).contains("\nread-only                   yes\n"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
    let Some(output) = as_unprivileged_user(test, 0o000, &["info", "disk.img"]) else { return };
    assert_eq!(stderr(&output), "forebay: disk.img: no permission to read it\n");
}

#[test]
fn a_first_error_ends_the_job_and_is_reported() {
    let folder = folder();
    let args = "--name=a --filename=fault:ram:1M?rule=read:medium:range=64k+4k --iodepth=4 \
                --output-format=json";
    let output = bench(&folder, args);
    assert_eq!(
        stderr(&output),
        "forebay: a: read of 4096 bytes at offset 65536: medium error: these sectors cannot be \
         read or written\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let report = crate::common::json(&output);
    assert_eq!(report["jobs"][0]["error"], 61);
    let ios = report["jobs"][0]["read"]["total_ios"].as_u64().expect("a number");
    assert!((16..=20).contains(&ios), "{ios}");
}

#[test]
fn info_describes_and_refuses() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let info =
        |args: &[&str]| forebay(&folder).arg("info").args(args).output().expect("it can be run");
    let output = info(&["disk.img?direct=on", "--json"]);
    let value = crate::common::json(&output);
    assert_eq!((&value["driver"], &value["capacity_bytes"]), (&"file".into(), &(1 << 20).into()));
    assert_eq!(value["features"]["direct"]["present"], true);
    assert_eq!(value["limits"]["logical_block_size"], 512);

    let text = stdout(&info(&["null:1M"]));
    assert!(text.contains("\n  flush                     no: there is no cache"), "{text}");

    let output = info(&["ram:1M?wake=stash&nr_hw_queues=1"]);
    let starves =
        "starves most threads while requests wait for tags (68 of 72 in `forebay lab tags`)";
    let warning = format!(
        "forebay: warning: ram:1M: wake=stash is for experiments only: {starves}; use wake=fair\n"
    );
    assert_eq!(stderr(&output), warning);
    let line = format!("\n  wake                      stash (for experiments only: {starves})\n");
    assert!(stdout(&output).contains(&line), "{}", stdout(&output));
    let value = crate::common::json(&info(&["ram:1M?plug=per-level", "--json"]));
    let why = &value["experimental_settings"]["plug"];
    assert!(why.as_str().is_some_and(|why| why.starts_with("for comparison: ")), "{why}");

    for (spec, scheduler, advised, in_use, remark) in [
        ("model:hdd?size=1M", "mq-deadline", "mq-deadline", true, "recommended: the disk is rot"),
        ("model:hdd?size=1M&scheduler=none", "none", "mq-deadline", false, "mq-deadline is recomm"),
        ("model:nvme?size=1M", "none", "none", true, "recommended: the disk is not rotational"),
        ("null:1M", "none", "none", true, "recommended: the disk is in memory"),
    ] {
        let text = stdout(&info(&[spec]));
        let line = format!("\n  scheduler                 {scheduler} ({remark}");
        assert!(text.contains(&line), "{spec}: {text}");
        let advice = &crate::common::json(&info(&[spec, "--json"]))["scheduler_advice"];
        assert_eq!((&advice["scheduler"], &advice["in_use"]), (&advised.into(), &in_use.into()));
        assert!(advice["why"].as_str().is_some_and(|why| !why.is_empty()), "{spec}");
    }

    // It depends on the machine.
    let text = stdout(&info(&["disk.img"]));
    assert!(text.contains("recommended: "), "{text}");

    let output = info(&["nvme:somewhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("forebay: nvme:somewhere: driver `nvme` is not in this"));
    let output = info(&["nbd://somewhere/x?socket=y"]);
    assert_eq!(output.status.code(), Some(2));
    let words = "nbd://somewhere/x: `socket` is only allowed with nbd+unix:// and nbds+unix://";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    let output = info(&["nbd+unix:///x?socket=missing.sock"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("there is no such socket"), "{}", stderr(&output));
    let output = info(&["missing.img"]);
    assert_eq!(output.status.code(), Some(1));
    let output = info(&[]);
    assert_eq!(output.status.code(), Some(2));
}
