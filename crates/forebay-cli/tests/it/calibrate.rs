//! `forebay calibrate`: model files that other commands read, and refused disks.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{folder, forebay, skip, stderr, stdout};
use crate::refusals::mounted_device;

const JOB: &str = "[a]\nrw=randread\nbs=8k\niodepth=8\nnumber_ios=200\nsize=8m\n";

/// The shortest calibration.
const SHORT: &str = "--seconds 2 --repetitions 2";

fn run(folder: &TempDir, args: &str) -> Output {
    forebay(folder).args(args.split_whitespace()).output().expect("it can be run")
}

#[track_caller]
fn succeed(folder: &TempDir, args: &str) -> String {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    stdout(&output)
}

/// Returns the model file of a calibration. Each of its loads runs for 90 ms. If the machine is too
/// busy, a thread may do nothing in that time. Then the calibration is repeated.
#[track_caller]
fn calibrated(folder: &TempDir, args: &str) -> String {
    let is_starved = |output: &Output| stderr(output).contains("measure for a longer time");
    let mut outputs = (0..9).map(|_| run(folder, args)).skip_while(is_starved);
    let output = outputs.next().expect("enough processor time in one of nine runs");
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn check_refused(folder: &TempDir, args: &str, code: i32, message: &str) {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(code), "{args}: {}", stderr(&output));
    assert!(stderr(&output).contains(message), "{args}: {}", stderr(&output));
    assert!(stdout(&output).is_empty(), "{args}");
}

/// Calibrates a disk, and checks the model file. Runs a job on the model in virtual time, and opens
/// it in real time.
#[track_caller]
fn calibrate(disk: &str, family: &str) -> String {
    let folder = folder();
    std::fs::write(folder.path().join("job.fio"), JOB).expect("a file");
    let model = calibrated(&folder, &format!("calibrate {disk} --family {family} {SHORT}"));
    std::fs::write(folder.path().join("my.model"), &model).expect("a file");
    let report = succeed(&folder, "sim job.fio --device my.model");
    assert!(report.contains("bios         : 200, 0 failed"), "{report}");
    let info = succeed(&folder, "info model:my.model?queue_depth=4");
    let mut lines = model.lines().filter(|line| !line.starts_with('#'));
    let (family, size) = (format!("family={family}"), format!("size={}", 64 << 20));
    assert_eq!((lines.next(), lines.next()), (Some(&*family), Some(&*size)), "{model}");
    for line in lines {
        let (constant, comment) = line.split_once(" # ").expect(line);
        assert!(info.contains(constant), "{constant}: {info}");
        let (_, value) = constant.split_once('=').expect(line);
        match comment.split_once(" to ") {
            Some((low, high)) => {
                let [low, value, high] =
                    [low, value, high].map(|it| it.parse::<u64>().expect(line));
                assert!((low..=high).contains(&value), "{line}");
            }
            None => assert!(comment.starts_with("not determined by this load"), "{line}"),
        }
    }
    model
}

#[test]
fn model_of_a_disk_in_memory_is_read_by_sim_and_by_disks() {
    let model = calibrate("ram:64M", "nvme");
    assert!(model.contains("# Model of ram:64M, by forebay calibrate: reads only, 2 s"), "{model}");
    assert!(model.contains("# randread 16k depth=8 (not fitted)"), "{model}");
    assert!(model.contains("# nvme: "), "{model}");
}

#[test]
fn model_of_a_modelled_disk_is_read_by_sim_and_by_disks() {
    let model = calibrate("model:hdd?size=64M&seek_ns=500000", "hdd");
    check_recorded_load(&model);
}

