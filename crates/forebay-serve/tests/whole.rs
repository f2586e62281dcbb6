//! The whole server, in a process of its own: what it counts, says and gives up.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use forebay_serve::listen::Address;
use forebay_serve::{ExportOptions, Limits, Options, Server};
use rustix::process::{Pid, Signal, kill_process};

/// The folder of the process that serves.
const CHILD: &str = "FOREBAY_TEST_SERVES_IN";

fn serve(folder: &Path) {
    let export = ExportOptions {
        spec: folder.join("disk.img").display().to_string(),
        name: "the \"disk\"".to_owned(),
        description: String::new(),
        read_only: false,
    };
    let options = Options {
        exports: vec![export],
        listen: vec![Address::Unix(folder.join("nbd"))],
        tls: None,
        limits: Limits { threads: 2, ..Limits::default() },
        metrics: Some(Address::Unix(folder.join("metrics"))),
    };
    Server::open(&options).unwrap().run().unwrap();
}

/// Starts test `name` once more, which serves, and reads its log up to the line where it does.
fn start(name: &str, folder: &Path) -> (Child, BufReader<ChildStderr>) {
    std::fs::write(folder.join("disk.img"), vec![7; 1 << 20]).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    (child, log)
}

fn next_line(log: &mut BufReader<ChildStderr>, part: &str) -> String {
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        if line.contains(part) {
            return line;
        }
        line.clear();
    }
    panic!("the log has no line with `{part}`");
}

/// A client of the oldest kind: chooses its export by name.
struct Client(UnixStream);

impl Client {
    fn new(folder: &Path, export: &str) -> Client {
        let mut socket = UnixStream::connect(folder.join("nbd")).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        let mut option = vec![0, 0, 0, 3];
        option.extend(b"IHAVEOPT");
        option.extend(1u32.to_be_bytes());
        option.extend((export.len() as u32).to_be_bytes());
        option.extend(export.as_bytes());
        socket.write_all(&option).unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Client(socket)
    }

    /// Sends a request, and reads the head of its reply: its error.
    fn request(&mut self, command: u16, at: u64, len: u32) -> u32 {
        self.send(command, at, len);
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        u32::from_be_bytes(head[4..8].try_into().unwrap())
    }

    fn send(&mut self, command: u16, at: u64, len: u32) {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend([0, 0]);
        request.extend(command.to_be_bytes());
        request.extend([9; 8]);
        request.extend(at.to_be_bytes());
        request.extend(len.to_be_bytes());
        self.0.write_all(&request).unwrap();
    }
}

fn metrics(folder: &Path) -> String {
    let mut socket = UnixStream::connect(folder.join("metrics")).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

/// What the kernel says of a thread.
fn status_of(child: &Child, name: &str) -> String {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    // One that has ended meanwhile has none.
    let mut found = threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).ok());
    let name = format!("Name:\t{name}\n");
    found.find(|status| status.starts_with(&name)).expect("it runs")
}

#[test]
fn a_connection_is_logged_and_counted_by_a_process_that_has_confined_itself() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return serve(folder.as_ref());
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "a_connection_is_logged_and_counted_by_a_process_that_has_confined_itself";
    let (mut child, mut log) = start(name, folder.path());
    next_line(&mut log, "confined");
    next_line(&mut log, "metrics at unix:");

    let mut client = Client::new(folder.path(), "the \"disk\"");
    next_line(
        &mut log,
        "connection 1 from unix: export \"the \\\"disk\\\"\", simple replies, no TLS",
    );
    assert_eq!(client.request(0, 4096, 512), 0);
    let mut data = [0; 512];
    client.0.read_exact(&mut data).unwrap();
    assert_eq!(data, [7; 512]);
    assert_eq!(client.request(3, 0, 0), 0, "a flush");
    assert_ne!(client.request(0, 1 << 20, 512), 0, "behind the end");

    let text = metrics(folder.path());
    let device = r#"device="the \"disk\"""#;
    for line in [
        format!("forebay_connections{{{device}}} 1"),
        format!("forebay_export_requests_total{{{device},op=\"read\"}} 1"),
        format!("forebay_export_requests_total{{{device},op=\"flush\"}} 1"),
        format!("forebay_export_requests_total{{{device},op=\"refused\"}} 1"),
        format!("forebay_export_errors_total{{{device}}} 1"),
        format!("forebay_export_read_bytes_total{{{device}}} 512"),
        format!("forebay_disk_reads_completed_total{{{device}}} 1"),
        format!("forebay_disk_io_now{{{device}}} 0"),
        format!("forebay_request_stage_seconds_count{{{device},stage=\"disk\"}} 2"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    for thread in ["worker-0", "worker-1", "metrics"] {
        let status = status_of(&child, thread);
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    }

    client.send(2, 0, 0);
    let line = next_line(&mut log, "connection 1 from unix: closed by the client after ");
    assert!(line.contains("; 3 requests (1 failed), 512 B read, 0 B written"), "{line}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    for socket in ["nbd", "metrics"] {
        assert!(!folder.path().join(socket).exists(), "{socket} was left behind");
    }
}
