//! `forebay bench`: its effects and its reports.

use crate::common::{bench, bench_json, data_file, folder, stderr, stdout};

/// The command of the published plugging figure, on a file, for a second.
#[test]
fn readonly_neither_creates_nor_extends_a_file() {
    let folder = folder();
    let run = |size: &str| {
        let args = format!("--name=a --rw=read --size={size} --filename=disk.img --readonly");
        bench(&folder, &args)
    };
    let missing = run("1m");
    assert_eq!(missing.status.code(), Some(1));
    let expected = "a: disk.img does not exist, and --readonly forbids creating it; run ";
    assert!(stderr(&missing).contains(expected), "{}", stderr(&missing));
    assert!(!folder.path().join("disk.img").exists());
    std::fs::write(folder.path().join("disk.img"), [7; 4096]).expect("a file");
    let short = run("8k");
    let expected = "a: disk.img has 4096 bytes, the job needs 8192, and --readonly forbids";
    assert!(stderr(&short).contains(expected), "{}", stderr(&short));
    assert_eq!(std::fs::read(folder.path().join("disk.img")).expect("the file"), [7; 4096]);
    assert_eq!(run("4k").status.code(), Some(0));
}

#[test]
fn the_published_command_merges_sixteen_reads_into_one() {
    let folder = folder();
    data_file(&folder, "disk.img", 64 << 20);
    let args = "--rw=read --bs=4k --iodepth=128 --iodepth_batch=16 --iodepth_batch_complete=16 \
                --runtime=1s --direct=1 --filename=disk.img --name=job1 --ioengine=libaio \
                --time_based";
    let report = bench_json(&folder, args);
    let (job, disk) = (&report["jobs"][0], &report["disk_util"][0]);
    let ios = job["read"]["total_ios"].as_u64().expect("a number");
    assert_eq!(disk["name"], "aio:disk.img");
    assert_eq!(disk["read_merges"], ios / 16 * 15);
    assert_eq!(disk["read_ios"], ios / 16);
    assert_eq!(job["iodepth_submit"]["16"], 100.0);
    assert!(job["read"]["runtime"].as_u64().expect("a number") >= 1000);

    let layer = &report["forebay"][0];
    assert_eq!(layer["bios"]["read"], ios);
    assert_eq!(layer["merges"]["back"], ios / 16 * 15);
    assert_eq!(layer["unplugs"]["outermost"], ios / 16);
    assert_eq!(layer["latency_ns"]["driver"]["n"], ios / 16);
    assert_eq!(layer["policy"]["plug"], "outermost");
}

#[test]
fn plugs_per_level_take_the_batches_apart() {
    let folder = folder();
    let args = "--name=a --rw=read --filename=ram:1M --iodepth=32 --iodepth_batch=16 --size=1m \
                --iodepth_batch_complete=16 --plug=per-level";
    let report = bench_json(&folder, args);
    assert_eq!(report["disk_util"][0]["read_merges"], 0);
    assert_eq!(report["forebay"][0]["unplugs"]["level"], 256);
    assert_eq!(report["forebay"][0]["policy"]["plug"], "per-level");
}

#[test]
fn one_pass_reads_every_block_once() {
    let folder = folder();
    for rw in ["read", "randread"] {
        let report = bench_json(&folder, &format!("--name=a --rw={rw} --filename=ram:3M --bs=8k"));
        let read = &report["jobs"][0]["read"];
        assert_eq!(read["io_bytes"], 3 << 20, "{rw}");
        assert_eq!(read["total_ios"], 384, "{rw}");
        assert_eq!(read["short_ios"], 0, "{rw}");
    }
}

#[test]
fn sizes_and_offsets_bound_the_work() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    for (args, ios) in [
        ("--size=50%", 128),
        ("--offset=512k", 128),
        ("--offset=25% --size=64k", 16),
        ("--size=64k --io_size=1m", 256),
        ("--io_size=10k", 3),
    ] {
        let report = bench_json(&folder, &format!("--name=a --filename=disk.img {args}"));
        assert_eq!(report["jobs"][0]["read"]["total_ios"], ios, "{args}");
    }
}

