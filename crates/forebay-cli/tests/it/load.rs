//! Load options beyond plain blocks: rates, ramps, block contents, and verification.

use serde_json::Value;

use crate::common::{bench, bench_json, data_file, folder, json, stderr, stdout};

fn ios(report: &Value, direction: &str) -> u64 {
    report["jobs"][0][direction]["total_ios"].as_u64().expect("a number")
}

#[test]
fn a_rate_is_an_upper_bound_for_each_direction() {
    let args = "--name=a --ioengine=null --rw=randread --iodepth=4 --iodepth_batch=4 \
                --rate_iops=200 --runtime=1 --size=1g --log_avg_msec=200";
    let report = bench_json(&folder(), args);
    assert!((1..=201).contains(&ios(&report, "read")), "{report}");
    let args =
        "--name=a --ioengine=psync --filename=ram:64M --rw=randwrite --rate=400k --runtime=1";
    let report = bench_json(&folder(), args);
    assert!((1..=101).contains(&ios(&report, "write")), "{report}");
}

#[test]
fn each_direction_of_a_mix_keeps_its_own_rate() {
    for engine in ["null", "psync"] {
        // With the mix alone, the writes would limit the reads to about their own number.
        let args = format!(
            "--name=a --ioengine={engine} --filename=null:1G --rw=randrw --rate_iops=,20 \
             --number_ios=2000"
        );
        let report = bench_json(&folder(), &args);
        let (reads, writes) = (ios(&report, "read"), ios(&report, "write"));
        assert_eq!(reads + writes, 2000, "{engine}");
        assert!(reads > 1500, "{engine}: {reads} reads, {writes} writes");
    }
}

#[test]
fn a_rate_holds_in_each_loop() {
    let args = "--name=a --ioengine=null --filename=null:80k --rw=read --rate_iops=200 --loops=3";
    let report = bench_json(&folder(), args);
    assert_eq!(ios(&report, "read"), 60);
    let runtime = report["jobs"][0]["read"]["runtime"].as_u64().expect("a number");
    assert!(runtime >= 285, "19 gaps of 5 ms in each of 3 loops: {runtime} ms");
}

/// Without end, if the job that waits were part of the flow, or had to catch up.
#[test]
fn job_with_a_flow_does_not_wait_for_one_that_has_not_started() {
    let args = "--filename=ram:1M --rw=randread --number_ios=200 --flow=1 --name=a --name=b \
                --wait_for=a --name=c --startdelay=100ms";
    let report = bench_json(&folder(), args);
    for job in 0..3 {
        assert_eq!(report["jobs"][job]["read"]["total_ios"], 200, "{report}");
    }
}

#[test]
fn job_with_pauses_takes_at_least_as_long() {
    let args = "--name=a --filename=ram:64k --rw=read --thinktime=10ms --thinktime_blocks=4";
    let report = bench_json(&folder(), args);
    assert_eq!(ios(&report, "read"), 16);
    let runtime = report["jobs"][0]["read"]["runtime"].as_u64().expect("a number");
    assert!(runtime >= 30, "three pauses lie between 16 reads: {runtime}");
}

