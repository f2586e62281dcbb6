//! Several files of a job beside those of fio, if it is installed: the same files with the same
//! sizes, and the same numbers of I/Os.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::common::{bench, bench_json, folder, forebay, skip_without, stderr};
use serde_json::Value;
use tempfile::TempDir;

/// Returns a folder with two empty directories, and a file of 64 KiB in a third.
fn prepared() -> TempDir {
    let folder = folder();
    for name in ["d1", "d2", "full"] {
        std::fs::create_dir(folder.path().join(name)).expect("a directory");
    }
    std::fs::write(folder.path().join("full/big"), vec![7; 65_536]).expect("a file");
    folder
}

/// Returns the sizes of all files below a directory, by their names.
fn sizes(folder: &Path) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let metadata = entry.metadata().expect("a file");
        if metadata.is_dir() {
            let below = self::sizes(&entry.path());
            sizes.extend(below.into_iter().map(|(path, size)| (format!("{name}/{path}"), size)));
        } else if name != "fio.json" {
            sizes.insert(name, metadata.len());
        }
    }
    sizes
}

/// Returns the counts of each job, for each direction and for syncs.
fn counts(report: &Value) -> Vec<[u64; 7]> {
    let count = |job: &Value, part: &str, key: &str| job[part][key].as_u64().expect("a count");
    let jobs = report["jobs"].as_array().expect("a list").iter();
    jobs.map(|job| {
        let of = |part: &str| [count(job, part, "io_bytes"), count(job, part, "total_ios")];
        let ([a, b], [c, d], [e, f]) = (of("read"), of("write"), of("trim"));
        [a, b, c, d, e, f, count(job, "sync", "total_ios")]
    })
    .collect()
}

/// Runs the arguments with both programs, and compares. Without fio, the test is skipped.
#[track_caller]
fn check(test: &str, args: &str) {
    let (theirs, ours) = (prepared(), prepared());
    let output = Command::new("fio")
        .args(args.split_whitespace())
        .args(["--output-format=json", "--output=fio.json"])
        .current_dir(theirs.path())
        .output();
    match output {
        Ok(output) => assert!(output.status.success(), "{test}: fio: {}", stderr(&output)),
        Err(error) if error.kind() == ErrorKind::NotFound => return skip_without("fio", test),
        Err(error) => panic!("{test}: fio: {error}"),
    }
    let text = std::fs::read_to_string(theirs.path().join("fio.json")).expect("fio's JSON");
    let start = text.find("{\n").expect("a JSON value");
    let expected: Value = text[start..].parse().expect("fio's JSON");
    let report = bench_json(&ours, args);
    assert_eq!(counts(&report), counts(&expected), "{args}");
    assert_eq!(sizes(ours.path()), sizes(theirs.path()), "{args}");
    let options = |report: &Value| report["jobs"][0]["job options"].clone();
    assert_eq!(options(&report), options(&expected), "{args}");
}

#[test]
fn generated_files_and_their_sizes() {
    let test = "generated_files_and_their_sizes";
    check(test, "--name=a --rw=write --size=40k --nrfiles=3");
    check(test, "--name=a --rw=write --size=41000 --nrfiles=3 --ioengine=libaio --iodepth=4");
    check(test, "--name=a --rw=randread --size=400k --nrfiles=5 --ioengine=libaio --iodepth=8");
    check(test, "--name=a --rw=write --filesize=16k --nrfiles=3");
    check(test, "--name=a --rw=randwrite --filesize=16k --size=20k --nrfiles=3");
    check(
        test,
        "--name=a --rw=write --size=40k --nrfiles=2 --numjobs=2 \
         --filename_format=$jobname-$jobnum-$filenum",
    );
    check(test, "--name=a --rw=write --size=64k --nrfiles=4 --create_on_open=1");
    check(test, "--name=a --rw=write --size=64k --nrfiles=4 --fallocate=none");
}

#[test]
fn named_files_and_directories() {
    let test = "named_files_and_directories";
    check(test, "--name=a --rw=write --size=40k --filename=x:y");
    check(test, "--name=a --rw=write --size=40k --directory=d1:d2 --filename=x:y --numjobs=2");
    check(test, "--name=a --rw=randwrite --size=40k --nrfiles=2 --directory=d1:d2 --numjobs=3");
    check(test, "--name=a --rw=read --opendir=full");
    check(test, "--name=a --rw=write --size=40k --nrfiles=2 --unlink=1");
    check(test, "--name=a --rw=write --size=40k --filename_format=$jobname.$jobnum/x.$filenum");
}

#[test]
fn parts_of_files() {
    let test = "parts_of_files";
    check(test, "--name=a --rw=read --size=16k --file_append=1 --filename=full/big");
    check(test, "--name=a --rw=read --filesize=16k --filename=full/big");
    check(test, "--name=a --rw=write --size=16k --offset_increment=16k --numjobs=3 --filename=x");
    check(
        test,
        "--name=a --rw=read --offset_increment=25% --size=16k --numjobs=3 \
                 --filename=full/big",
    );
}