#[test]
fn missing_files_are_laid_out() {
    let folder = folder();
    let output = bench(&folder, "--name=a --rw=read --size=5m");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("\na: Laying out IO file (1 file / 5MiB)\n"));
    let data = std::fs::read(folder.path().join("a.0.0")).expect("fio's name for it");
    assert_eq!(data.len(), 5 << 20);
    assert!(data.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)), "holes");

    // A large enough file is left as it is; a smaller one is extended.
    let output = bench(&folder, "--name=a --rw=read --size=1m --output-format=json");
    assert_eq!(stderr(&output), "");
    let output = bench(&folder, "--name=a --rw=write --size=6m --output-format=json");
    assert_eq!(stderr(&output), "a: Laying out IO file (1 file / 6MiB)\n");
    crate::common::json(&output);
}

#[test]
fn mixed_jobs_flush_and_trim() {
    let folder = folder();
    let args = "--name=a --rw=randrw --filename=disk.img --size=4m --fsync=8 --end_fsync=1 \
                --rwmixread=25 --iodepth=8";
    let report = bench_json(&folder, args);
    let job = &report["jobs"][0];
    let count = |direction: &str| job[direction]["total_ios"].as_u64().expect("a number");
    assert_eq!(count("read") + count("write"), 1024);
    assert!((170..340).contains(&count("read")), "{}", count("read"));
    let flushes = job["sync"]["total_ios"].as_u64().expect("a number");
    // There is no flush after the last I/O. As in fio, the flush that ends the job is not counted.
    assert!((count("write").div_ceil(8) - 1..=count("write") / 8).contains(&flushes));
    assert_eq!(report["forebay"][0]["bios"]["flush"], flushes + 1);

    let report = bench_json(&folder, "--name=a --rw=trim --filename=ram:1M --bs=64k");
    assert_eq!(report["jobs"][0]["trim"]["total_ios"], 16);
    assert_eq!(report["forebay"][0]["bios"]["discard"], 16);
}

