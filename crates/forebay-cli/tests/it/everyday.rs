//! Job files as users of fio write them: fio accepts each, and `bench` runs each as it is.
//!
//! They were written for this test, after a review's description of typical uses.

use std::fs::create_dir;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::common::{folder, forebay, json, skip_without, stderr};

/// The directories that the files name.
const DIRECTORIES: [&str; 4] = ["spool-a", "spool-b", "objects", "photos"];

/// Returns the paths of the files, in the order of their numbers.
fn files() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs/everyday");
    let entries = std::fs::read_dir(all).expect("a directory").flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    assert_eq!(files.len(), 13);
    files
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a name")
}

/// Runs the files one after another in one folder: a replay needs the log of the file before it.
fn run(files: &[PathBuf]) {
    let folder = folder();
    for name in DIRECTORIES {
        create_dir(folder.path().join(name)).expect("a directory");
    }
    for path in files {
        let run = forebay(&folder).args(["bench", "--output-format=json"]).arg(path).output();
        let run = run.expect("it can be run");
        assert_eq!(run.status.code(), Some(0), "{}: {}", path.display(), stderr(&run));
        let report = json(&run);
        for job in report["jobs"].as_array().expect("a list") {
            let ios = |part: &str| job[part]["total_ios"].as_u64().expect("a count");
            assert_eq!(job["error"], 0, "{}", path.display());
            assert!(ios("read") + ios("write") + ios("trim") > 0, "{}: {job}", path.display());
        }
    }
}

#[test]
fn everyday_job_files_run_as_written() {
    let files = files();
    // 11 records the log that 12 replays.
    let (alone, pair): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|path| !name(path).starts_with("11") && !name(path).starts_with("12"));
    thread::scope(|scope| {
        scope.spawn(|| run(&pair));
        for path in alone.chunks(3) {
            scope.spawn(|| run(path));
        }
    });
}

#[test]
fn fio_accepts_the_everyday_job_files() {
    let folder = folder();
    for path in files() {
        let mut fio = Command::new("fio");
        fio.arg("--parse-only").arg(&path).current_dir(folder.path());
        match fio.output() {
            Ok(fio) => assert!(fio.status.success(), "{}: {}", path.display(), stderr(&fio)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return skip_without("fio", "fio_accepts_the_everyday_job_files");
            }
            Err(error) => panic!("fio: {error}"),
        }
    }
}
