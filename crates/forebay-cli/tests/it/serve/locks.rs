//! Image locks: which programs may have one image open at the same time.
//!
//! Each program uses some permissions on the image and denies some to others. Two programs conflict
//! if one uses a permission that the other denies. The table below lists both for each program. The
//! test opens an image by every pair of programs with at least one of ours, in both orders.

use super::server::Server;
use super::tools::is_there;
use crate::common::{folder, forebay, stderr};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WRITE: u8 = 1;
const WRITE_UNCHANGED: u8 = 2;
const RESIZE: u8 = 4;

/// A program that opens `disk.img`, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Forebay,
    ForebayReadOnly,
    ForebayShared,
    QemuIo,
    QemuIoReadOnly,
    QemuNbd,
    QemuNbdReadOnly,
    /// A virtual machine with the image as a virtio disk.
    Machine,
}

use Program::{
    Forebay, ForebayReadOnly, ForebayShared, Machine, QemuIo, QemuIoReadOnly, QemuNbd,
    QemuNbdReadOnly,
};

const ALL: [Program; 8] = [
    Forebay,
    ForebayReadOnly,
    ForebayShared,
    QemuIo,
    QemuIoReadOnly,
    QemuNbd,
    QemuNbdReadOnly,
    Machine,
];

impl Program {
    fn is_ours(self) -> bool {
        matches!(self, Forebay | ForebayReadOnly | ForebayShared)
    }

    /// Returns the permissions that it uses beyond reading, and those that it denies to others.
    fn permissions(self) -> (u8, u8) {
        match self {
            Forebay => (WRITE, WRITE | WRITE_UNCHANGED | RESIZE),
            ForebayReadOnly => (0, WRITE | RESIZE),
            ForebayShared | QemuIo | QemuNbd => (WRITE, 0),
            QemuIoReadOnly | QemuNbdReadOnly => (0, 0),
            Machine => (WRITE, WRITE | RESIZE),
        }
    }

    fn conflicts_with(self, other: Program) -> bool {
        let ((uses, withholds), (others_uses, others_withholds)) =
            (self.permissions(), other.permissions());
        uses & others_withholds != 0 || others_uses & withholds != 0
    }
}

