//! The JSON report compared with that of fio for the same jobs, if fio is installed: the same keys
//! in the same order, the same types, and the same values where the job determines them.

use crate::common::{self, bench_json, folder, skip};
use serde_json::Value;
use tempfile::TempDir;

/// Returns fio's JSON, or `None` if fio is not installed.
#[track_caller]
fn fio_json(test: &str, folder: &TempDir, args: &str) -> Option<Value> {
    common::fio(test, folder, &format!("{args} --output-format=json --output=fio.json"))?;
    let text = std::fs::read_to_string(folder.path().join("fio.json")).expect("fio's JSON");
    let start = text.find("{\n").expect("a JSON value");
    Some(text[start..].parse().expect("fio's JSON"))
}

/// Returns the paths of all values with their types, in order.
fn paths(value: &Value) -> Vec<String> {
    fn walk(path: &str, value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                object.iter().for_each(|(key, value)| walk(&format!("{path}/{key}"), value, out));
            }
            Value::Array(list) => {
                list.iter().for_each(|value| walk(&format!("{path}[]"), value, out));
            }
            Value::Number(number) if number.is_f64() => out.push(format!("{path}: float")),
            Value::Number(_) => out.push(format!("{path}: integer")),
            Value::String(_) => out.push(format!("{path}: string")),
            other => out.push(format!("{path}: {other}")),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}

fn take_disks(report: &mut Value) -> Vec<Value> {
    match report.as_object_mut().expect("an object").remove("disk_util") {
        Some(Value::Array(disks)) => disks,
        _ => Vec::new(),
    }
}

/// Compares the disk statistics. fio lists the device below the file and that device's components;
/// on some file systems (overlayfs, tmpfs) it finds none. The layer lists the file.
#[track_caller]
fn compare_disks(test: &str, mut theirs: Vec<Value>, ours: &[Value]) {
    for disk in theirs.iter_mut().filter_map(Value::as_object_mut) {
        disk.retain(|key, _| !key.starts_with("aggr_"));
    }
    let Some(ours) = ours.first() else { panic!("{test}: no disk in our report") };
    if theirs.is_empty() {
        skip(test, "fio finds no disk below the file; its disk statistics are not compared");
    }
    for theirs in &theirs {
        assert_eq!(paths(ours), paths(theirs), "{test}: disk_util");
    }
}

#[track_caller]
fn check(test: &str, args: &str) {
    let folder = folder();
    let Some(mut theirs) = fio_json(test, &folder, args) else { return };
    let mut ours = bench_json(&folder, args);
    assert!(ours.as_object_mut().expect("an object").remove("forebay").is_some());
    compare_disks(test, take_disks(&mut theirs), &take_disks(&mut ours));
    assert_eq!(paths(&ours), paths(&theirs), "{test}");
    assert_eq!(ours.get("global options"), theirs.get("global options"), "{test}");
    let jobs = |report: &Value| report["jobs"].as_array().expect("a list").clone();
    for (ours, theirs) in jobs(&ours).iter().zip(jobs(&theirs)) {
        // fio's eta at the end of a run is sometimes 0, and sometimes its largest number.
        for key in ["jobname", "groupid", "error", "job options", "latency_depth"] {
            assert_eq!(ours[key], theirs[key], "{test}: {key}");
        }
        // In a mixed job the counts are random, and differ between the programs.
        if !args.contains("randrw") {
            assert_eq!(ours["sync"]["total_ios"], theirs["sync"]["total_ios"], "{test}: sync");
            assert_eq!(ours["sync"]["lat_ns"]["N"], theirs["sync"]["lat_ns"]["N"], "{test}: sync");
        }
        for direction in ["read", "write", "trim"] {
            if !args.contains("randrw") {
                for key in ["io_bytes", "io_kbytes", "total_ios", "short_ios", "drop_ios"] {
                    let (ours, theirs) = (&ours[direction][key], &theirs[direction][key]);
                    assert_eq!(ours, theirs, "{test}: {direction}/{key}");
                }
            }
        }
    }
}

#[test]
fn reads() {
    check(
        "reads",
        "--name=a --rw=read --size=2m --ioengine=libaio --iodepth=8 --iodepth_batch=4 \
         --iodepth_batch_complete=4 --filename=disk.img",
    );
}

