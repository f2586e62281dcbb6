//! Unit tests of `removal`.

use std::fs;

use forebay_fio::cmdline::{Parsed, parse};
use tempfile::TempDir;

use super::*;
use crate::bench::plan::plan;

/// Runs `steps` on the jobs `a`, `b` and so on of a command line, where `@` stands for a folder
/// with the files `x` and `y`. Each step is the name of a job: it begins a clone, ends a clone that
/// has begun (`-a`), or ends one that has not (`!a`). Returns the files after each step, and after
/// the end of the run.
fn files_after(args: &str, steps: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    ["x", "y"].iter().for_each(|name| fs::write(folder.path().join(name), "x").expect("a file"));
    files_after_in(&folder, args, steps)
}

/// Does the same in a folder that exists.
fn files_after_in(folder: &TempDir, args: &str, steps: &str) -> Vec<String> {
    let args = args.replace('@', &folder.path().display().to_string());
    let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(&args);
    let removal = Removal::new(&command.jobs, &targets);
    let number = |name: &str| command.jobs.iter().position(|job| job.name == name).expect(name);
    let mut seen = Vec::new();
    for step in steps.split(' ') {
        match (step.strip_prefix('-'), step.strip_prefix('!')) {
            (Some(name), _) => removal.clone_ended(number(name), true),
            (_, Some(name)) => removal.clone_ended(number(name), false),
            _ => removal.clone_begins(number(step)),
        }
        seen.push(names(folder));
    }
    drop(removal);
    seen.push(names(folder));
    seen
}

fn names(folder: &TempDir) -> String {
    let names = ["x", "y"].into_iter().filter(|name| folder.path().join(name).exists());
    names.collect()
}

#[test]
fn file_is_removed_when_the_last_clone_ends() {
    let args = "--filename=@/x --rw=write --size=1k --unlink=1 --name=a --numjobs=2 --name=b \
                --filename=@/y --unlink=0 --numjobs=1";
    assert_eq!(files_after(args, "a a b -a -a -b"), ["xy", "xy", "xy", "xy", "y", "y", "y"]);
}

#[test]
fn job_that_begins_after_a_removal_decides_about_the_file() {
    let jobs = |last: &str| {
        format!("--filename=@/x --rw=write --size=1k --unlink=1 --name=a --name=b {last}")
    };
    for last in ["--unlink=0", "--unlink=0 --stonewall", "--unlink=0 --filename=@/./x"] {
        assert_eq!(files_after(&jobs(last), "a -a b -b"), ["xy"; 5], "{last}");
    }
    assert_eq!(files_after(&jobs("--unlink=1"), "a -a b -b"), ["xy", "xy", "xy", "y", "y"]);
    assert_eq!(files_after(&jobs("--filename=@/y"), "a -a b -b"), ["xy", "y", "y", "", ""]);
}

#[test]
fn job_that_never_begins_keeps_no_file() {
    let args = "--filename=@/x --rw=write --size=1k --name=a --unlink=1 --name=b --unlink=";
    for unlink in ["0", "1"] {
        let args = format!("{args}{unlink}");
        assert_eq!(files_after(&args, "a -a !b"), ["xy", "xy", "y", "y"]);
        // A signal has ended the run before the stage of `b`.
        assert_eq!(files_after(&args, "a -a"), ["xy", "xy", "y"]);
    }
}

#[test]
fn job_that_never_begins_removes_no_file() {
    let args = "--filename=@/x --rw=write --size=1k --name=a --unlink=1";
    assert_eq!(files_after(args, "!a"), ["xy", "xy"]);
}

#[test]
fn removal_does_not_wait_for_jobs_that_have_begun() {
    let args = "--filename=@/x --rw=write --size=1k --name=a --unlink=1 --name=b --unlink=0";
    assert_eq!(files_after(args, "a b -a -b"), ["xy", "xy", "y", "y", "y"]);
}

#[test]
fn job_with_another_link_to_a_file_keeps_only_that_link() {
    let args = "--rw=write --size=1k --name=a --filename=@/x --unlink=1 --name=b --filename=@/y";
    for (unlink, after) in [("0", ["xy", "y", "y", "y", "y"]), ("1", ["xy", "y", "y", "", ""])] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::write(folder.path().join("x"), "x").expect("a file");
        fs::hard_link(folder.path().join("x"), folder.path().join("y")).expect("a link");
        let args = format!("{args} --unlink={unlink}");
        assert_eq!(files_after_in(&folder, &args, "a -a b -b"), after, "{unlink}");
    }
}

#[test]
fn job_with_a_symbolic_link_decides_about_its_target() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    fs::write(folder.path().join("x"), "x").expect("a file");
    std::os::unix::fs::symlink("x", folder.path().join("y")).expect("a link");
    let args = "--rw=write --size=1k --name=a --filename=@/x --unlink=1 --name=b --filename=@/y";
    assert_eq!(files_after_in(&folder, args, "a -a b -b"), ["xy"; 5]);
}

#[test]
fn writers_of_a_removed_file_are_those_that_run_and_keep_it() {
    let args = "--filename=x --size=1k --name=a --rw=write --unlink=1 --name=b --rw=randrw \
                --name=c --rw=read --name=d --rw=write --unlink=1 --name=e --rw=write \
                --filename=y --name=f --rw=write";
    let args = args.split(' ').map(Into::into);
    let Ok(Parsed::Run(command)) = parse(args) else { panic!("six jobs") };
    let targets = plan(&command.jobs).expect("targets");
    let removal = Removal::new(&command.jobs, &targets);
    (0..5).for_each(|job| removal.clone_begins(job));
    let state = removal.state.lock().expect("no panic");
    assert_eq!(removal.writers(&state.jobs_files, targets[0].place), ["b"]);
}