/// A program that has the image open until this is dropped.
enum Holder {
    Server(#[expect(dead_code, reason = "it is held")] Server),
    Other(Child),
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Holder::Other(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn qemu(folder: &TempDir, program: &str, args: &str) -> Command {
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a QEMU program, and returns it once it has printed a line with `sign`: it has opened the
/// image by then. Returns its output if it exits before.
fn start(mut command: Command, input: &[u8], sign: &str) -> Result<Child, String> {
    let mut child = command.spawn().expect("it can be run");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("it reads");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut printed, mut line) = (String::new(), String::new());
    while lines.read_line(&mut line).expect("text") > 0 {
        if line.contains(sign) {
            // The program would exit if its input were closed.
            child.stdin = Some(stdin);
            return Ok(child);
        }
        printed.push_str(&std::mem::take(&mut line));
    }
    let output = child.wait_with_output().expect("it ends");
    Err(printed + &String::from_utf8_lossy(&output.stderr))
}

/// Starts `qemu-nbd`, which has opened the image once it greets a client. (It listens before that.)
fn start_nbd(folder: &TempDir, args: &str) -> Result<Child, String> {
    let socket = folder.path().join("qemu-nbd.sock");
    let _ = std::fs::remove_file(&socket);
    let args = format!("-f raw -t {args} -k {} disk.img", socket.display());
    let mut child = qemu(folder, "qemu-nbd", &args).spawn().expect("it can be run");
    let greets = || {
        let client = UnixStream::connect(&socket);
        client.and_then(|mut client| client.read_exact(&mut [0; 8])).is_ok()
    };
    let start = Instant::now();
    while !greets() {
        if child.try_wait().expect("a child").is_some() {
            let output = child.wait_with_output().expect("it has ended");
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        assert!(start.elapsed() < Duration::from_secs(60), "qemu-nbd does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

const READ: &[u8] = b"read 0 512\n";
const SIGN: &str = "read 512/512";

/// Opens the image by this program and keeps it open, or returns the error.
fn hold(folder: &TempDir, program: Program) -> Result<Holder, String> {
    let ours = |args| Ok(Holder::Server(Server::start(folder, args)));
    let machine = "-S -nodefaults -display none -monitor stdio -m 32M \
                   -drive file=disk.img,format=raw,if=virtio";
    match program {
        Forebay => return ours("disk.img"),
        ForebayReadOnly => return ours("disk.img --read-only"),
        ForebayShared => return ours("disk.img --shared"),
        QemuIo => start(qemu(folder, "qemu-io", "-f raw disk.img"), READ, SIGN),
        QemuIoReadOnly => start(qemu(folder, "qemu-io", "-f raw -r disk.img"), READ, SIGN),
        QemuNbd => start_nbd(folder, ""),
        QemuNbdReadOnly => start_nbd(folder, "-r"),
        Machine => start(
            qemu(folder, "qemu-system-x86_64", machine),
            b"info status\n",
            "VM status: paused",
        ),
    }
    .map(Holder::Other)
}

/// Opens and closes the image by this program, or returns the error.
fn open(folder: &TempDir, program: Program) -> Result<(), String> {
    let info = |spec| {
        let output = forebay(folder).args(["info", spec]).output().expect("it can be run");
        if output.status.success() { Ok(()) } else { Err(stderr(&output)) }
    };
    match program {
        // With an explicit key, `info` does not retry without the lock.
        Forebay => info("disk.img?lock=on"),
        ForebayReadOnly => info("disk.img?read_only=on"),
        ForebayShared => info("disk.img?lock=shared"),
        _ => hold(folder, program).map(drop),
    }
}

fn image() -> TempDir {
    let folder = folder();
    let file = std::fs::File::create(folder.path().join("disk.img")).expect("a file");
    file.set_len(1 << 20).expect("room for it");
    folder
}

#[test]
fn every_pair_of_programs_shares_an_image_only_if_both_allow_it() {
    let test = "every_pair_of_programs_shares_an_image_only_if_both_allow_it";
    if ["qemu-io", "qemu-nbd", "qemu-system-x86_64"].iter().any(|tool| !is_there(tool, test)) {
        return;
    }
    let try_all = |first: Program| {
        let folder = image();
        let holder = hold(&folder, first).unwrap_or_else(|why| panic!("{first:?}: {why}"));
        for second in ALL.into_iter().filter(|second| first.is_ours() || second.is_ours()) {
            let result = open(&folder, second);
            let expected = if first.conflicts_with(second) { "refused" } else { "opened" };
            let found = if result.is_err() { "refused" } else { "opened" };
            assert_eq!(found, expected, "{second:?} while {first:?} has it: {result:?}");
            if let (true, Err(message)) = (second.is_ours(), result) {
                let begin = "forebay: disk.img: another program ";
                assert!(message.starts_with(begin) && message.contains("lock=shared"), "{message}");
            }
        }
        drop(holder);
        open(&folder, Forebay).expect("the locks end with their program");
    };
    thread::scope(|scope| ALL.map(|first| scope.spawn(move || try_all(first))).map(|t| t.join()))
        .into_iter()
        .for_each(|joined| joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
}

#[test]
fn several_exports_of_one_file_share_its_locks() {
    let folder = image();
    let server = Server::start(&folder, "disk.img disk.img?read_only=on --name a --name b");
    let refused = open(&folder, Forebay).expect_err("it is served");
    assert!(refused.contains("does not allow others to write to it"), "{refused}");
    assert!(server.terminate().success());
    open(&folder, Forebay).expect("the locks end with the server");
}

#[test]
fn an_open_waits_for_a_server_that_ends() {
    let folder = image();
    let server = Server::start(&folder, "disk.img");
    let opened = thread::scope(|scope| {
        let opened = scope.spawn(|| open(&folder, Forebay));
        assert!(server.terminate().success());
        opened.join().expect("no panic")
    });
    opened.expect("the server has ended in time");
}

#[test]
fn a_lock_that_is_turned_off_keeps_no_program_away() {
    let folder = image();
    let _server = Server::start(&folder, "disk.img?lock=off");
    open(&folder, Forebay).expect("the server has no locks");
}
