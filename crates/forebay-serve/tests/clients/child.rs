//! A server in a process of its own: it handles signals, and confines itself for good.

use forebay_serve::listen::Address;
use forebay_serve::{ExportOptions, Limits, Options, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

/// The folder of the process that serves.
const CHILD: &str = "FOREBAY_TEST_SERVES_IN";

/// A server that runs.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) log: BufReader<ChildStderr>,
    pub(crate) socket: PathBuf,
}

/// What is served, and within which limits.
pub(crate) struct Served {
    pub(crate) specs: Vec<String>,
    pub(crate) limits: Limits,
}

/// Starts the test `name` once more, which serves what `served` says, given the folder; and has the
/// server tested by `test`. It is killed at the end, if it has not ended.
pub(crate) fn with_server(
    name: &str,
    folder: &Path,
    served: impl Fn(&Path) -> Served,
    test: impl FnOnce(&mut Running),
) {
    if let Some(folder) = std::env::var_os(CHILD) {
        return serve(folder.as_ref(), served(folder.as_ref()));
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running { child, log, socket: folder.join("nbd") };
    running.next_line("confined");
    test(&mut running);
}

/// Whether this process is the one that serves.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn serve(folder: &Path, served: Served) {
    let exports = served.specs.iter().enumerate().map(|(nr, spec)| ExportOptions {
        spec: spec.clone(),
        name: nr.to_string(),
        description: String::new(),
        read_only: false,
    });
    let options = Options {
        exports: exports.collect(),
        listen: vec![Address::Unix(folder.join("nbd"))],
        tls: None,
        limits: served.limits,
        metrics: None,
    };
    if let Err(error) = Server::open(&options).unwrap().run() {
        panic!("it ended badly: {error}");
    }
}

impl Running {
    /// The next line of the log with this part.
    pub(crate) fn next_line(&mut self, part: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if line.contains(part) {
                return line;
            }
            line.clear();
        }
        panic!("the log has no line with `{part}`");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Asks it to end, and waits. Says how it ended, and what it said since.
    pub(crate) fn stop(&mut self) -> (ExitStatus, String) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let mut said = String::new();
        self.log.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