/// Runs a recorded load on a model file of `forebay calibrate`, also with other values of a
/// constant. With the value of the file, the run is that of the file itself.
#[track_caller]
fn check_recorded_load(model: &str) {
    let folder = folder();
    std::fs::write(folder.path().join("my.model"), model).expect("a file");
    let reads: String = (0..60)
        .map(|nth| format!("{} a read {} 4096\n", nth * 2000, (nth * 37 % 60) << 20))
        .collect();
    std::fs::write(folder.path().join("log"), format!("fio version 3 iolog\n{reads}"))
        .expect("a log");
    let seek = model.lines().find_map(|line| line.strip_prefix("seek_ns="));
    let seek_ns = seek.and_then(|line| line.split(' ').next()).expect(model);
    let runs = |args: &str| {
        let args = format!("sim --trace log --device my.model --seed 1 --json {args}");
        let report: Value = succeed(&folder, &args).parse().expect("JSON");
        report["forebay"].as_array().expect("runs").clone()
    };
    let alone = runs("");
    let swept = runs(&format!("--sweep seek_ns={seek_ns},50000000"));
    assert_eq!((alone.len(), swept.len()), (1, 2));
    let times = |run: &Value| {
        assert_eq!(run["threads"][0]["latency_ns"]["n"], 60, "{run}");
        [&run["virtual_time_ns"], &run["late_ns"], &run["threads"]].map(Value::clone)
    };
    assert_eq!(times(&swept[0]), times(&alone[0]), "seek_ns={seek_ns}");
    let mean_ns = |run: &Value| run["threads"][0]["latency_ns"]["mean"].as_f64().expect("a mean");
    assert!(mean_ns(&swept[1]) > 10.0 * mean_ns(&swept[0]), "{swept:?}");
}

#[test]
fn writes_go_to_an_empty_file_and_fit_a_disk_with_a_cache() {
    let folder = folder();
    let file = std::fs::File::create(folder.path().join("disk.img")).expect("a file");
    file.set_len(16 << 20).expect("a size");
    let args = "calibrate disk.img?direct=off --write --family sata --seconds 8 --repetitions 2";
    let model = succeed(&folder, args);
    assert!(model.contains("reads and writes, 8 s"), "{model}");
    assert!(model.contains("# write 4k depth=1 fsync=1 "), "{model}");
    assert!(model.contains("\nfamily=sata\nsize=16777216\n"), "{model}");
    let message = "disk.img?direct=off is not empty: it contains data at offset ";
    check_refused(&folder, args, 1, message);
}

#[test]
fn disk_in_use_or_with_data_is_not_written_to() {
    let folder = folder();
    let mut data = vec![0; 8 << 20];
    let path = folder.path().join("disk.img");
    std::fs::write(&path, &data).expect("a file");
    let refused = |args: &str, code, message: &str| {
        check_refused(&folder, &format!("calibrate {args} --write {SHORT}"), code, message);
    };
    let other = forebay::Disk::open(&format!("{}?exclusive=on", path.display())).expect("a disk");
    refused("disk.img?direct=off", 1, "exclusive=on: disk.img: another program has locked it");
    drop(other);
    refused("disk.img?exclusive=off", 1, "--write: needs exclusive=on: remove exclusive=off from ");
    refused("disk.img?read_only=on", 2, "remove read_only, or omit --write");
    refused("nbd://localhost/x", 1, "a disk of the driver nbd cannot be opened exclusively");
    refused("none.img", 1, "none.img: no such file");
    // One byte between the ends, in a block that is read.
    data[(4 << 20) + 100] = 1;
    std::fs::write(&path, &data).expect("a file");
    refused("disk.img?direct=off", 1, "is not empty: it contains data at offset 4194404, which");
    assert_eq!(std::fs::read(&path).expect("the file"), data, "nothing was written");
}

#[test]
fn mounted_device_is_not_written_to() {
    let Some(device) = mounted_device() else {
        skip("mounted_device_is_not_written_to", "no device is mounted");
        return;
    };
    let args = format!("calibrate {device} --write");
    check_refused(&folder(), &args, 1, "and writes would destroy its data; unmount it, or choose");
}

