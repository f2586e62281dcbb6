//! Traces of a running server, to its own directory and to `forebay trace`.

use super::client::{Client, command};
use super::ctl::{ctl, error, folder};
use super::server::Server;
use crate::common::{json, stderr, stdout};
use crate::trace::tool;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn forebay(folder: &TempDir, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder.path()).args(args.split_whitespace());
    command
}

fn run(folder: &TempDir, args: &str) -> Output {
    forebay(folder, args).output().expect("it can be run")
}

/// Returns the reports of the disks of a trace.
#[track_caller]
fn report(folder: &TempDir, dir: &str) -> Vec<Value> {
    let output = run(folder, &format!("trace report {dir} --json"));
    assert!(output.status.success(), "{dir}: {}", stderr(&output));
    json(&output)["disks"].as_array().expect("disks").clone()
}

fn writes(client: &mut Client, nr: u64) {
    for nth in 0..nr {
        assert_eq!(client.ask((command::WRITE, 0), nth * 4096, 4096, &[7; 4096]).ok(), Some(0));
    }
}

/// Sends bytes with these descriptors, at most two.
fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// A recording that runs.
struct Recording {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Recording {
    /// Starts `forebay trace`, and returns when it records.
    fn start(folder: &TempDir, args: &str) -> Recording {
        let mut command = forebay(folder, &format!("trace run/control {args}"));
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be run");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("text");
        assert!(line.starts_with("forebay: recording to "), "{line}");
        Recording { child, stderr }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    /// Waits for its end. Returns the exit code, standard output, and the rest of standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut errors = String::new();
        self.stderr.read_to_string(&mut errors).expect("text");
        let output = self.child.wait_with_output().expect("it ends");
        (output.status.code(), stdout(&output), errors)
    }
}

/// Checks the files of a disk with blktrace's own programs, and returns the records that `blkparse`
/// finds. `None`: they are not installed.
fn checked_by_blktrace(dir: &Path, test: &str, disk: &str) -> Option<String> {
    let text = tool(dir, test, "blkparse", &format!("-i {disk} -d merged.bin"))?;
    tool(dir, test, "btt", "-i merged.bin")?;
    tool(dir, test, "blkrawverify", disk)?;
    let verdict = std::fs::read_to_string(dir.join(format!("{disk}.verify.out"))).expect("a file");
    let sums: Vec<_> = verdict.lines().filter(|line| line.contains(" invalid (")).collect();
    assert!(!sums.is_empty() && sums.iter().all(|line| line.contains(" 0 invalid")), "{verdict}");
    Some(text)
}

#[test]
fn confined_server_writes_traces_to_its_directory() {
    let test = "confined_server_writes_traces_to_its_directory";
    let folder = folder();
    let server =
        Server::start(&folder, "ram:1M?tag_set=serve-trace --control run/control --trace t");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    writes(&mut client, 20);
    let state = ctl(&folder, "trace off");
    let dir = folder.path().join("t/1");
    assert!(
        state.starts_with(&format!("trace off, the last one to {}: ", dir.display())),
        "{state}"
    );
    assert!(state.ends_with(" records, 0 lost\n"), "{state}");
    assert!(error(&folder, "trace off").contains("no trace runs"));
    // Not recorded.
    writes(&mut client, 5);
    assert_eq!(ctl(&folder, "list").lines().last(), state.lines().last());
    assert!(ctl(&folder, "trace on").starts_with("trace on, to "));
    writes(&mut client, 30);
    assert!(error(&folder, "trace on").contains("/t/2 runs already: end it with"));
    drop(client);
    // The end of the server ends the trace, and its last flush is in it.
    assert!(server.terminate().success());
    let queued = |dir: &str| report(&folder, dir)[0]["queued"].clone();
    assert_eq!((queued("t/1"), queued("t/2")), (20.into(), 30.into()));
    let text = stderr(&run(&folder, "trace report t"));
    let expected = "forebay: t: traces are in numbered directories: name one, such as t/2\n";
    assert_eq!(text, expected);
    let Some(text) = checked_by_blktrace(&dir, test, "ram-1M") else { return };
    let nr = |letter: &str| {
        text.lines().filter(|line| line.split_whitespace().nth(5) == Some(letter)).count()
    };
    assert_eq!([nr("Q"), nr("D"), nr("C")], [20; 3], "{text}");
    // A server that is started again replaces nothing.
    let again = Server::start(&folder, "ram:1M --control run/control --trace t");
    assert!(ctl(&folder, "trace").contains("/t/3: 0 records"));
    assert!(again.terminate().success());
}

#[test]
fn recording_under_load_has_all_exports_and_ends_at_a_signal() {
    let test = "recording_under_load_has_all_exports_and_ends_at_a_signal";
    let folder = folder();
    let server = Server::start(&folder, "ram:4M --name a --control run/control");
    let uri = server.uri("a");
    let load = |seconds: u32| {
        let mut bench = forebay(&folder, "bench --rw=randrw --bs=4k --iodepth=16 --time_based");
        let bench = bench.args([format!("--runtime={seconds}"), format!("--filename={uri}")]);
        bench.stdout(Stdio::null()).spawn().expect("it can be run")
    };
    let mut bench = load(3);
    let recording = Recording::start(&folder, "--output t");
    // A second client is refused, and its directory is removed again.
    let second = run(&folder, "trace run/control --output u");
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("refused: another client records a trace"), "{second:?}");
    assert!(!folder.path().join("u").exists());
    ctl(&folder, "add b ram:1M");
    let mut client = Client::connect(server.socket(), "b").expect("it is offered");
    writes(&mut client, 10);
    drop(client);
    ctl(&folder, "remove b");
    assert!(ctl(&folder, "list").contains("\ntrace on, to a client of the control socket: "));
    std::thread::sleep(Duration::from_millis(300));
    recording.signal(Signal::INT);
    let (code, out, errors) = recording.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
    let (first, rest) = out.split_once('\n').expect("lines");
    let records: u64 = first.split(' ').next().and_then(|nr| nr.parse().ok()).expect(&out);
    assert!(first.ends_with(" records in t"), "{out}");
    assert!(
        rest.contains("\nram-1M: 10 I/Os in ") || rest.starts_with("ram-1M: 10 I/Os in "),
        "{out}"
    );
    assert!(rest.contains("forebay trace report t\n"), "{out}");
    let disks = report(&folder, "t");
    assert_eq!(disks.len(), 2);
    assert!(disks.iter().all(|disk| disk["missing_records"] == 0), "{disks:?}");
    // Without --output, and with a limit of time.
    let output = run(&folder, "trace run/control --for 1");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains(" records in forebay-trace-1\n"), "{}", stdout(&output));
    assert!(bench.wait().expect("a child").success());
    assert!(server.terminate().success());
    let dir = folder.path().join("t");
    let mut nr = 0;
    for disk in ["ram-4M", "ram-1M"] {
        let Some(text) = checked_by_blktrace(&dir, test, disk) else { return };
        nr += text.lines().filter(|line| line.trim_start().starts_with("240,")).count() as u64;
    }
    assert!(nr == records && nr > 1000, "{nr} of {records}");
}