/// The length of a file shows where the last part begins.
#[test]
fn percentages_are_of_the_length_that_each_clone_finds() {
    let test = "percentages_are_of_the_length_that_each_clone_finds";
    let increments = "--offset_increment=10% --size=64k --numjobs=4 --filename=x";
    let big = "--size=64k --filename=full/big";
    let all = [
        "--rw=write --offset=10% --size=64k".to_owned(),
        format!("--rw=write {increments}"),
        format!("--rw=read {increments} --fallocate=none"),
        format!("--rw=write {increments} --fallocate=none"),
        format!("--rw=write {increments} --offset=50% --create_on_open=1"),
        format!("--rw=write --offset=50% {big}"),
        format!("--rw=read --offset=50% --offset_increment=20% --numjobs=3 {big}"),
        "--rw=write --offset=33% --bs=8k --filename=full/big".to_owned(),
        "--rw=write --offset=50% --filesize=64k --nrfiles=2".to_owned(),
        "--rw=write --offset=50% --filesize=128k --filename=full/big".to_owned(),
        "--rw=write --file_append=1 --size=16k --numjobs=3 --filename=x".to_owned(),
        "--rw=write --file_append=1 --size=16k --numjobs=3 --filename=x --fallocate=none"
            .to_owned(),
        "--rw=write --size=64k --filename=x:y --name=b --rw=read --stonewall --filename=y:z \
         --size=96k --offset=50%"
            .to_owned(),
        "--rw=write --size=64k --filename=x --name=b --filename=x --rw=read --stonewall \
         --offset=50% --size=25%"
            .to_owned(),
        "--rw=read --filename=full/big --name=b --filename=full/big --rw=read --size=256k"
            .to_owned(),
    ];
    let of_fallocate = ["native", "posix", "truncate", "keep", "none"].map(|fallocate| {
        format!(
            "--rw=write --fallocate={fallocate} --bs=4k --filename=full/big --size=128k \
             --name=b --rw=write --bs=4k --filename=full/big --size=128k --offset=50%"
        )
    });
    scope(|scope| {
        for args in all.iter().chain(&of_fallocate) {
            scope.spawn(move || check(test, &format!("--name=a {args}")));
        }
    });
}

#[test]
fn order_and_number_of_ios_over_files() {
    let test = "order_and_number_of_ios_over_files";
    check(test, "--name=a --rw=write --size=40k --io_size=100k --nrfiles=2");
    check(test, "--name=a --rw=write --size=40k --nrfiles=2 --loops=3 --fsync=3");
    check(test, "--name=a --rw=write --size=40k --nrfiles=2 --number_ios=7");
    check(test, "--name=a --rw=write --size=64k --nrfiles=4 --file_service_type=sequential");
    check(test, "--name=a --rw=write --size=64k --nrfiles=4 --file_service_type=zipf:1.2");
    check(
        test,
        "--name=a --rw=read --size=64k --nrfiles=4 --file_service_type=random:8 \
                 --openfiles=2",
    );
}

/// Blocks of all files are verified, with several I/Os in flight on several disks.
#[test]
fn blocks_of_all_files_are_read_back() {
    for args in ["--ioengine=libaio --iodepth=16", "--ioengine=io_uring --iodepth=8", ""] {
        let folder = folder();
        let args = format!(
            "--name=a --rw=randwrite --size=4m --nrfiles=4 --verify=crc32c --direct=1 {args} \
             --iodepth_batch=4 --file_service_type=random"
        );
        let report = bench_json(&folder, &args);
        let job = &report["jobs"][0];
        assert_eq!((&job["error"], &job["read"]["total_ios"]), (&0.into(), &1024.into()), "{args}");
        assert_eq!(report["forebay"].as_array().map(Vec::len), Some(4), "{args}");
    }
}

#[test]
fn order_and_ends_of_jobs() {
    let test = "order_and_ends_of_jobs";
    check(
        test,
        "--filename=x --size=1m --name=a --rw=read --name=b --rw=read --wait_for=a --name=c \
         --rw=write --wait_for=b",
    );
    check(
        test,
        "--filename=full/big --name=a --rw=read --number_ios=3 --thinktime=100ms --exitall \
        --name=b --rw=read \
         --time_based --runtime=30 --thinktime=5s",
    );
    check(
        test,
        "--filename=full/big --name=a --rw=read --number_ios=3 --thinktime=100ms --exitall \
        --exit_what=stonewall \
         --new_group --name=b --new_group --rw=read --time_based --runtime=30 --thinktime=5s \
         --name=c --stonewall --rw=read",
    );
    check(
        test,
        "--filename=full/big --name=a --rw=read --numjobs=2 --cpus_allowed=0 \
         --cpus_allowed_policy=split --nice=2",
    );
}

