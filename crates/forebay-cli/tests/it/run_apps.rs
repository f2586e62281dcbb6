//! Real programs, unmodified, under `forebay run`: fio, sysbench, qemu-io and qemu-img. They check
//! their data, and the counters show that the layer has had their iocbs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::{data_file, folder, skip_unless_required, skip_without, stderr, stdout};
use crate::run::{counters_of_all, run};

/// The time after which a program is killed, because it hangs. All take a few seconds at most.
const SECONDS_MAX: &str = "60";

/// The counters of the processes of a program, added up.
#[derive(Clone, Copy, Debug)]
struct Sums {
    nr_processes: usize,
    iocbs: u64,
    requests: u64,
    merges: u64,
}

/// Returns the sums of the processes with this name.
fn sums(report: &str, name: &str) -> Sums {
    let all = counters_of_all(report, name);
    let sum = |nth: usize| all.iter().map(|counters| counters[nth]).sum();
    let sums = Sums { nr_processes: all.len(), iocbs: sum(0), requests: sum(1), merges: sum(2) };
    // Repeats are further requests.
    assert!(sums.iocbs <= sums.requests + sums.merges, "{report}");
    sums
}

/// Returns whether a program is installed. Otherwise skips the test.
#[track_caller]
fn has(program: &str, test: &str) -> bool {
    let is_installed = Command::new(program).arg("--version").output().is_ok();
    if !is_installed {
        skip_without(program, test);
    }
    is_installed
}

/// Runs a program under `forebay run`. Returns its output, and the sums of its counters.
fn play(folder: &TempDir, args: &[&str]) -> (Output, Sums) {
    let mut command = run(folder, "--stats report -- timeout -s KILL");
    let output = command.arg(SECONDS_MAX).args(args).output().expect("it can be run");
    let report = fs::read_to_string(folder.path().join("report"))
        .unwrap_or_else(|error| panic!("{args:?}: no report: {error}: {}", stderr(&output)));
    (output, sums(&report, args[0]))
}

/// Does the same. The program must succeed, and have made iocbs.
#[track_caller]
fn play_well(folder: &TempDir, args: &[&str]) -> (String, Sums) {
    let (output, sums) = play(folder, args);
    let status = output.status;
    assert!(status.success(), "{args:?}: {status}\n{}{}", stdout(&output), stderr(&output));
    assert!(sums.iocbs > 0, "{args:?}: {sums:?}");
    (stdout(&output), sums)
}

/// fio with batches of 16 of 32 iocbs.
const FIO: &str = "fio --ioengine=libaio --iodepth=32 --iodepth_batch=16 \
                   --iodepth_batch_complete_min=16 --bs=4k --size=8m --name=a";

/// Runs fio. Its jobs verify their data.
#[track_caller]
fn fio(folder: &TempDir, args: &str) -> Sums {
    let args = format!("{FIO} --verify=crc32c --verify_fatal=1 {args}");
    play_well(folder, &args.split_whitespace().collect::<Vec<_>>()).1
}

/// Runs fio with each way of access. The reads verify what `write` has left.
fn fio_verifies_each_way(direct: &str) {
    let folder = folder();
    for rw in ["write", "read", "randread", "randwrite", "rw", "randrw"] {
        let sums = fio(&folder, &format!("{direct} --rw={rw}"));
        // Random batches have neighbours only by chance, and mixed ones few.
        let has_neighbours = direct == "--direct=1" && matches!(rw, "write" | "read");
        if has_neighbours {
            assert!(sums.iocbs >= 2048 && sums.requests < sums.iocbs / 4, "{rw}: {sums:?}");
        } else if direct == "--direct=0" {
            assert_eq!(sums.merges, 0, "{rw}");
        }
    }
    for rw in ["write", "randwrite", "rw", "randrw"] {
        let sums = fio(&folder, &format!("{direct} --rw={rw} --bsrange=512-128k"));
        assert_eq!(sums.merges > 0, direct == "--direct=1", "{rw}: {sums:?}");
    }
}

