//! `forebay serve` in the background for one test, on a socket in the test's folder.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to start or to exit, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(5);

/// A server process. Dropping this value kills it.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `forebay serve` in `folder` with these arguments, separated by spaces. Returns once
    /// it listens.
    #[track_caller]
    pub(crate) fn start(folder: &TempDir, args: &str) -> Server {
        Server::start_by(folder, &[], Stdio::null(), args)
    }

    /// Starts a server in its own session, without a controlling terminal.
    #[track_caller]
    pub(crate) fn start_without_terminal(folder: &TempDir, args: &str) -> Server {
        Server::start_by(folder, &["setsid"], Stdio::null(), args)
    }

    /// Starts a server in its own session, with `terminal` as its controlling terminal. `wrapper`
    /// is a program that runs it, such as `nohup`.
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

    /// Starts a server through `wrapper`: programs that each execute the rest of their command
    /// line.
    #[track_caller]
    fn start_by(folder: &TempDir, wrapper: &[&str], stdin: Stdio, args: &str) -> Server {
        let socket = folder.path().join("s");
        let mut server = Server::begin(folder, wrapper, stdin, args, &socket);
        let start = Instant::now();
        // The server prints the URIs once it handles signals. Its socket accepts connections
        // before.
        let is_ready = |server: &Server| {
            server.log().contains("+unix://") && UnixStream::connect(&socket).is_ok()
        };
        while !is_ready(&server) {
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
        // A killed server leaves its socket file behind.
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

    /// Returns the path of the socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the URI of an export; an empty name means the default export.
    pub(crate) fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }

    /// Returns the process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all output of the server.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the output has `nr` lines that contain `text`.
    #[track_caller]
    pub(crate) fn await_lines(&self, text: &str, nr: usize) {
        let start = Instant::now();
        while self.log().lines().filter(|line| line.contains(text)).count() < nr {
            assert!(start.elapsed() < PATIENCE, "no line with `{text}`: {}", self.log());
            std::thread::sleep(NAP);
        }
    }

    /// Returns the number of open descriptors.
    pub(crate) fn nr_fds(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Returns the time that its threads have used processors, in steps of 10 ms.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("it runs");
        // The name ends with the last parenthesis. The fields 14 and 15 are user and system time.
        let fields = stat.rsplit(')').next().expect("a field").split_whitespace();
        let ticks = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
        Duration::from_secs(ticks.sum()) / rustix::param::clock_ticks_per_second() as u32
    }

    /// Returns a memory figure in KiB by its name in `/proc/PID/status`; `VmHWM` is the peak.
    pub(crate) fn memory_kib(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{what}:")));
        let words = line.expect("a line of that").split_whitespace().next().expect("a number");
        words.parse().expect("a number")
    }

    /// Sends SIGTERM, and waits until the server has exited.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Waits until the server has exited.
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

    /// Sends a signal.
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

    /// Kills the server, whatever it is doing.
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