#[test]
fn dead_recorder_ends_its_trace_and_the_end_of_the_server_ends_another() {
    let folder = folder();
    let mut server = Server::start(&folder, "ram:1M --control run/control");
    let recording = Recording::start(&folder, "--output dead");
    recording.signal(Signal::KILL);
    recording.end();
    server.await_lines("trace: ended early, to a client of the control socket", 1);
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let recording = Recording::start(&folder, "");
    writes(&mut client, 3);
    server.signal("TERM");
    let (code, out, errors) = recording.end();
    assert_eq!((code, errors.as_str()), (Some(0), "forebay: the server has ended the trace\n"));
    assert!(out.contains("\nram-1M: 3 I/Os in "), "{out}");
    assert!(server.wait().success());
    // A server that is killed leaves a trace that can be read.
    let server = Server::start(&folder, "ram:1M --control run/control");
    let mut client = Client::connect(server.socket(), "").expect("a connection");
    let recording = Recording::start(&folder, "--output killed");
    writes(&mut client, 3);
    // Records stay in a buffer for at most a second.
    let start = Instant::now();
    while !stdout(&run(&folder, "trace report killed")).contains("ram-1M: 3 I/Os in ") {
        assert!(start.elapsed() < Duration::from_secs(30), "no records: {}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    let (code, _, errors) = recording.end();
    let expected = "forebay: run/control: the server exited, or ended the trace with an error that \
                    its log has; the records until then are in killed\n";
    assert_eq!((code, errors.as_str()), (Some(1), expected));
    assert_eq!(report(&folder, "killed")[0]["queued"], 3);
}

#[test]
fn wrong_requests_for_traces_are_refused_by_name() {
    let folder = folder();
    let server = Server::start(&folder, "ram:1M --control run/control");
    assert_eq!(ctl(&folder, "trace"), "");
    let text = error(&folder, "trace on");
    assert!(
        text.contains("no directory for traces: start it with --trace DIR, or record"),
        "{text}"
    );
    std::fs::create_dir(folder.path().join("used")).expect("a directory");
    std::fs::write(folder.path().join("used/devices"), "mine").expect("a file");
    for (args, expected) in [
        ("run/control --output used", "--output: used: the directory has a file devices: remove"),
        ("run/nothing", "run/nothing: cannot connect to the control socket: No such file"),
        ("run/control --for 0", "--for=0: expected a whole number from 1 to 604800"),
        ("", "Usage: forebay trace"),
    ] {
        let output = run(&folder, &format!("trace {args}"));
        let text = stderr(&output) + &stdout(&output);
        assert!(!output.status.success() && text.contains(expected), "{args}: {text}");
    }
    assert!(!folder.path().join("forebay-trace-1").exists());
    let control = folder.path().join("run/control");
    let reply = |descriptors: &[BorrowedFd<'_>]| {
        let socket = UnixStream::connect(&control).expect("it listens");
        send(&socket, b"{\"command\":\"record\"}\n", descriptors);
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).expect("a reply");
        line
    };
    let (pipe, _other) = std::io::pipe().expect("a pipe");
    assert!(reply(&[]).contains("expected one descriptor with the request"));
    assert!(reply(&[pipe.as_fd(), pipe.as_fd()]).contains("expected one descriptor"));
    let refused = reply(&[pipe.as_fd()]);
    assert!(refused.contains("cannot send the trace: Socket operation on non-socket"), "{refused}");
    assert!(server.terminate().success());
    std::fs::write(folder.path().join("file"), "").expect("a file");
    let output = run(&folder, "serve ram:1M --nbd unix:x --trace file/t");
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.starts_with("forebay: --trace: file/t: cannot write traces there: Not a"),
        "{text}"
    );
}