#[test]
fn fio_verifies_direct_io() {
    if has("fio", "fio_verifies_direct_io") {
        fio_verifies_each_way("--direct=1");
    }
}

#[test]
fn fio_verifies_buffered_io() {
    if has("fio", "fio_verifies_buffered_io") {
        fio_verifies_each_way("--direct=0");
    }
}

#[test]
fn fio_verifies_in_forked_jobs_at_once() {
    if !has("fio", "fio_verifies_in_forked_jobs_at_once") {
        return;
    }
    let folder = folder();
    for rw in ["write", "randrw --bsrange=4k-64k", "rw --fsync=64"] {
        // Each job is a process with a file of its own.
        let sums = fio(&folder, &format!("--direct=1 --numjobs=4 --rw={rw}"));
        assert!(sums.nr_processes == 4 && sums.merges > 0, "{rw}: {sums:?}");
    }
}

#[test]
fn fio_that_reads_the_ring_of_events_verifies_its_data() {
    if !has("fio", "fio_that_reads_the_ring_of_events") {
        return;
    }
    let folder = folder();
    for rw in ["write", "randwrite", "randrw"] {
        // fio reads the ring only where it waits for no event. Then it submits one by one. Each
        // event may take a millisecond, the time that the layer waits for a call.
        let args = "--direct=1 --size=1m --userspace_reap=1 --iodepth_batch_complete_min=0";
        let sums = fio(&folder, &format!("{args} --rw={rw}"));
        assert!(sums.iocbs >= 256, "{rw}: {sums:?}");
    }
}

/// A loop device on a file of 8 MiB.
struct LoopDevice {
    node: String,
    image: PathBuf,
}

impl LoopDevice {
    fn new(folder: &TempDir, name: &str) -> Result<LoopDevice, String> {
        let image = data_file(folder, name, 8 << 20);
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(LoopDevice { node: stdout(&output).trim().to_owned(), image }),
            false => Err(stderr(&output)),
        }
    }

    /// Returns which blocks are zero.
    fn zeroes(&self) -> Vec<bool> {
        let data = fs::read(&self.image).expect("the file");
        data.chunks(4096).map(|block| block.iter().all(|byte| *byte == 0)).collect()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.node]).status();
        let is_clean = detached.is_ok_and(|status| status.success());
        assert!(is_clean || std::thread::panicking(), "{} stays attached", self.node);
    }
}

#[test]
fn fio_trims_the_same_blocks_and_verifies_the_others() {
    let test = "fio_trims_the_same_blocks";
    if !has("fio", test) {
        return;
    }
    let folder = folder();
    // Trims of a file in memory are quick.
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return skip_unless_required(test, "no folder can be created in /dev/shm");
    };
    let devices = [LoopDevice::new(&memory, "plain"), LoopDevice::new(&memory, "layered")];
    let [Ok(plain), Ok(layered)] = &devices else {
        let why = devices.iter().find_map(|device| device.as_ref().err()).expect("an error");
        return skip_unless_required(test, &format!("no loop device: {why}"));
    };
    // fio selects the same random blocks in each run.
    // Each with the least number of iocbs, and of blocks that are zero afterwards. Trims are no
    // iocbs, and a write between two of them has no neighbour. `--trim_percentage` ends with a
    // failed assertion in fio 3.33, and `randtrimwrite` with an offset writes nothing, also without
    // the layer.
    for (args, iocbs_min, zeroes_min) in [
        ("--rw=write --size=8m", 4096, 0),
        ("--rw=randtrim --size=4m --io_size=1m", 0, 256),
        ("--rw=trim --size=4m --io_size=256k", 0, 280),
        ("--rw=trimwrite --offset=3m --size=1m", 512, 100),
        ("--rw=randtrimwrite --size=1m", 512, 64),
        ("--rw=randtrim --offset=6m --size=2m --io_size=512k", 0, 192),
        ("--rw=write --size=8m", 4096, 0),
    ] {
        let verify = if iocbs_min > 0 { "--verify=crc32c --verify_fatal=1" } else { "" };
        let line = |device: &LoopDevice| {
            format!("{FIO} --direct=1 {verify} {args} --filename={}", device.node)
        };
        let (plain_line, layered_line) = (line(plain), line(layered));
        let mut words = plain_line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        let output = command.args(words).current_dir(folder.path()).output();
        let output = output.expect("it can be run");
        assert!(output.status.success(), "{args}: {}", stderr(&output));
        let (output, sums) = play(&folder, &layered_line.split_whitespace().collect::<Vec<_>>());
        assert!(output.status.success(), "{args}: {}", stderr(&output));
        assert!(sums.iocbs >= iocbs_min, "{args}: {sums:?}");
        if args.starts_with("--rw=write") {
            assert!(sums.requests < sums.iocbs / 4, "{args}: {sums:?}");
        }
        let zeroes = plain.zeroes();
        let nr = zeroes.iter().filter(|is_zero| **is_zero).count();
        assert!(nr >= zeroes_min, "{args}: {nr} blocks are zero");
        assert!(zeroes == layered.zeroes(), "{args}: other blocks are zero under the layer");
    }
}

