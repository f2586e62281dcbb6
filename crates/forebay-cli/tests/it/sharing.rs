//! Clones and jobs that share a disk: shared state, reports, and blocking calls.

use serde_json::Value;

use crate::common::{bench, bench_json, data_file, folder, stderr, stdout};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn one_jobs_data_is_seen_by_another() {
    let folder = folder();
    // All clones write all blocks many times concurrently, and then read them back. With the same
    // seed, a block is valid whichever clone wrote it; with two seeds, one clone finds a block of
    // the other.
    let args = "--filename=ram:256k --rw=randwrite --time_based --verify=crc32c";
    for engine in ["", "--ioengine=psync"] {
        let report = |runtime: &str| {
            let args = format!("{args} --runtime={runtime} {engine} --name=a --numjobs=4");
            bench_json(&folder, &args)
        };
        // On a busy machine a clone may get too little processor time for all blocks.
        let has_all =
            |report: &Value| (0..4).all(|job| report["jobs"][job]["read"]["total_ios"] == 64);
        let reports = ["300ms", "3s", "30s"].into_iter().map(report);
        let mut reports = reports.skip_while(|report| !has_all(report));
        let report = reports.next().expect("each clone writes all blocks");
        for job in 0..4 {
            let job = &report["jobs"][job];
            assert_eq!((&job["error"], &job["read"]["total_ios"]), (&0.into(), &64.into()));
        }
        let writes = (0..4).map(|job| number(&report["jobs"][job]["write"]["total_ios"]));
        let layer = &report["forebay"][0];
        assert_eq!(number(&layer["bios"]["write"]), writes.sum::<u64>());

        let two = |runtime: &str| {
            let jobs = "--name=a --randseed=1 --name=b --randseed=2";
            bench(&folder, &format!("{args} --runtime={runtime} {engine} {jobs}"))
        };
        let outputs = ["300ms", "3s", "30s"].into_iter().map(two);
        let mut outputs = outputs.skip_while(|output| output.status.success());
        let output = outputs.next().expect("one finds a block of the other");
        assert_eq!(output.status.code(), Some(1), "{engine}");
        assert!(stderr(&output).contains(": verify: "), "{engine}: {}", stderr(&output));
    }
}

#[test]
fn other_settings_are_another_disk() {
    let folder = folder();
    let args = "--filename=ram:1M --rw=read --name=a --name=b --queue_depth=7 --name=c";
    let report = bench_json(&folder, args);
    let names: Vec<_> = (0..2).map(|disk| report["disk_util"][disk]["name"].clone()).collect();
    assert_eq!(names, ["ram:1M", "ram:1M?queue_depth=7"]);
    let layers = &report["forebay"];
    assert_eq!(layers.as_array().map(Vec::len), Some(2));
    assert_eq!((&layers[0]["jobs"][1]["jobname"], &layers[0]["bios"]["read"]), both("c", 512));
    assert_eq!((&layers[1]["jobs"][0]["jobname"], &layers[1]["bios"]["read"]), both("b", 256));
    assert_eq!(layers[1]["policy"]["queue_depth"], 7);
}

fn both(name: &str, number: u64) -> (&'static Value, &'static Value) {
    (Box::leak(Box::new(name.into())), Box::leak(Box::new(number.into())))
}

#[test]
fn a_reader_and_a_writer_share_a_file() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let report = bench_json(&folder, "--filename=disk.img --name=r --rw=read --name=w --rw=write");
    let layers = report["forebay"].as_array().expect("a list");
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[0]["spec"], "disk.img");
    assert_eq!(
        (number(&layers[0]["bios"]["read"]), number(&layers[0]["bios"]["write"])),
        (256, 256)
    );
}

#[test]
fn waits_for_tags_are_reported_per_job() {
    let folder = folder();
    let args = "--name=a --filename=ram:1M?req_ns=20000 --rw=randread --iodepth=4 --numjobs=3 \
                --queue_depth=1 --nr_hw_queues=1";
    let layer = &bench_json(&folder, args)["forebay"][0];
    let (mut count, mut sum) = (0, 0);
    for job in layer["jobs"].as_array().expect("a list") {
        assert!(number(&job["tag_waits"]) > 0, "{layer:#}");
        let times = &job["tag_wait_ns"];
        assert!(times["max"].as_u64() >= times["mean"].as_u64(), "{layer:#}");
        assert!(number(&times["sum"]) >= number(&times["max"]), "{layer:#}");
        count += number(&job["tag_waits"]);
        sum += number(&times["sum"]);
    }
    // The layer counts the same bios.
    assert_eq!((count, sum), (number(&layer["tag_waits"]), number(&layer["tag_wait_ns"])));
    assert_eq!(layer["policy"]["nr_hw_queues"], 1);

    let group = &bench_json(&folder, &format!("{args} --group_reporting"))["forebay"][0]["jobs"];
    assert_eq!(group.as_array().map(Vec::len), Some(1));
    assert_eq!((number(&group[0]["clones"]), group[0].get("clone")), (3, None));
    assert!(number(&group[0]["tag_waits"]) > 0, "{group:#}");
}

