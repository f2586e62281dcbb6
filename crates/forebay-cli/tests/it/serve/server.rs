//! `forebay serve` in the background, for one test: on a socket in the test's folder.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to begin or to end. A machine that is busy is slow.
const PATIENCE: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(5);

/// The program. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `forebay serve` with these arguments, separated by spaces, in `folder`, and comes
    /// back when it listens.
    #[track_caller]
    pub(crate) fn start(folder: &TempDir, args: &str) -> Server {
        Server::start_by(folder, &[], Stdio::null(), args)
    }

    /// Starts it in a session of its own, without a controlling terminal.
    #[track_caller]
    pub(crate) fn start_without_terminal(folder: &TempDir, args: &str) -> Server {
        Server::start_by(folder, &["setsid"], Stdio::null(), args)
    }

    /// Starts it in a session of its own, with `terminal` as its controlling terminal. `wrapper` is
    /// a program that runs it, such as `nohup`.
    #[track_caller]
    pub(crate) fn start_at_terminal(
        folder: &TempDir,
        terminal: OwnedFd,
        wrapper: &[&str],
        args: &str,
    ) -> Server {
        let wrapper = [&["setsid", "--ctty"], wrapper].concat();
        Server::start_by(folder, &wrapper, Stdio::from(terminal), args)
    }

    /// Starts it by `wrapper`: programs each of which executes the rest of its command line.
    #[track_caller]
    fn start_by(folder: &TempDir, wrapper: &[&str], stdin: Stdio, args: &str) -> Server {
        let socket = folder.path().join("s");
        let mut server = Server::begin(folder, wrapper, stdin, args, &socket);
        let start = Instant::now();
        // A socket is there when it is bound, and takes connections a moment later.
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = server.child.try_wait().expect("a child") {
                panic!("{args}: it has ended with {status}: {}", server.log());
            }
            assert!(start.elapsed() < PATIENCE, "{args}: it does not listen: {}", server.log());
            std::thread::sleep(NAP);
        }
        server
    }

    fn begin(
        folder: &TempDir,
        wrapper: &[&str],
        stdin: Stdio,
        args: &str,
        socket: &Path,
    ) -> Server {
        let log = folder.path().join("server.log");
        // One that was killed leaves its socket.
        let _ = std::fs::remove_file(socket);
        let to_log = || File::options().create(true).append(true).open(&log).expect("a log");
        let program = [wrapper, &[env!("CARGO_BIN_EXE_forebay")]].concat();
        let child = Command::new(program[0])
            .args(&program[1..])
            .arg("serve")
            .args(args.split_whitespace())
            .arg(format!("--nbd=unix:{}", socket.display()))
            .current_dir(folder.path())
            .stdin(stdin)
            .stdout(to_log())
            .stderr(to_log())
            .spawn()
            .expect("it can be run");
        Server { child, socket: socket.to_owned(), log }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The URI of an export; of the default one, if it has no name.
    pub(crate) fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its output has `nr` lines that contain `text`.
    #[track_caller]
    pub(crate) fn await_lines(&self, text: &str, nr: usize) {
        let start = Instant::now();
        while self.log().lines().filter(|line| line.contains(text)).count() < nr {
            assert!(start.elapsed() < PATIENCE, "no line with `{text}`: {}", self.log());
            std::thread::sleep(NAP);
        }
    }

    /// How many descriptors it has.
    pub(crate) fn nr_fds(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Its memory, in KiB: what it has, or (`VmHWM`) has had at most.
    pub(crate) fn memory_kib(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{what}:")));
        let words = line.expect("a line of that").split_whitespace().next().expect("a number");
        words.parse().expect("a number")
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end: {}", self.log());
            std::thread::sleep(NAP);
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = match name {
            "TERM" => rustix::process::Signal::TERM,
            "INT" => rustix::process::Signal::INT,
            "HUP" => rustix::process::Signal::HUP,
            _ => panic!("{name} is not sent by any test"),
        };
        rustix::process::kill_process(pid, signal).expect("a signal");
    }

    /// Kills it, in the middle of whatever it does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }
}

impl Drop for Server {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            assert!(!self.log().contains("panicked"), "{}", self.log());
        } else {
            let log = self.log();
            let end = log.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
            eprintln!("the server said at last: {}", &log[end..]);
        }
    }
}