#[test]
fn clones_are_reported_alone_or_as_a_group() {
    let folder = folder();
    let args = "--name=a --filename=null:1M --numjobs=3 --rw=randread";
    let report = bench_json(&folder, args);
    assert_eq!(report["jobs"].as_array().map(Vec::len), Some(3));
    // The clones share their disk.
    assert_eq!(report["forebay"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["disk_util"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["forebay"][0]["jobs"].as_array().map(Vec::len), Some(3));
    let report = bench_json(&folder, &format!("{args} --group_reporting"));
    assert_eq!(report["jobs"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["jobs"][0]["read"]["total_ios"], 768);
    assert_eq!(report["disk_util"][0]["read_ios"], 768);

    let text = stdout(&bench(&folder, &format!("{args} --group_reporting")));
    assert!(text.contains("\n...\nforebay-"), "{text}");
    assert!(text.contains("\nStarting 3 threads\n"), "{text}");
    assert!(text.contains("\na: (groupid=0, jobs=3): err= 0: pid="), "{text}");
}

#[test]
fn a_report_can_go_to_a_file() {
    let folder = folder();
    let output = bench(&folder, "--name=a --filename=ram:1M --output=out.txt");
    assert_eq!((stdout(&output), stderr(&output)), (String::new(), String::new()));
    let text = std::fs::read_to_string(folder.path().join("out.txt")).expect("the report");
    assert!(text.starts_with("a: (g=0): rw=read, bs=(R) 4096B-4096B,"), "{text}");
    assert!(text.contains("ioengine=ram, iodepth=1\nforebay-"), "{text}");
    assert!(text.contains("\nDisk stats (read/write):\n  ram:1M: ios=256/0,"), "{text}");
}

#[test]
fn without_a_job_there_is_a_first_measurement() {
    let folder = folder();
    let report = bench_json(&folder, "--runtime=100ms");
    assert_eq!(report["jobs"][0]["jobname"], "bench");
    assert_eq!(report["jobs"][0]["latency_depth"], 32);
    assert_eq!(report["disk_util"][0]["name"], "ram:1G");
    assert_eq!(report["jobs"][0]["job options"]["runtime"], "100ms");
}

#[test]
fn fewer_bios_than_the_depth_are_enough() {
    let folder = folder();
    let args = "--name=a --filename=ram:1M?nr_bios=3 --rw=randread --iodepth=32 --iodepth_batch=8";
    assert_eq!(bench_json(&folder, args)["jobs"][0]["read"]["total_ios"], 256);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    use std::process::Stdio;
    let folder = folder();
    let mut child = crate::common::forebay(&folder)
        .args(["bench", "--help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

#[test]
fn the_last_flush_is_a_part_of_the_runtime() {
    let folder = folder();
    let args = "--name=a --rw=write --filename=disk.img --bs=1m --size=64m --end_fsync=1";
    let report = bench_json(&folder, args);
    let driver = &report["forebay"][0]["latency_ns"]["driver"];
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    // Without overlap, the run takes at least the sum of the times of 64 writes and a flush.
    assert_eq!(driver["n"], 65);
    let sum_ms = 65 * number(&driver["mean"]) / 1_000_000;
    let runtime_ms = number(&report["jobs"][0]["write"]["runtime"]);
    assert!(runtime_ms >= sum_ms, "{runtime_ms} ms, and {sum_ms} ms at the driver");
}

/// Latency sums are exact, and so are the means, up to the decimals in the report.
#[test]
fn completion_latency_is_the_total_less_the_submission_latency() {
    let folder = folder();
    data_file(&folder, "disk.img", 4 << 20);
    let args = "--name=a --filename=disk.img --rw=randread --iodepth=8 --iodepth_batch=4";
    let report = bench_json(&folder, args);
    let read = &report["jobs"][0]["read"];
    let mean = |name: &str| read[name]["mean"].as_f64().expect("a number");
    let (slat, clat, lat) = (mean("slat_ns"), mean("clat_ns"), mean("lat_ns"));
    assert!(slat > 0.0 && clat > 0.0, "{slat} and {clat}");
    assert!((slat + clat - lat).abs() < 1e-3, "{slat} + {clat} is not {lat}");
}

/// A clone that spins reads the clock in user mode, without a system call.
#[test]
fn user_time_and_system_time_are_not_exchanged() {
    let folder = folder();
    let args = "--name=a --filename=ram:1M --time_based --runtime=600ms --thinktime=100ms \
                --thinktime_spin=100ms";
    let report = bench_json(&folder, args);
    let percent = |name: &str| report["jobs"][0][name].as_f64().expect("a number");
    let (user, system) = (percent("usr_cpu"), percent("sys_cpu"));
    assert!(user > system, "user {user} %, system {system} %");
}

/// Checks the layer's report on a load without timing: batches of sixteen reads, of which fifteen
/// merge.
#[test]
fn the_layer_block_explains_its_counters_by_their_labels() {
    let folder = folder();
    let args = "--name=a --rw=read --filename=ram:1M?nr_hw_queues=1&max_sectors_kb=64&iostats=off \
                --iodepth=32 --iodepth_batch=16 --iodepth_batch_complete=16 --plug=outermost";
    let text = stdout(&bench(&folder, args));
    let layer = text.split("\nLayer (ram:1M):\n").nth(1).expect("a block");
    let lines: Vec<_> = layer.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "  requests     : bios=256, merged=93.8%, requests=16",
            "  to driver    : commands=16, batches=16, system calls=0",
            "  merges       : at the end=240, at the front=0, discard ranges=0",
            "  unplugged by : end of plug=16, end of inner plug=0, call=0, full plug=0, wait=0",
        ]
    );
    assert!(lines[4].starts_with("  queue runs   : total="), "{layer}");
    let delays = "  delays       : tag waits=0, device busy=0, retried after an error=0, \
                  not retried=0, over the time limit=0";
    assert_eq!(lines[5], delays);
    assert!(lines[6].starts_with("  a.0          : tag waits=0, switches: voluntary="), "{layer}");
    let settings = "  settings     : nr_hw_queues=1, iostats=off, max_sectors_kb=64";
    assert_eq!(lines[7..], [settings]);
}

#[test]
fn flushes_have_a_place_in_the_depths() {
    let folder = folder();
    let args = "--name=a --rw=write --filename=disk.img --size=512k --fsync=16 --iodepth=8";
    let report = bench_json(&folder, args);
    let levels = &report["jobs"][0]["iodepth_level"];
    // As fio 3.33 with libaio: 1, 2 and 4 writes on the way up, 121 writes and 7 flushes above.
    let percents = ["1", "2", "4", "8"].map(|level| levels[level].as_f64().expect("a number"));
    assert_eq!(percents, [0.78125, 1.5625, 3.125, 100.0]);
    assert_eq!(report["jobs"][0]["sync"]["total_ios"], 7);
}

#[test]
fn elapsed_is_that_of_the_run() {
    let folder = folder();
    let report = bench_json(
        &folder,
        "--filename=ram:1M --name=a --io_size=4k --name=b --runtime=1100ms --time_based",
    );
    let elapsed = |job: usize| report["jobs"][job]["elapsed"].as_u64().expect("a number");
    assert!(elapsed(0) >= 2 && elapsed(0) == elapsed(1), "{} and {}", elapsed(0), elapsed(1));
}

#[test]
fn odd_bytes_at_the_end_are_left_alone() {
    let folder = folder();
    for rw in ["write", "read"] {
        let args = format!("--name=a --rw={rw} --direct=1 --size=1000000 --filename=d.{rw}");
        assert_eq!(bench_json(&folder, &args)["jobs"][0][rw]["total_ios"], 244);
    }
}

/// Returns how many pages of a file are cached, as counted by fincore (util-linux); `None` without
/// it.
fn pages_in_memory(folder: &tempfile::TempDir, name: &str) -> Option<u64> {
    let output = std::process::Command::new("fincore")
        .args(["--noheadings", "--raw", "--output=PAGES", name])
        .current_dir(folder.path())
        .output()
        .ok()?;
    Some(stdout(&output).trim().parse().expect("a number"))
}

#[test]
fn the_page_cache_is_dropped_before_the_start() {
    let test = "the_page_cache_is_dropped_before_the_start";
    let folder = folder();
    let path = data_file(&folder, "disk.img", 16 << 20);
    std::fs::File::open(path).and_then(|file| file.sync_all()).expect("it is written back");
    let Some(before) = pages_in_memory(&folder, "disk.img") else {
        return crate::common::skip_without("fincore", test);
    };
    // The kernel may drop cached pages at any time, and a memory file system never drops them. In
    // both cases the test has nothing to check.
    let args = "--name=a --filename=disk.img --rw=randread --io_size=4k";
    bench_json(&folder, &format!("{args} --invalidate=0"));
    if before < 4096 || pages_in_memory(&folder, "disk.img") != Some(4096) {
        return crate::common::skip(test, "the page cache is too small");
    }
    bench_json(&folder, args);
    let left = pages_in_memory(&folder, "disk.img").expect("a number");
    let kind = std::process::Command::new("stat")
        .args(["--file-system", "--format=%T", "."])
        .current_dir(folder.path())
        .output();
    if kind.is_ok_and(|output| stdout(&output).trim() == "tmpfs") {
        return crate::common::skip(test, "pages of a tmpfs cannot be dropped");
    }
    assert!(left < 2048, "{left} pages");
}