#[test]
fn wakeups_for_tags_are_reported_where_threads_wait() {
    let folder = folder();
    let args = "--name=a --filename=ram:1M?req_ns=20000 --rw=randread --iodepth=4 --numjobs=3 \
                --queue_depth=1 --nr_hw_queues=1";
    for (wake, are_threads) in [("single", true), ("fair", false)] {
        let args = format!("{args} --wake={wake}");
        let layer = &bench_json(&folder, &args)["forebay"][0];
        let counts = ["tag_sleeps", "tag_wakeups", "vain_wakeups"].map(|key| number(&layer[key]));
        assert_eq!(counts != [0; 3], are_threads, "{wake}: {layer:#}");
        assert!(counts[2] <= counts[1], "{wake}: {layer:#}");
        let output = bench(&folder, &args);
        assert_eq!(stdout(&output).contains("\n  tag wake-ups : total="), are_threads, "{wake}");
    }
}

#[test]
fn the_layer_has_its_keys_in_their_order() {
    let folder = folder();
    let report = bench_json(&folder, "--name=a --filename=null:1M");
    let keys = |value: &Value| {
        value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let layer = &report["forebay"][0];
    assert_eq!(
        keys(layer),
        "spec driver jobs bios requests issued commits system_calls runs skipped_runs runs_made \
         turns empty_turns run_arms run_rearms worker_runs busy_ns \
         tag_waits tag_wait_ns tag_sleeps limit_waits limit_wait_ns tag_wakeups vain_wakeups \
         splits requeues retries overtaken timeouts early_ends \
         flushes_asked flushes_issued flushes_joined flushes_elided flushes_refused \
         merges unplugs latency_ns policy"
    );
    assert_eq!(
        keys(&layer["jobs"][0]),
        "jobname clone tag_waits tag_wait_ns voluntary_switches involuntary_switches"
    );
    assert_eq!(keys(&layer["jobs"][0]["tag_wait_ns"]), "sum mean max");
    assert_eq!(
        keys(&layer["policy"]),
        "plug nomerges kick run_queue wake tag_need queue_depth nr_requests reserved_tags \
         async_depth nr_hw_queues scheduler device_depth fifo_batch read_expire write_expire \
         writes_starved front_merges prio_aging_expire read_lat_nsec write_lat_nsec slice_idle_us \
          max_budget timeout_sync fifo_expire_sync fifo_expire_async weight_by cost_read_io_ns \
          cost_read_byte_ps cost_write_io_ns cost_write_byte_ps nr_bios flush \
         flush_pending_ms io_timeout_ms io_timeout_grace_ms elide iostats max_sectors_kb exclusive \
         read_only service"
    );
    let job = &layer["jobs"][0];
    let switches = number(&job["voluntary_switches"]) + number(&job["involuntary_switches"]);
    assert_eq!(number(&report["jobs"][0]["ctx"]), switches);
}

#[test]
fn many_clones_make_blocking_calls() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    for (engine, direct) in [("psync", 1), ("sync", 0)] {
        let args = format!(
            "--name=a --filename=disk.img --direct={direct} --rw=randread --ioengine={engine} \
             --iodepth=9 --numjobs=64 --group_reporting"
        );
        let report = bench_json(&folder, &args);
        let (job, layer) = (&report["jobs"][0], &report["forebay"][0]);
        assert_eq!(number(&job["read"]["total_ios"]), 64 * 256);
        assert_eq!(number(&layer["bios"]["read"]), 64 * 256);
        // A call has no separate submission, and there is one at a time.
        assert_eq!(number(&job["read"]["slat_ns"]["N"]), 0);
        assert_eq!((number(&job["latency_depth"]), &job["iodepth_level"]["1"]), (1, &100.0.into()));
        assert_eq!(layer["jobs"][0]["tag_waits"], Value::Null);
        assert_eq!(number(&layer["jobs"][0]["clones"]), 64);
    }
    let text = stdout(&bench(&folder, "--name=a --filename=ram:1M --ioengine=psync --numjobs=2"));
    assert!(text.contains("ioengine=psync (ram), iodepth=1\n...\n"), "{text}");
    assert!(text.contains("\n  a.1          : tag waits=unknown, switches: "), "{text}");
    assert!(text.contains("\n  queue runs   : total="), "{text}");
    assert!(text.contains("\n  settings     : defaults\n"), "{text}");
}

#[test]
fn blocking_calls_write_flush_trim_and_verify() {
    let folder = folder();
    let args = "--name=a --ioengine=psync --rw=write --filename=disk.img --size=1m --fsync=16 \
                --end_fsync=1 --verify=crc32c";
    let report = bench_json(&folder, args);
    let job = &report["jobs"][0];
    assert_eq!(number(&job["sync"]["total_ios"]), 15);
    assert_eq!(number(&report["forebay"][0]["bios"]["flush"]), 16);
    assert_eq!(number(&job["read"]["total_ios"]), 256);
    let args = "--name=a --ioengine=psync --rw=trim --filename=ram:1M --bs=64k";
    assert_eq!(number(&bench_json(&folder, args)["forebay"][0]["bios"]["discard"]), 16);

    let fault = "--name=a --ioengine=psync --filename=fault:disk.img?rule=read:io:nth=10";
    let output = bench(&folder, fault);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "forebay: a: read of 4096 bytes at offset 36864: I/O error\n");
}
