//! MariaDB under `forebay run`: a server that is killed while it writes recovers what it has
//! committed.
//!
//! InnoDB submits by libaio, and takes events by libc's `syscall`. Its buffer pool is smaller than
//! the table, so pages are read and written all the time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{folder, skip_without, stderr, stdout};
use crate::run::{counters_of_all, run};

/// The number of rows of the large table, and of those of each transaction.
const NR_ROWS: u32 = 12_000;
const NR_IN_ONE: u32 = 2_000;

/// Creates the files of a server, without the layer.
fn install(folder: &TempDir) {
    let mut command = Command::new("mariadb-install-db");
    command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    command.args(["--skip-test-db", "--skip-name-resolve", "--user=root"]);
    command.arg(format!("--datadir={}", folder.path().join("data").display()));
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

/// A server that runs under `forebay run`.
struct Server<'a> {
    folder: &'a TempDir,
    child: Child,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // `forebay run` and `timeout` forward the signal. The server ends.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

impl<'a> Server<'a> {
    /// Starts a server, and waits until it answers.
    fn start(folder: &'a TempDir) -> Server<'a> {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let log = fs::File::create(path("log")).expect("a file");
        // A hang ends after two minutes.
        let mut command = run(folder, "--stats report -- timeout -s KILL 120 mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-name-resolve"]);
        command.args([
            format!("--datadir={}", path("data")),
            format!("--socket={}", path("socket")),
            format!("--pid-file={}", path("pid")),
        ]);
        // Versions without a choice of io_uring ignore the option with `loose`.
        command.args(["--innodb-use-native-aio=1", "--loose-innodb-linux-aio=aio"]);
        command.args(["--innodb-flush-method=O_DIRECT", "--innodb-flush-log-at-trx-commit=1"]);
        command.args(["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=8M"]);
        command.stdout(Stdio::null()).stderr(log);
        let mut server = Server { folder, child: command.spawn().expect("it can be run") };
        for _ in 0..300 {
            if server.query("select 1").status.success() {
                return server;
            }
            let status = server.child.try_wait().expect("a child");
            assert_eq!(status, None, "{}", server.log());
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the server does not answer: {}", server.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the client, which reads statements and prints each result at once.
    fn client(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", "mariadb", "--no-defaults", "--user=root", "--batch"]);
        command.args(["--skip-column-names", "--unbuffered", "--socket"]);
        command.arg(self.folder.path().join("socket"));
        command
    }

    fn query(&self, text: &str) -> Output {
        self.client().args(["--execute", text]).output().expect("it can be run")
    }

    /// Runs statements that must succeed. Returns the results.
    #[track_caller]
    fn ask(&self, text: &str) -> String {
        let output = self.query(text);
        assert!(output.status.success(), "{text}: {}{}", stderr(&output), self.log());
        stdout(&output).trim().to_owned()
    }

    /// Inserts small rows one by one, and kills the server when `nr` have been committed, while a
    /// large update runs. Returns the numbers that were committed, from `first` on.
    fn kill_while_it_writes(mut self, first: u32, nr: u32) -> Vec<u32> {
        let number = fs::read_to_string(self.folder.path().join("pid")).expect("a file");
        let pid = Pid::from_raw(number.trim().parse().expect("a number")).expect("a process");
        let update = "update d.large set body = reverse(body), sum = crc32(body)";
        let mut updating = self.client();
        updating.args(["--execute", update]).stderr(Stdio::null());
        let mut updating = updating.spawn().expect("it can be run");
        let mut inserting = self.client();
        inserting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut inserting = inserting.spawn().expect("it can be run");
        let mut stdin = inserting.stdin.take().expect("a pipe");
        let writing = thread::spawn(move || {
            for number in first.. {
                let text = format!("insert into d.small values ({number}); select {number};\n");
                // The client ends with its server.
                if stdin.write_all(text.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let lines = BufReader::new(inserting.stdout.take().expect("a pipe")).lines();
        let mut committed = Vec::new();
        for line in lines {
            committed.push(line.expect("text").parse().expect("a number"));
            if committed.len() == nr as usize {
                kill_process(pid, Signal::KILL).expect("it runs");
            }
        }
        writing.join().expect("no panic");
        inserting.wait().expect("it ends");
        updating.wait().expect("it ends");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(128 + 9), "{}", self.log());
        check_counters(self.folder);
        committed
    }

    /// Checks both tables, and that the numbers are in the small one.
    fn check(&self, committed: &[u32]) {
        // `extended` warns of deleted records while the server rolls back, also without the layer.
        let checked = self.ask("check table d.large, d.small");
        assert_eq!(checked, "d.large\tcheck\tstatus\tOK\nd.small\tcheck\tstatus\tOK");
        let sums = self.ask("select count(*), sum(sum = crc32(body)) from d.large");
        assert_eq!(sums, format!("{NR_ROWS}\t{NR_ROWS}"));
        let found = self.ask("select number from d.small");
        let found: Vec<u32> = found.lines().map(|line| line.parse().expect("a number")).collect();
        let missing: Vec<_> = committed.iter().filter(|number| !found.contains(number)).collect();
        assert!(missing.is_empty(), "committed, but not there: {missing:?}");
    }
}

/// Checks that the layer has had iocbs of the last server.
fn check_counters(folder: &TempDir) {
    let report = fs::read_to_string(folder.path().join("report")).expect("a report");
    let counters = counters_of_all(&report, "mariadbd");
    assert!(counters.len() == 1 && counters[0][0] > 100, "{report}");
}

#[test]
fn mariadb_recovers_what_it_has_committed_before_a_kill() {
    for program in ["mariadbd", "mariadb", "mariadb-install-db"] {
        if Command::new(program).arg("--help").output().is_err() {
            return skip_without(program, "mariadb_recovers_what_it_has_committed_before_a_kill");
        }
    }
    let folder = folder();
    install(&folder);
    let mut server = Server::start(&folder);
    assert!(server.log().contains("Using Linux native AIO"), "{}", server.log());
    server.ask("create database d");
    server.ask("create table d.small (number int unsigned primary key) engine=innodb");
    server.ask(
        "create table d.large (number int unsigned primary key, body varchar(500) not null, \
         sum int unsigned not null, key (sum)) engine=innodb",
    );
    for first in (0..NR_ROWS).step_by(NR_IN_ONE as usize) {
        let rows: Vec<String> = (first..first + NR_IN_ONE)
            .map(|number| format!("({number}, repeat(md5({number}), 12), crc32(body))"))
            .collect();
        server.ask(&format!("insert into d.large values {}", rows.join(", ")));
    }
    let mut committed = Vec::new();
    for nr in [20, 200] {
        let first = committed.last().map_or(0, |last| last + 10);
        committed.extend(server.kill_while_it_writes(first, nr));
        server = Server::start(&folder);
        assert!(server.log().contains("Starting crash recovery"), "{}", server.log());
        server.check(&committed);
    }
    server.ask("update d.large set body = reverse(body), sum = crc32(body)");
    server.check(&committed);
    server.ask("shutdown");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0), "{}", server.log());
    check_counters(&folder);
}