#[test]
fn nothing_of_the_ramp_counts() {
    let folder = folder();
    let args = "--name=a --ioengine=null --rw=read --rate_iops=200 --ramp_time=2s \
                --runtime=500ms --size=1g --write_iops_log=ramp";
    let report = bench_json(&folder, args);
    // A thread that was preempted catches up with its rate, so some reads of the ramp may be late.
    // There are 100 of the runtime, 300 with half of the ramp and 500 with all of it.
    assert!((1..=200).contains(&ios(&report, "read")), "{report}");
    let log = std::fs::read_to_string(folder.path().join("ramp_iops.1.log")).expect("a log");
    assert_eq!(log.lines().count() as u64, ios(&report, "read"));
    let output = bench(&folder, "--name=a --ioengine=null --size=64k --ramp_time=1000");
    assert!(
        stderr(&output).contains("a: the job ended within its ramp_time"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_clocks_ios_are_counted_and_runs_end() {
    let args = "--name=a --filename=ram:1M --rw=randrw --iodepth=8 --gtod_reduce=1 --runtime=100ms \
                --time_based";
    let report = bench_json(&folder(), args);
    assert!(ios(&report, "read") > 0);
    for latency in ["slat_ns", "clat_ns", "lat_ns"] {
        assert_eq!(report["jobs"][0]["read"][latency]["N"], 0, "{latency}");
    }
    assert_eq!(report["jobs"][0]["read"]["bw_samples"], 0);
}

#[test]
fn reports_come_while_the_job_runs() {
    let args = "--name=a --ioengine=null --rw=read --rate_iops=100 --size=1g --runtime=2 \
                --status-interval=500ms --output-format=json";
    let text = stdout(&bench(&folder(), args));
    let reports = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let counts: Vec<_> = reports.map(|report| ios(&report.expect("JSON"), "read")).collect();
    assert!(counts.len() >= 2, "{counts:?}");
    assert!(counts.is_sorted() && counts[0] < counts[counts.len() - 1], "{counts:?}");
}

#[test]
fn several_formats_come_in_the_order_of_fio() {
    let args = "--name=a --filename=ram:64k --output-format=normal,json";
    let text = stdout(&bench(&folder(), args));
    let (json_at, normal_at) = (text.find("\n{\n"), text.find("\na: (groupid=0"));
    assert!(text.starts_with("a: (g=0)"), "{text}");
    assert!(json_at.is_some() && json_at < normal_at, "{text}");
}

#[test]
fn job_ends_at_the_first_io_above_the_maximum_latency() {
    for engine in ["", "--ioengine=psync"] {
        let args = format!(
            "--name=a --filename=fault:ram:1M?rule=read:delay=30ms:nth=10 --rw=read {engine} \
             --max_latency"
        );
        let output = bench(&folder(), &format!("{args}=20ms --output-format=json"));
        assert_eq!(output.status.code(), Some(1), "{engine}");
        // ETIMEDOUT, as in fio.
        assert_eq!((json(&output)["jobs"][0]["error"].as_i64()), Some(110), "{engine}");
        let message = "forebay: a: read of 4096 bytes at offset 36864 took ";
        assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
        assert!(stderr(&output).ends_with(" us, and --max_latency is 20000 us\n"));
        bench_json(&folder(), &format!("{args}=10s"));
        bench_json(&folder(), &format!("{args}=,20ms"));
    }
}

#[test]
fn a_log_that_cannot_be_written_does_not_take_the_report() {
    let args = "--name=a --filename=ram:64k --output-format=json --write_lat_log=nowhere/x";
    let output = bench(&folder(), args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(ios(&json(&output), "read"), 16);
    let message = "forebay: a: cannot write the log nowhere/x_slat.1.log: No such file";
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
}

#[test]
fn a_planted_bad_block_is_found_by_every_method() {
    for method in [
        "--verify=crc32c",
        "--verify=xxhash --verify_pattern=0xabcd",
        "--verify=pattern --verify_pattern=%o",
        "--verify=crc32c --bsrange=4k-16k",
    ] {
        let folder = folder();
        let args = format!("--name=a --filename=disk.img --rw=write --size=256k {method}");
        assert!(ios(&bench_json(&folder, &args), "read") > 0, "{method}");
        let again = format!("{args} --verify_only");
        let report = bench_json(&folder, &again);
        assert_eq!((ios(&report, "write"), ios(&report, "read") > 0), (0, true), "{method}");

        let path = folder.path().join("disk.img");
        let mut bytes = std::fs::read(&path).expect("a file");
        bytes[100_000] ^= 0x10;
        std::fs::write(&path, bytes).expect("a file");
        let output = bench(&folder, &again);
        assert_eq!(output.status.code(), Some(1), "{method}");
        let text = stderr(&output);
        assert!(text.starts_with("forebay: a: verify: "), "{text}");
        let place = text.split("at offset ").nth(1).expect("an offset");
        let offset: u64 = place.split([':', ',']).next().and_then(|n| n.parse().ok()).expect(place);
        assert!((100_000 - 16_384..=100_000).contains(&offset), "{text}");
        assert!(text.contains("expected 0x") || text.contains(": expected "), "{text}");
    }
}

#[test]
fn a_flush_precedes_a_read_back_through_the_page_cache() {
    let report = bench_json(&folder(), "--name=a --rw=write --size=64k --verify=crc32c");
    // A flush precedes the drop of the cache, because dirty pages would stay.
    assert_eq!(report["forebay"][0]["bios"]["flush"], 1);
}

#[test]
fn buffers_have_the_requested_length() {
    let folder = folder();
    let write = |options: &str| {
        let args = format!("--name=a --filename=disk.img --rw=write --size=16k {options}");
        bench_json(&folder, &args);
        std::fs::read(folder.path().join("disk.img")).expect("a file")
    };
    assert!(write("--zero_buffers").iter().all(|&byte| byte == 0));
    assert!(write("--buffer_pattern=0xab12").chunks(2).all(|pair| pair == [0xab, 0x12]));
    let kept = write("--scramble_buffers=0");
    assert!(kept[..4096] == kept[4096..8192], "depth 1 has one buffer");
    let scrambled = write("");
    assert!(scrambled[..4096] != scrambled[4096..8192]);
    let refilled = write("--refill_buffers");
    assert!(refilled[..4096] != refilled[4096..8192]);
}

#[test]
fn odd_sizes_are_refused_where_blocks_are_whole() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    for (options, what) in [
        ("--bssplit=4k/50:1000/50", "--bs=1000"),
        ("--bsrange=4k-10000", "--bs=10000"),
        ("--rw=randread --blockalign=100", "--blockalign=100"),
        ("--rw=randread --bsrange=4k-8k --bs_unaligned", "--bs_unaligned: a size of=1"),
    ] {
        let output = bench(&folder, &format!("--name=a --filename=ram:1M {options}"));
        let message = format!("forebay: a: {what} is not a multiple of the logical block size");
        assert!(stderr(&output).starts_with(&message), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}
