//! Batches, single reads and syncs on files and devices some of whose blocks fail.
//!
//! The file is served by `faulty.c`, through FUSE. A loop device on it is a disk with bad blocks. A
//! loop device on a full file system is not: Linux 6.18 reports a short write to its file as a
//! complete one, so the result of a merged write would not be that of its parts.

use super::{compile, library, play, skip};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The effect of a bad block on the iocb that covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The iocb ends before the bad block, and is short.
    Parts,
    /// The iocb fails, and its good blocks are written.
    Whole,
    /// The request of a block device fails.
    Device,
}

impl Kind {
    /// Returns the argument of `faulty.c`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Parts => "parts",
            Kind::Whole => "whole",
            Kind::Device => "device",
        }
    }
}

/// Runs a program. Returns its output.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program}: {}", text(&output.stderr))),
    }
}

/// The programs of these tests.
#[derive(Debug)]
pub(crate) struct Programs {
    faults: PathBuf,
    faulty: PathBuf,
}

impl Programs {
    /// Compiles the programs. `None` if the system's library is not installed.
    pub(crate) fn compile(folder: &Path) -> Option<Programs> {
        compile("faults", folder)?;
        compile("faulty", folder)?;
        Some(Programs::of(folder))
    }

    /// Returns those in a folder.
    pub(crate) fn of(folder: &Path) -> Programs {
        Programs { faults: folder.join("faults"), faulty: folder.join("faulty") }
    }

    /// Runs the program on a new file or device of this kind. Returns its output, and the iocbs and
    /// merges of the layer.
    fn run(&self, kind: Kind, seed: u64, preload: &Path) -> Result<(String, [u64; 2]), String> {
        let file = Faulty::new(&self.faulty, kind)?;
        let (output, counted) = play(&self.faults, file.path(), &[&seed.to_string()], preload)?;
        let counters = counted
            .processes
            .first()
            .map_or([0; 3], |process| process.counters[..3].try_into().expect("three"));
        Ok((output, [counters[0], counters[2]]))
    }

    /// Runs the program on both libraries. Returns its output, and the iocbs and merges.
    ///
    /// # Errors
    /// A program has failed, or the outputs differ.
    pub(crate) fn compare(&self, kind: Kind, seed: u64) -> Result<(String, [u64; 2]), String> {
        let (system, _) = self.run(kind, seed, Path::new(""))?;
        let (own, counters) = self.run(kind, seed, library())?;
        match first_difference(&system, &own) {
            None => Ok((own, counters)),
            Some(difference) => Err(difference),
        }
    }
}

/// Returns the first line in which two outputs differ.
pub(crate) fn first_difference(system: &str, own: &str) -> Option<String> {
    let (mut lines, mut own_lines) = (system.lines(), own.lines());
    for nr in 1.. {
        match (lines.next(), own_lines.next()) {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                let [one, other] = [one, other].map(|line| line.unwrap_or("(the end)"));
                return Some(format!(
                    "line {nr} differs:\n system's library: {one}\n this library: {other}"
                ));
            }
        }
    }
    None
}

/// A mounted file, and the loop device on it.
#[derive(Debug)]
struct Faulty {
    server: Child,
    file: PathBuf,
    /// A path below `/dev`.
    node: Option<PathBuf>,
}

