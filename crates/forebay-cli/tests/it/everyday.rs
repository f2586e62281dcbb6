//! Job files as users of fio write them: fio accepts each, and `bench` runs each as it is, with the
//! effects of its options.
//!
//! They were written for this test, after a review's description of typical uses.

mod effects;
mod results;

use std::fs::create_dir;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;

use self::results::Results;
use crate::common::{fio, folder, forebay, json, skip_without, stderr};

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

/// Returns a folder with the directories.
fn prepared() -> TempDir {
    let folder = folder();
    for name in DIRECTORIES {
        create_dir(folder.path().join(name)).expect("a directory");
    }
    folder
}

/// Runs a file. The run must succeed.
fn run(path: &Path, folder: &TempDir, options: &[&str]) -> Results {
    let mut command = forebay(folder);
    let run = command.args(["bench", "--output-format=json"]).args(options).arg(path).output();
    let run = run.expect("it can be run");
    assert_eq!(run.status.code(), Some(0), "{}: {}", path.display(), stderr(&run));
    Results::new(folder.path(), &json(&run), stderr(&run))
}

/// Runs a file with fio, if it is installed.
fn run_fio(path: &Path, folder: &TempDir) -> Option<Results> {
    let args = format!("--output-format=json --output=fio.json {}", path.display());
    let run = fio("everyday_job_files_run_as_written", folder, &args)?;
    let text = std::fs::read_to_string(folder.path().join("fio.json")).expect("fio's JSON");
    let start = text.find("{\n").expect("a JSON value");
    let report = text[start..].parse().expect("fio's JSON");
    Some(Results::new(folder.path(), &report, stderr(&run)))
}

/// Runs a file and checks its effects, also beside fio.
fn check(path: &Path, folder: &TempDir) {
    let ours = run(path, folder, &[]);
    let number = &name(path)[..2];
    effects::check(number, &ours);
    if effects::BESIDE_FIO.contains(&number) {
        let their_folder = prepared();
        if let Some(theirs) = run_fio(path, &their_folder) {
            effects::compare(number, &ours, &theirs);
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
        scope.spawn(|| {
            let folder = prepared();
            pair.iter().for_each(|path| check(path, &folder));
        });
        for paths in alone.chunks(3) {
            scope.spawn(|| paths.iter().for_each(|path| check(path, &prepared())));
        }
    });
}

#[test]
fn burn_in_finds_a_damaged_block() {
    let folder = folder();
    let files = files();
    let path = &files[5];
    run(path, &folder, &[]);
    let intact = run(path, &folder, &["--verify_only"]);
    assert_eq!(intact.job(0).moved("read").bytes, 16 << 20);
    let image = folder.path().join("burn-in.img");
    let mut data = std::fs::read(&image).expect("the file");
    data[5_000_000] ^= 1;
    std::fs::write(&image, &data).expect("the file");
    let mut command = forebay(&folder);
    let run = command.args(["bench", "--output-format=json", "--verify_only"]).arg(path).output();
    let run = run.expect("it can be run");
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    let damaged = Results::new(folder.path(), &json(&run), stderr(&run));
    // EILSEQ, as in fio; verify_fatal ends the job.
    assert_eq!(damaged.job(0).error, 84);
    assert!(damaged.job(0).moved("read").bytes < 16 << 20);
    assert!(damaged.messages.contains("burn-in: verify: damaged data at offset "));
    let dumps: Vec<_> = damaged.files.keys().filter(|name| *name != "burn-in.img").collect();
    let [expected, received] = dumps[..] else { panic!("{dumps:?}") };
    let offset =
        received.strip_prefix("burn-in.img.").and_then(|name| name.strip_suffix(".received"));
    let offset: usize = offset.and_then(|text| text.parse().ok()).expect(received);
    let data_of = |name: &String| std::fs::read(folder.path().join(name)).expect("a dump");
    let (right, wrong) = (data_of(expected), data_of(received));
    assert_eq!(wrong, data[offset..offset + wrong.len()]);
    let differing: Vec<_> =
        (0..wrong.len()).filter(|&at| right.get(at) != Some(&wrong[at])).collect();
    assert!(differing.contains(&(5_000_000 - offset)), "{differing:?}");
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