#[test]
fn engines_with_blocking_calls() {
    for engine in ["sync", "vsync", "pvsync", "pvsync2", "mmap", "posixaio"] {
        let args = format!("--name=a --ioengine={engine} --rw=randwrite --size=400k --fsync=5");
        check("engines_with_blocking_calls", &args);
    }
}

#[test]
fn low_rate_ends_the_job() {
    let folder = folder();
    let output = bench(
        &folder,
        "--name=a --filename=ram:1M --rw=read --time_based --runtime=20 --rate_iops_min=100 \
         --rate_cycle=300 --thinktime=100ms",
    );
    let text = stderr(&output);
    assert!(text.contains("forebay: a: --rate_iops_min=100: "), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

#[test]
fn page_cache_of_a_file_that_is_removed_under_a_running_job_is_dropped() {
    let folder = folder();
    let output = bench(
        &folder,
        "--filename=x --size=64k --ioengine=psync --rw=write --name=a --unlink=1 --name=b \
         --unlink=0 --offset=64k --rate_iops=100 --number_ios=4 --verify=crc32c",
    );
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains("cannot drop its page cache"), "{text}");
    assert!(text.contains("b: --unlink of a has removed x while b"), "{text}");
}

#[test]
fn unlink_removes_files_when_the_job_ends_and_other_jobs_run() {
    let folder = folder();
    let (short, long) = (folder.path().join("short"), folder.path().join("long"));
    let mut run = forebay(&folder)
        .args(["bench", "--rw=write", "--size=64k", "--unlink=1", "--name=a", "--filename=short"])
        .args(["--name=b", "--filename=long", "--time_based", "--runtime=30"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be run");
    let deadline = Instant::now() + Duration::from_secs(20);
    let until = |is_met: &dyn Fn() -> bool| {
        while !is_met() && Instant::now() < deadline {
            sleep(Duration::from_millis(2));
        }
    };
    until(&|| long.exists() && std::fs::metadata(&long).is_ok_and(|data| data.len() == 65_536));
    until(&|| !short.exists());
    let (is_removed, is_running) = (!short.exists(), long.exists());
    run.kill().expect("it runs");
    run.wait().expect("a status");
    assert!(is_removed && is_running, "removed: {is_removed}, other job running: {is_running}");
}

#[test]
fn two_names_of_a_file_in_a_new_folder_are_one_file() {
    let test = "two_names_of_a_file_in_a_new_folder_are_one_file";
    check(test, "--size=64k --rw=write --name=a --filename=d/x --name=b --filename=./d/x");
}

/// In fio such a job creates the file anew. Here a removal waits until no job can begin any more.
#[test]
fn job_that_begins_after_an_unlink_keeps_its_file() {
    let test = "job_that_begins_after_an_unlink_keeps_its_file";
    let args = "--filename=x --size=64k --rw=write --name=a --unlink=1 --name=b --unlink=0";
    check(test, &format!("{args} --wait_for=a"));
    for begin in ["--wait_for=a", "--stonewall", "--startdelay=30ms"] {
        let folder = folder();
        let output = bench(&folder, &format!("{args} {begin} --verify=crc32c"));
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""), "{begin}");
        let len = std::fs::metadata(folder.path().join("x")).map(|metadata| metadata.len()).ok();
        assert_eq!(len, Some(65_536), "{begin}");
    }
}

#[test]
fn unlink_removes_each_hard_link_of_a_file() {
    for begin in ["--stonewall", "--wait_for=a", ""] {
        let folder = folder();
        let [x, y] = ["x", "y"].map(|name| folder.path().join(name));
        std::fs::write(&x, vec![7; 65_536]).expect("a file");
        std::fs::hard_link(&x, &y).expect("a link");
        let args = "--size=64k --rw=read --bs=4k --name=a --filename=x --unlink=1 --name=b \
                    --filename=y --unlink=1";
        let output = bench(&folder, &format!("{args} {begin}"));
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""), "{begin}");
        assert_eq!(sizes(folder.path()), BTreeMap::new(), "{begin}");
    }
}

#[test]
fn data_that_an_unlink_removes_under_a_writer_are_noted() {
    let folder = folder();
    let write = "--filename=x --size=64k --rw=write --name=a --unlink=1 --name=b --unlink=0";
    let output = bench(&folder, &format!("{write} --rate_iops=100 --number_ios=4"));
    let text = stderr(&output);
    let note = "forebay: b: --unlink of a has removed x while b writes to it: everything that b \
                writes to it is lost; give b another file, or start it after a with --wait_for\n";
    assert!(text.ends_with(note), "{text}");
    assert!(!folder.path().join("x").exists());
}