#[test]
fn random_reads_of_two_jobs_with_defaults() {
    check(
        "random_reads_of_two_jobs_with_defaults",
        "--bs=8k --size=2m --ioengine=io_uring --name=a --rw=randread --name=b --rw=randread \
         --iodepth=4 --randseed=7",
    );
}

#[test]
fn a_mix() {
    check("a_mix", "--name=a --rw=randrw --size=2m --ioengine=libaio --filename=disk.img");
}

#[test]
fn writes_with_flushes() {
    check(
        "writes_with_flushes",
        "--name=a --rw=write --size=2m --fsync=16 --ioengine=libaio --filename=disk.img",
    );
}

#[test]
fn deep_writes_with_flushes_and_a_last_one() {
    check(
        "deep_writes_with_flushes_and_a_last_one",
        "--name=a --rw=randwrite --size=2m --fsync=10 --end_fsync=1 --iodepth=8 --iodepth_batch=4 \
         --ioengine=libaio --filename=disk.img",
    );
}

#[test]
fn clones_in_a_group() {
    check(
        "clones_in_a_group",
        "--name=a --rw=read --size=1m --numjobs=2 --group_reporting --thread --ioengine=libaio",
    );
}

#[test]
fn blocking_calls_of_two_threads() {
    check(
        "blocking_calls_of_two_threads",
        "--name=a --rw=read --size=1m --numjobs=2 --thread --ioengine=psync --filename=disk.img",
    );
}

#[test]
fn blocking_writes_with_flushes() {
    check(
        "blocking_writes_with_flushes",
        "--name=a --rw=write --size=1m --fsync=16 --end_fsync=1 --ioengine=sync",
    );
}

#[test]
fn time_based_reads() {
    // The number of I/Os varies, so only the shape is compared.
    let test = "time_based_reads";
    let args = "--name=a --rw=read --size=1m --runtime=1s --time_based --ioengine=libaio \
                --filename=disk.img";
    let folder = folder();
    let Some(mut theirs) = fio_json(test, &folder, args) else { return };
    let mut ours = bench_json(&folder, args);
    ours.as_object_mut().expect("an object").remove("forebay");
    compare_disks(test, take_disks(&mut theirs), &take_disks(&mut ours));
    assert_eq!(paths(&ours), paths(&theirs));
}

#[test]
fn sizes_by_direction_and_a_number_of_ios() {
    check(
        "sizes_by_direction_and_a_number_of_ios",
        "--name=a --rw=write --bs=4k,16k --size=2m --number_ios=50 --ioengine=libaio \
         --name=b --rw=read --bs=4k,16k --size=1m --loops=3 --filename=disk.img",
    );
}

#[test]
fn percentiles_of_one_latency_or_another() {
    for options in [
        "--percentile_list=50:99.9",
        "--lat_percentiles=1 --slat_percentiles=1",
        "--clat_percentiles=0",
        "--disable_lat=1 --disable_slat=1",
        "--disable_clat=1",
        "--gtod_reduce=1",
        "--unified_rw_reporting=mixed",
        "--unified_rw_reporting=both",
        "--ramp_time=100ms --runtime=300ms --time_based",
    ] {
        let test = "percentiles_of_one_latency_or_another";
        let args =
            format!("--name=a --rw=read --size=1m --ioengine=libaio --filename=disk.img {options}");
        let folder = folder();
        let Some(mut theirs) = fio_json(test, &folder, &args) else { return };
        let mut ours = bench_json(&folder, &args);
        ours.as_object_mut().expect("an object").remove("forebay");
        take_disks(&mut theirs);
        take_disks(&mut ours);
        assert_eq!(paths(&ours), paths(&theirs), "{options}");
    }
}

#[test]
fn flushes_of_two_kinds_are_as_many() {
    let test = "flushes_of_two_kinds_are_as_many";
    let args = "--name=a --rw=write --size=400k --fdatasync=4 --ioengine=libaio";
    let folder = folder();
    let Some(theirs) = fio_json(test, &folder, args) else { return };
    let ours = bench_json(&folder, args);
    let flushes = |report: &Value| report["jobs"][0]["sync"]["lat_ns"]["N"].clone();
    assert_eq!(flushes(&ours), flushes(&theirs));
}

