//! SIGKILL to a tree of processes under `forebay run`, while they extend files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::common::{folder, skip_without};
use crate::run::{counters_of_all, run};

const BLOCK: usize = 4096;

/// Compiles the program against the system's library.
fn compile(folder: &TempDir, test: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../forebay-aio/tests/c/extend.c");
    let program = folder.path().join("extend");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1"]).arg(source).arg("-o").arg(&program);
    let output = cc.arg("-l:libaio.so.1").output().expect("a compiler of C");
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("cannot find -l:libaio.so.1") {
        skip_without("libaio.so.1 (package libaio1)", test);
        return None;
    }
    assert!(output.status.success(), "{text}");
    Some(program)
}

/// Returns what a process writes to a block: numbers that follow from its own and that of the
/// block, as the function `stamp` of the program makes them.
fn stamp(process: usize, block: usize) -> Vec<u8> {
    let first = (process << 48 | block << 16) as u64;
    (0..BLOCK as u64 / 8).flat_map(|nth| (first + nth).to_ne_bytes()).collect()
}

/// Kills the program when each of its processes has reported this number of blocks. Checks that
/// the files have all blocks that were reported.
fn kill_after(folder: &TempDir, program: &Path, nr_blocks: usize) {
    let mut command = run(folder, "--stats report --");
    let mut child =
        command.arg(program).args(["1", "2"]).stdout(Stdio::piped()).spawn().expect("a child");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    let group = first.strip_prefix("group ").and_then(|number| Pid::from_raw(number.parse().ok()?));
    let group = group.expect("a process");
    let mut reported = [Vec::new(), Vec::new()];
    let mut is_killed = false;
    for line in lines {
        let line = line.expect("text");
        let (process, block) = line.split_once(' ').expect("two numbers");
        let process: usize = process.parse().expect("a number");
        reported[process - 1].push(block.parse::<usize>().expect("a number"));
        if !is_killed && reported.iter().all(|blocks| blocks.len() >= nr_blocks) {
            kill_process_group(group, Signal::KILL).expect("it runs");
            is_killed = true;
        }
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 9));
    for (process, blocks) in (1..).zip(&mut reported) {
        let data = fs::read(folder.path().join(process.to_string())).expect("the file");
        let (all, rest) = data.as_chunks::<BLOCK>();
        assert!(rest.is_empty(), "{process}: {} bytes", data.len());
        for (number, block) in all.iter().enumerate() {
            let is_whole = block[..] == stamp(process, number);
            // A write that was not reported is there as a whole, or not at all.
            assert!(is_whole || block.iter().all(|byte| *byte == 0), "{process}: {number}: a part");
            assert!(is_whole || !blocks.contains(&number), "{process}: {number}: missing");
        }
        blocks.sort_unstable();
        assert!(blocks.last().is_some_and(|last| *last < all.len()), "{process}: missing");
        assert!(blocks.windows(2).all(|pair| pair[0] < pair[1]), "{process}: ended twice");
    }
    let report = fs::read_to_string(folder.path().join("report")).expect("a report");
    let counters = counters_of_all(&report, "extend");
    assert_eq!(counters.len(), 2, "{report}");
    for [iocbs, requests, merges] in counters {
        assert!(iocbs >= nr_blocks as u64 && merges > iocbs / 2, "{report}");
        // A kill between two counters leaves out one batch.
        assert!(iocbs.abs_diff(requests + merges) <= 16, "{report}");
    }
}

#[test]
fn killed_processes_have_written_the_blocks_that_they_have_reported() {
    let folder = folder();
    let test = "killed_processes_have_written_the_blocks_that_they_have_reported";
    let Some(program) = compile(&folder, test) else { return };
    for nr_blocks in [1, 16, 17, 100, 333, 1000, 3000] {
        kill_after(&folder, &program, nr_blocks);
    }
}