/// The arguments of sysbench for 32 MiB in four files.
const SYSBENCH: &str = "sysbench fileio --file-num=4 --file-total-size=32M --time=20 \
                        --file-io-mode=async --file-extra-flags=direct";

#[track_caller]
fn sysbench(folder: &TempDir, args: &str) -> Sums {
    let args: Vec<&str> = SYSBENCH.split_whitespace().chain(args.split_whitespace()).collect();
    play_well(folder, &args).1
}

/// Creates the files of sysbench, without the layer.
fn prepare(folder: &TempDir) {
    let mut words = SYSBENCH.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    let output = command.args(words).arg("prepare").current_dir(folder.path()).output();
    assert!(output.expect("it can be run").status.success());
}

#[test]
fn sysbench_validates_its_blocks() {
    if !has("sysbench", "sysbench_validates_its_blocks") {
        return;
    }
    let folder = folder();
    prepare(&folder);
    for threads in [4, 16] {
        // With a backlog, sysbench fills a buffer whose write is in flight, and validates one whose
        // read is: its checksums are wrong then, also with the system's libaio.
        let usual = format!("--validate=on --file-async-backlog=1 --threads={threads}");
        // The first mode writes all of the 2,048 blocks. The others validate them.
        for mode in ["seqwr", "seqrd", "rndrw"] {
            let args = format!("{usual} --events=3000 --file-test-mode={mode} run");
            let sums = sysbench(&folder, &args);
            assert!(sums.iocbs >= 2048, "{mode}: {sums:?}");
        }
    }
}

#[test]
fn sysbench_ends_with_a_backlog_and_syncs() {
    if !has("sysbench", "sysbench_ends_with_a_backlog_and_syncs") {
        return;
    }
    let folder = folder();
    prepare(&folder);
    let modes = ["seqwr --validate=on", "rndwr --validate=on", "rndrw", "seqrewr"];
    let syncs = [
        "--file-fsync-freq=50",
        "--file-fsync-freq=20 --file-fsync-mode=fdatasync",
        "--file-fsync-freq=0 --file-fsync-end=off",
        "--file-fsync-all=on",
    ];
    for threads in [4, 16] {
        for (mode, sync) in modes.iter().zip(syncs) {
            // The first mode writes the files anew, and the others need all of them.
            let args = format!("--threads={threads} --events=4000 {sync} --file-test-mode={mode}");
            let sums = sysbench(&folder, &format!("{args} run"));
            assert!(sums.iocbs > 500, "{args}: {sums:?}");
        }
    }
}

/// Returns the options of QEMU for a file with direct and native AIO.
fn image(file: &str) -> String {
    format!("driver=file,filename={file},aio=native,cache.direct=on")
}