/// Returns the sizes of a run's I/Os from its log, by direction.
fn sizes(folder: &TempDir) -> Vec<Vec<u64>> {
    let text = std::fs::read_to_string(folder.path().join("log_iops.1.log")).expect("a log");
    let mut sizes = vec![Vec::new(); 3];
    for line in text.lines() {
        let columns: Vec<u64> = line.split(", ").map(|text| text.parse().expect(line)).collect();
        let &[_, 1, direction, bytes, 0] = columns.as_slice() else { panic!("{line}") };
        sizes[direction as usize].push(bytes);
    }
    sizes
}

/// Returns the relative frequency of each size.
fn shares(sizes: &[u64]) -> std::collections::BTreeMap<u64, f64> {
    let mut shares = std::collections::BTreeMap::new();
    for &bytes in sizes {
        *shares.entry(bytes).or_default() += 1.0 / sizes.len() as f64;
    }
    shares
}

#[test]
fn block_sizes_are_as_often_as_in_fio() {
    let test = "block_sizes_are_as_often_as_in_fio";
    for options in [
        "--rw=randread --norandommap --bssplit=4k/20:64k/50:16k/",
        "--rw=randrw --norandommap --bssplit=4k/20:64k/80,8k/60:4k/40",
        "--rw=read --bsrange=4k-32k",
        "--rw=randwrite --bsrange=4k-32k",
        "--rw=read --bsrange=1000-5000 --bs_unaligned",
    ] {
        let args =
            format!("--name=a --ioengine=null --size=64m --write_iops_log=log {options} --thread");
        let folder = folder();
        let Some(theirs) = fio_json(test, &folder, &args) else { return };
        let their_sizes = sizes(&folder);
        let ours = bench_json(&folder, &args);
        for (at, (ours, theirs)) in sizes(&folder).iter().zip(&their_sizes).enumerate() {
            assert_eq!(ours.is_empty(), theirs.is_empty(), "{options}: {at}");
            let (ours, theirs) = (shares(ours), shares(theirs));
            if ours.len() > 100 {
                continue;
            }
            let keys = |shares: &std::collections::BTreeMap<u64, f64>| {
                shares.keys().copied().collect::<Vec<_>>()
            };
            assert_eq!(keys(&ours), keys(&theirs), "{options}: {at}");
            for (bytes, share) in &ours {
                let difference = (share - theirs[bytes]).abs();
                assert!(difference < 0.06, "{options}: {at}: {bytes}: {ours:?} {theirs:?}");
            }
        }
        let ios = |report: &Value| {
            let of = |word: &str| report["jobs"][0][word]["total_ios"].as_f64().expect("a number");
            of("read") + of("write")
        };
        let ratio = ios(&ours) / ios(&theirs);
        assert!((0.93..1.07).contains(&ratio), "{options}: {ratio}");
    }
}

#[test]
fn zipf_is_as_steep_as_in_fio() {
    let test = "zipf_is_as_steep_as_in_fio";
    for distribution in ["zipf:1.2", "zipf:0.7", "pareto:0.2", "zoned:60/10:30/20:10/70"] {
        let args = format!(
            "--name=a --ioengine=null --size=4m --io_size=400m --rw=randread --log_offset=1 \
             --write_iops_log=log --random_distribution={distribution} --thread"
        );
        let folder = folder();
        // Returns the share of the hundred most frequently read blocks.
        let hottest = || {
            let text =
                std::fs::read_to_string(folder.path().join("log_iops.1.log")).expect("a log");
            let mut counts = std::collections::BTreeMap::new();
            for line in text.lines() {
                *counts.entry(line.split(", ").nth(4).expect(line).to_owned()).or_insert(0_u64) +=
                    1;
            }
            let mut counts: Vec<_> = counts.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let all: u64 = counts.iter().sum();
            counts.iter().take(100).sum::<u64>() as f64 / all as f64
        };
        if fio_json(test, &folder, &args).is_none() {
            return;
        }
        let theirs = hottest();
        bench_json(&folder, &args);
        let ours = hottest();
        assert!((ours - theirs).abs() < 0.05, "{distribution}: {ours} instead of {theirs}");
    }
}