impl Faulty {
    fn new(program: &Path, kind: Kind) -> Result<Faulty, String> {
        let file = program.with_extension(kind.name());
        fs::write(&file, []).expect("a file");
        let mut command = Command::new(program);
        command.arg(&file).arg(kind.name()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().expect("the server");
        let mut line = String::new();
        let stdout = server.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        if line != "mounted\n" {
            let mut text = String::new();
            let stderr = server.stderr.as_mut().expect("a pipe");
            stderr.read_to_string(&mut text).expect("text");
            server.wait().expect("it has ended");
            return Err(text.trim().to_owned());
        }
        let mut faulty = Faulty { server, file, node: None };
        if kind == Kind::Device {
            let node = run("losetup", &["--find", "--show", text_of(&faulty.file)])?;
            faulty.node = Some(node.into());
            // The kernel merges the bios of one `io_submit`, and each fails with the others.
            faulty.set_merges("2")?;
        }
        Ok(faulty)
    }

    fn path(&self) -> &Path {
        self.node.as_ref().unwrap_or(&self.file)
    }

    /// Sets whether the kernel merges I/O of the device: 0 or 2, which is never.
    fn set_merges(&self, value: &str) -> Result<(), String> {
        let Some(name) = self.node.as_ref().and_then(|node| node.file_name()) else {
            return Ok(());
        };
        let path = Path::new("/sys/block").join(name).join("queue/nomerges");
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let is_reset = self.set_merges("0").is_ok();
        let detached = self.node.as_ref().map(|node| run("losetup", &["--detach", text_of(node)]));
        let is_detached = is_reset && detached.is_none_or(|result| result.is_ok());
        let is_unmounted = run("umount", &["--lazy", text_of(&self.file)]).is_ok();
        if !is_unmounted {
            // Its end ends the I/O that would keep the file busy.
            let _ = self.server.kill();
        }
        let has_ended = self.server.wait().is_ok();
        let is_clean = is_detached && is_unmounted && has_ended;
        assert!(
            is_clean || std::thread::panicking(),
            "cannot clean up {0}: run `losetup --detach-all` and `umount --lazy {0}`",
            self.file.display()
        );
    }
}

/// Returns whether this machine can have files of this kind. Otherwise skips the test.
#[track_caller]
pub(crate) fn can_have(programs: &Programs, kind: Kind, test: &str) -> bool {
    let obstacle = Faulty::new(&programs.faulty, kind).err();
    if let Some(why) = &obstacle {
        let why = format!("no file or device with bad blocks: {why} (needs root)");
        match Path::new("/dev/fuse").exists() {
            true => skip::skip(test, &why),
            false => skip::skip_always(test, &why),
        }
    }
    obstacle.is_none()
}

/// Compares the results of each iocb on both libraries, on files of this kind.
#[track_caller]
fn compare(test: &str, kind: Kind, results: &[&str]) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(programs) = Programs::compile(folder.path()) else { return };
    if !can_have(&programs, kind, test) {
        return;
    }
    let mut all = String::new();
    for seed in 1..=4 {
        let compared = programs.compare(kind, seed);
        let (output, [iocbs, merges]) =
            compared.unwrap_or_else(|error| panic!("{kind:?}, seed {seed}: {error}"));
        assert!(iocbs > 0 && merges > 0, "seed {seed}: {iocbs} iocbs, {merges} merges");
        assert!(output.contains("\n0 of "), "seed {seed}: blocks are wrong:\n{output}");
        assert!(output.contains(", 0 of "), "seed {seed}: blocks are wrong at the end:\n{output}");
        all += &output;
    }
    let has = |op, result| {
        let end = format!("= {result}");
        all.lines().any(|line| line.starts_with(op) && line.ends_with(&end))
    };
    for result in results {
        assert!(has(" read", result) && has(" write", result), "no iocb has the result {result}");
    }
    assert!(all.contains("sync = 0\n") && all.contains("sync = -5\n"), "no sync has failed");
}

/// Results of good blocks, and errors: EIO, ENOSPC, ENODATA, ETIMEDOUT, EREMOTEIO.
const ERRORS: [&str; 7] = ["4096", "12288", "-5", "-28", "-61", "-110", "-121"];

#[test]
fn iocbs_before_a_bad_block_are_short_as_with_the_system_library() {
    let results = [&ERRORS[..], &["512", "5096"]].concat();
    compare("iocbs_before_a_bad_block_are_short", Kind::Parts, &results);
}

#[test]
fn iocbs_of_a_file_with_bad_blocks_fail_as_with_the_system_library() {
    compare("iocbs_of_a_file_with_bad_blocks_fail", Kind::Whole, &ERRORS);
}

#[test]
fn iocbs_of_a_device_with_bad_blocks_fail_as_with_the_system_library() {
    compare("iocbs_of_a_device_with_bad_blocks_fail", Kind::Device, &ERRORS);
}