#[test]
fn wrong_arguments_and_unusable_disks_are_refused() {
    let folder = folder();
    std::fs::write(folder.path().join("small"), [0; 4096]).expect("a file");
    let refused = |args: &str, code, message: &str| {
        check_refused(&folder, &format!("calibrate {args}"), code, message);
    };
    refused(
        "ram:64M --family sata",
        2,
        "--family=sata: sata is determined only by loads that write",
    );
    refused(
        "ram:64M --family floppy",
        2,
        "--family=floppy: unknown family; expected one of fixed, ",
    );
    refused("ram:64M --seconds 1", 2, "--seconds=1: expected at least 4 for 11 loads and ");
    refused("ram:64M --repetitions 1", 2, "--repetitions=1: expected a whole number from 2 to 100");
    refused("ram:64M?colour=red", 2, "unknown key `colour`");
    refused("none.img", 1, "none.img: no such file");
    refused("small?direct=off", 1, "the disk has 4096 bytes; a calibration needs at least 4194304");
    refused("", 2, "missing argument: <SPEC>");
}

#[test]
fn failed_read_ends_the_calibration_with_one_error() {
    let folder = folder();
    let output = run(&folder, &format!("calibrate fault:ram:64M?rule=read:medium:nth=100 {SHORT}"));
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let [loads, error] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(loads.starts_with("forebay: 11 loads, 2 times each"), "{loads}");
    assert!(error.starts_with("forebay: randread 4k depth=1 #1: read of 4096 bytes at"), "{error}");
    assert!(stdout(&output).is_empty());
}

#[test]
fn wrong_model_file_is_refused_by_name_and_line() {
    let folder = folder();
    std::fs::write(folder.path().join("job.fio"), JOB).expect("a file");
    for (text, message) in [
        ("family=nvme\n\nseek_ns=1 # of hdd\n", "line 3: unknown constant seek_ns; nvme has size"),
        (
            "family=nvme\nnr_channels=0\n",
            "line 2: nr_channels=0: expected a number from 1 to 65536",
        ),
        ("latency_ns=1\n", "line 1: expected family=NAME before latency_ns"),
    ] {
        std::fs::write(folder.path().join("my.model"), text).expect("a file");
        let of_sim = format!("--device=my.model: {message}");
        check_refused(&folder, "sim job.fio --device my.model", 2, &of_sim);
        check_refused(&folder, "info model:my.model", 1, &format!("my.model: {message}"));
    }
    std::fs::write(folder.path().join("my.model"), "family=fixed\n").expect("a file");
    let only_simulated = "my.model: line 1: family=fixed: only forebay sim has this family; \
                          calibrate with --family=nvme, or another of: hdd, ssd-sas, nvme";
    check_refused(&folder, "info model:my.model", 1, only_simulated);
    check_refused(
        &folder,
        "info model:./none",
        1,
        "./none: no such file; a name with a / or the ending .model is a model file",
    );
    check_refused(&folder, "sim job.fio --device ./none", 2, "cannot read the model file: No such");
    succeed(&folder, "sim job.fio --device my.model --compare device=hdd");
    let in_file = JOB.replace("rw=", "filename=model:my.model?wake=batch\nrw=");
    std::fs::write(folder.path().join("job.fio"), in_file).expect("a file");
    std::fs::write(folder.path().join("my.model"), "family=floppy\n").expect("a file");
    let unknown = "my.model: line 1: family=floppy: expected one of hdd, ssd-sas, nvme";
    check_refused(&folder, "info model:my.model", 1, unknown);
    std::fs::write(folder.path().join("my.model"), "family=nvme\n").expect("a file");
    succeed(&folder, "sim job.fio");
    let sweep = "sim job.fio --device my.model --sweep latency_ns=20000,900000";
    let table = succeed(&folder, sweep);
    let iops = |line: usize| table.lines().nth(line).and_then(|it| it.split_whitespace().nth(1));
    let [fast, slow] =
        [1, 2].map(|at| iops(at).and_then(|it| it.parse::<f64>().ok()).expect("IOPS"));
    assert!(fast > 10.0 * slow, "the constant overrides that of the file: {table}");
}