#[test]
fn buckets_have_the_keys_of_fio() {
    let test = "buckets_have_the_keys_of_fio";
    let folder = folder();
    let args = "--name=a --ioengine=libaio --size=1m --filename=disk.img --fsync=100";
    if fio_json(test, &folder, args).is_none() {
        return;
    }
    let output = crate::common::bench(&folder, &format!("{args} --output-format=json+"));
    let report = crate::common::json(&output);
    let clat = &report["jobs"][0]["read"]["clat_ns"];
    let bins = clat["bins"].as_object().expect("buckets");
    let sum: u64 = bins.values().map(|count| count.as_u64().expect("a count")).sum();
    assert_eq!(Some(sum), clat["N"].as_u64());
    let keys: Vec<u64> = bins.keys().map(|key| key.parse().expect("nanoseconds")).collect();
    assert!(keys.is_sorted(), "{keys:?}");
    assert!(clat.as_object().expect("an object").keys().eq([
        "min",
        "max",
        "mean",
        "stddev",
        "N",
        "percentile",
        "bins"
    ]));
}

#[test]
fn logs_have_the_names_and_columns_of_fio() {
    let test = "logs_have_the_names_and_columns_of_fio";
    for options in ["", "--log_offset=1", "--log_avg_msec=100", "--per_job_logs=0"] {
        let args = format!(
            "--name=a --rw=randrw --numjobs=2 --rate_iops=200 --size=100m --runtime=1 --thread \
             --ioengine=null --write_bw_log=x --write_lat_log=y --write_iops_log=z {options}"
        );
        let logs = |folder: &TempDir| {
            let mut logs = Vec::new();
            for entry in std::fs::read_dir(folder.path()).expect("a folder").flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".log") {
                    let text = std::fs::read_to_string(entry.path()).expect("a log");
                    let columns = text.lines().next().map_or(0, |line| line.split(", ").count());
                    // fio's null device completes at once, so it has no submission latency.
                    let columns = if name.contains("slat") { 0 } else { columns };
                    logs.push((name, columns));
                }
            }
            logs.sort();
            logs
        };
        let (their_folder, our_folder) = (folder(), folder());
        if fio_json(test, &their_folder, &args).is_none() {
            return;
        }
        bench_json(&our_folder, &args);
        assert_eq!(logs(&our_folder), logs(&their_folder), "{options}");
        assert!(!logs(&our_folder).is_empty());
    }
}

#[test]
fn latencies_by_priority() {
    let test = "latencies_by_priority";
    for options in [
        "--cmdprio_percentage=50 --cmdprio_class=2",
        "--cmdprio_percentage=50 --cmdprio_class=3 --lat_percentiles=1 --prio=6",
        "--cmdprio_percentage=50 --cmdprio_class=2 --clat_percentiles=0",
        "--cmdprio_percentage=50 --cmdprio_class=2 --disable_clat=1",
        "--cmdprio_percentage=100 --cmdprio_class=2",
        "--prio=6",
        "--bssplit=4k/50:8k/50 --cmdprio_bssplit=4k/50/2/1:4k/50/2/3",
    ] {
        let args = format!(
            "--name=a --rw=randread --direct=1 --ioengine=libaio --iodepth=4 --size=4m \
             --filename=disk.img {options}"
        );
        let folder = folder();
        let Some(mut theirs) = fio_json(test, &folder, &args) else { return };
        let mut ours = bench_json(&folder, &args);
        ours.as_object_mut().expect("an object").remove("forebay");
        take_disks(&mut theirs);
        take_disks(&mut ours);
        assert_eq!(paths(&ours), paths(&theirs), "{options}");
        let of = |report: &Value| {
            let prios = report["jobs"][0]["read"]["prios"].as_array().cloned().unwrap_or_default();
            let pair = |prio: &Value| (prio["prioclass"].clone(), prio["prio"].clone());
            prios.iter().map(pair).collect::<Vec<_>>()
        };
        assert_eq!(of(&ours), of(&theirs), "{options}");
        let read = &ours["jobs"][0]["read"];
        if let Some(prios) = read["prios"].as_array() {
            let count = |prio: &Value| {
                ["clat_ns", "lat_ns"].iter().filter_map(|key| prio[key]["N"].as_u64()).sum::<u64>()
            };
            let sum: u64 = prios.iter().map(count).sum();
            assert_eq!(Some(sum), read["total_ios"].as_u64(), "{options}");
        }
    }
}