#[test]
fn qemu_io_reads_back_its_patterns() {
    if !has("qemu-io", "qemu_io_reads_back_its_patterns") {
        return;
    }
    let folder = folder();
    let path = data_file(&folder, "disk", 16 << 20);
    let mut expected = fs::read(&path).expect("the file");
    let mut commands = Vec::new();
    let mut wanted = Vec::new();
    let mut pattern = 0_u8;
    // Each command is a write of a pattern, and then a read of it. Those of QEMU that are not
    // aligned to blocks become reads and writes of whole blocks.
    let mut push = |write: &str, read: &str, at: usize, lens: &[usize]| {
        pattern += 1;
        let lens_text: Vec<String> = lens.iter().map(usize::to_string).collect();
        let tail = format!("-P {pattern} {at} {}", lens_text.join(" "));
        commands.push(format!("{write} {tail}"));
        wanted.push(format!("{read} {tail}"));
        expected[at..at + lens.iter().sum::<usize>()].fill(pattern);
    };
    push("write", "read", 0, &[1 << 20]);
    push("write", "aio_read", (1 << 20) + 512, &[1536]);
    push("writev", "readv", 2 << 20, &[4096, 8192, 16384]);
    push("writev", "readv", (3 << 20) + 4096, &[512, 1024, 512]);
    for nth in 0..32 {
        push("aio_write", "aio_read", (4 << 20) + nth * 65536, &[65536]);
    }
    for nth in 0..16 {
        push("aio_write", "readv", (8 << 20) + nth * 69632, &[4096]);
    }
    let flush = [String::from("aio_flush"), String::from("flush")];
    let all = commands.iter().chain(&flush).chain(&wanted).chain(&flush);
    let image = image("disk");
    let mut args = vec!["qemu-io", "--image-opts", &image];
    all.for_each(|command| args.extend(["-c", command]));
    let (text, sums) = play_well(&folder, &args);
    // qemu-io reports a wrong pattern of an `aio_read` only as text.
    assert!(!text.contains("failed"), "{text}");
    assert!(sums.iocbs >= 104, "{sums:?}");
    assert!(fs::read(&path).expect("the file") == expected, "the file differs");
}

#[test]
fn qemu_img_converts_and_measures() {
    if !has("qemu-img", "qemu_img_converts_and_measures") {
        return;
    }
    let folder = folder();
    let data = fs::read(data_file(&folder, "source", 24 << 20)).expect("the file");
    let plain = |args: &str| {
        let mut command = Command::new("qemu-img");
        let output = command.args(args.split_whitespace()).current_dir(folder.path()).output();
        let output = output.expect("it can be run");
        assert!(output.status.success(), "{args}: {}", stderr(&output));
    };
    plain("create -q -f raw copy 24M");
    plain("create -q -f qcow2 disk.qcow2 24M");
    let [source, copy, qcow2] = [image("source"), image("copy"), image("disk.qcow2")];
    let qcow2 = format!("driver=qcow2,cache.direct=on,file.{}", qcow2.replace(',', ",file."));
    let convert = ["qemu-img", "convert", "--image-opts", "--target-image-opts", "-n"];
    for (from, to) in [(&source, &copy), (&source, &qcow2), (&qcow2, &copy)] {
        fs::write(folder.path().join("copy"), vec![0; 24 << 20]).expect("the file");
        // Eight coroutines, whose writes are not in order.
        play_well(&folder, &[&convert[..], &["-W", "-m", "8", from, to]].concat());
        if to == &copy {
            assert!(fs::read(folder.path().join("copy")).expect("the file") == data, "{from}");
        }
    }
    plain("check -q disk.qcow2");
    plain("compare -q -f raw -F qcow2 source disk.qcow2");
    let bench = ["qemu-img", "bench", "--image-opts", "-c", "4000", "-d", "64", "-s", "4096"];
    let (_, sums) = play_well(&folder, &[&bench[..], &[&source]].concat());
    assert!(sums.iocbs >= 4000, "{sums:?}");
    let writes = ["-w", "--pattern=7", "--flush-interval=100", &copy];
    play_well(&folder, &[&bench[..], &writes[..]].concat());
    let copy = fs::read(folder.path().join("copy")).expect("the file");
    let (written, rest) = copy.split_at(4000 * 4096);
    assert!(written.iter().all(|byte| *byte == 7) && rest == &data[4000 * 4096..]);
}
