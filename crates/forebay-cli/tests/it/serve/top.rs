//! `forebay top` on servers, on a program that uses the library, and in a terminal.

use super::client::Client;
use super::server::Server;
use super::tools::is_there;
use crate::common::{json, stderr, stdout};
use forebay::{Buf, Disk, Io, Limits, Rate};
use forebay_insight::Insight;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns a directory with `run`, which only this user may enter.
fn folder() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let run = folder.path().join("run");
    std::fs::create_dir(&run).expect("a folder");
    std::fs::set_permissions(run, PermissionsExt::from_mode(0o700)).expect("our own");
    folder
}

fn command(folder: &TempDir, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("top").args(args.split_whitespace()).current_dir(folder.path());
    command.env("XDG_RUNTIME_DIR", folder.path().join("none"));
    command
}

#[track_caller]
fn top(folder: &TempDir, args: &str) -> Output {
    let output = command(folder, args).output().expect("it can be run");
    assert!(output.status.success(), "{args}: {}", stderr(&output));
    output
}

/// Returns the error of a command that fails with this status.
#[track_caller]
fn error(folder: &TempDir, args: &str, status: i32) -> String {
    let output = command(folder, args).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(status), "{args}: {output:?}");
    stderr(&output)
}

/// Runs `work` again and again while `top` runs.
fn beside(mut work: impl FnMut() + Send, top: impl FnOnce() -> Output) -> Output {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                work();
            }
        });
        let output = top();
        ends.store(true, Ordering::Relaxed);
        output
    })
}

#[test]
fn rates_of_a_server_are_printed_as_text_and_as_json() {
    let folder = folder();
    let args = "ram:1M null:1M --limits iops=1m --control run/control";
    let server = Server::start(&folder, args);
    let mut client = Client::connect(server.socket(), "ram:1M").expect("it is offered");
    let read = || drop(client.read(0, 4096).expect("a read"));
    let output = beside(read, || top(&folder, "run/control --once --json --interval 0.3"));
    let sample = json(&output);
    let number = |pointer: &str| sample.pointer(pointer).and_then(Value::as_f64).unwrap_or(-1.0);
    assert_eq!(number("/process/pid"), f64::from(server.pid()));
    assert!((0.2..30.0).contains(&number("/seconds")), "{sample}");
    let [reads, bytes] = ["reads", "read_bytes"].map(|key| number(&format!("/disks/0/{key}")));
    assert!(reads > 0.0 && (bytes / reads - 4096.0).abs() < 1.0, "{sample}");
    assert_eq!(number("/disks/1/iops"), 0.0);
    assert_eq!(sample["exports"][0]["name"], "ram:1M");
    assert_eq!((number("/exports/0/clients"), number("/exports/1/clients")), (1.0, 0.0));
    assert!(number("/exports/0/requests") > 0.0 && number("/owners/0/iops") > 0.0, "{sample}");
    let text = stdout(&top(&folder, "run/control --once --interval 0.1"));
    assert!(text.contains(&format!("forebay {} (forebay ", server.pid())), "{text}");
    for (head, row) in [("\nDISK ", "\nram:1M "), ("\nEXPORT ", "\nnull:1M ")] {
        assert!(text.contains(head) && text.contains(row), "{text}");
    }
    let lines = stdout(&top(&folder, "run/control --diskstats"));
    let lines: Vec<Vec<_>> = lines.lines().map(|it| it.split_whitespace().collect()).collect();
    assert!(lines.len() == 2 && lines.iter().all(|fields| fields.len() == 20), "{lines:?}");
    assert_eq!((lines[0][2], lines[1][2], lines[1][3]), ("ram:1M", "null:1M", "0"));
    assert!(lines[0][3].parse::<u64>().is_ok_and(|reads| reads > 0), "{lines:?}");
    // Without an end it goes on until its reader has gone, or the server.
    let mut endless = command(&folder, "run/control --json --interval 0.1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut lines = BufReader::new(endless.stdout.take().expect("a pipe")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("a line").expect("a line");
        assert_eq!(line.as_bytes().first(), Some(&b'{'), "{line}");
    }
    let pid = server.pid();
    server.terminate();
    let rest = lines.count();
    let output = endless.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{rest} more lines");
    assert_eq!(stderr(&output), format!("forebay: run/control: process {pid} has ended\n"));
}

#[test]
fn program_of_the_library_is_watched_by_its_socket() {
    let folder = folder();
    let _insight = Insight::listen(folder.path().join("run/insight")).expect("it listens");
    let spec = "ram:2M?nr_hw_queues=1&req_ns=200000";
    let disk = Disk::open(spec).expect("it opens");
    let tenant = disk.owner("tenant").expect("an owner");
    let work = || {
        let plug = forebay::plug();
        let mut queue = disk.queue();
        for n in 0..8 {
            queue.submit(Io::write(Buf::new(512), n * 512)).expect("a write");
        }
        drop(plug);
        queue.reap(8, 8, &mut Vec::new());
        tenant.read_at(&mut [0; 512], 0).expect("a read");
    };
    let output = beside(work, || top(&folder, "run/insight --once --json --interval 0.3"));
    let sample = json(&output);
    // Other tests of this process have disks too.
    let disks = sample["disks"].as_array().expect("disks");
    let disk = disks.iter().find(|disk| disk["spec"] == spec).expect("our disk");
    let number = |pointer: &str| disk.pointer(pointer).and_then(Value::as_f64).unwrap_or(-1.0);
    assert!(number("/writes") > 0.0 && number("/merges/back") > 0.0, "{disk}");
    assert!((number("/merged") - 7.0 / 9.0).abs() < 0.1, "{disk}");
    let driver = &disk["stages"][3];
    assert_eq!(driver["stage"], "driver");
    assert!(driver["mean_ns"].as_f64() >= Some(200_000.0), "{driver}");
    assert!(driver["p99_ns"].as_u64() >= Some(200_000), "{driver}");
    let owners = sample["owners"].as_array().expect("owners");
    let tenant = owners.iter().find(|owner| owner["name"] == "tenant").expect("our owner");
    assert!(tenant["iops"].as_f64() > Some(0.0), "{tenant}");
}

#[test]
fn latency_and_depth_of_each_owner_are_shown_while_top_watches() {
    let folder = folder();
    let _insight = Insight::listen(folder.path().join("run/owners")).expect("it listens");
    let open = |spec: &str| Disk::open(spec).expect("it opens");
    let quick = open("ram:3M?nr_hw_queues=1&req_ns=1000000").owner("quick").expect("an owner");
    let slow_disk = open("ram:4M?nr_hw_queues=1&req_ns=30000000");
    let slow = slow_disk.owner("slow").expect("an owner");
    let mut limits = Limits::default();
    limits.both.iops = Rate { per_s: 60, burst: Some(1) };
    slow.set_limits(&limits).expect("a limit");
    let work = || {
        let mut queue = slow_disk.queue();
        for n in 0..3 {
            let read = Io::read(Buf::new(512), n * 8192).origin(slow.origin());
            queue.submit(read).expect("a read");
        }
        for _ in 0..10 {
            quick.read_at(&mut [0; 512], 0).expect("a read");
        }
        queue.reap(3, 3, &mut Vec::new());
    };
    let args = "run/owners --once --json --interval 0.2";
    let both = |output: &Output| {
        let sample = json(output);
        let owners = sample["owners"].as_array().expect("owners");
        ["quick", "slow"].map(|name| {
            owners.iter().find(|owner| owner["name"] == name).expect("our owner").clone()
        })
    };
    let number = |owner: &Value, pointer: &str| {
        owner.pointer(pointer).and_then(Value::as_f64).unwrap_or(-1.0)
    };
    let end = Instant::now() + Duration::from_secs(60);
    let found = beside(work, || {
        loop {
            let output = top(&folder, args);
            let [quick, slow] = both(&output);
            let has_io = |owner: &Value| number(owner, "/stages/0/per_second") > 0.0;
            let is_waiting = number(&slow, "/waits/0/per_second") > 0.0;
            if has_io(&quick) && has_io(&slow) && number(&slow, "/in_flight") > 0.0 && is_waiting {
                break output;
            }
            assert!(Instant::now() < end, "{quick} {slow}");
        }
    });
    let [quick, slow] = both(&found);
    for (owner, at_least_ns) in [(&quick, 1e6), (&slow, 30e6)] {
        assert_eq!(
            (&owner["stages"][0]["stage"], &owner["stages"][1]["stage"]),
            (&Value::from("total"), &Value::from("driver"))
        );
        let [total, driver] = [0, 1].map(|nth| number(owner, &format!("/stages/{nth}/mean_ns")));
        assert!(driver >= at_least_ns && total >= driver, "{owner}");
    }
    assert!((1.0..=3.0).contains(&number(&slow, "/in_flight")), "{slow}");
    let mean_ns = "/stages/0/mean_ns";
    assert!(number(&quick, mean_ns) < number(&slow, mean_ns), "{quick} {slow}");
    // No I/O is left.
    let idle = both(&top(&folder, args)).map(|owner| number(&owner, "/in_flight"));
    assert_eq!(idle, [0.0, 0.0]);
}

#[test]
fn benchmark_is_watched_while_its_jobs_run() {
    let folder = folder();
    let args =
        "--insight=run/b --name=x --filename=null:1G --rw=randread --runtime=60 --time_based";
    let mut bench = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("bench")
        .args(args.split_whitespace())
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be run");
    let socket = folder.path().join("run/b");
    let end = Instant::now() + Duration::from_secs(60);
    while !socket.exists() {
        assert!(Instant::now() < end, "no socket");
        std::thread::sleep(Duration::from_millis(5));
    }
    let has_io = |sample: &Value| sample["disks"][0]["reads"].as_f64() > Some(0.0);
    while !has_io(&json(&top(&folder, "run/b --once --json --interval 0.1"))) {
        assert!(Instant::now() < end, "no I/O");
    }
    let kill = Command::new("kill").args(["-INT", &bench.id().to_string()]).status();
    assert!(kill.is_ok_and(|status| status.success()));
    bench.wait().expect("it ends");
    assert!(!socket.exists(), "the file is removed");
    let args = ["bench", "--insight=none/b", "--name=x", "--filename=null:1G", "--rw=read"];
    let output = Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let expected = "forebay: --insight: cannot listen at none/b: its directory does not exist: \
                    create it with `mkdir -m 700 none`\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn wrong_sockets_and_malformed_answers_are_refused_with_the_reason() {
    let folder = folder();
    let missing = error(&folder, "run/none --once", 1);
    assert!(missing.contains("run/none: cannot connect to the control socket: "), "{missing}");
    std::fs::write(folder.path().join("run/file"), "").expect("a file");
    let file = error(&folder, "run/file --once", 1);
    assert!(file.contains("not a socket; use the socket of serve --control or bench"), "{file}");
    let none = error(&folder, "--once", 2);
    assert!(none.starts_with("forebay: no running process found in "), "{none}");
    let both = error(&folder, "run/none --diskstats --interval 2", 2);
    assert!(both.contains("--diskstats cannot be combined with --interval"), "{both}");
    let terminal = error(&folder, "run/none", 2);
    assert!(terminal.contains("the live view needs a terminal: use --once"), "{terminal}");
    let listener = UnixListener::bind(folder.path().join("run/odd")).expect("a socket");
    for (answer, expected) in [
        ("nonsense\n", "run/odd: not a control socket: "),
        ("{}\n", "run/odd: not an answer of forebay: missing field `protocol`"),
        ("{\"error\":\"no\"}\n", "run/odd: refused: no"),
        ("", "run/odd: no reply from the server: it closed the connection"),
        (
            "{\"protocol\":7,\"now_ns\":1,\"process\":{\"pid\":1,\"name\":\"a\",\"version\":\"9\",\
             \"cpu_ns\":1,\"uptime_ns\":1},\"disks\":[],\"exports\":[]}\n",
            "run/odd: the process answers in protocol 7, and this program reads 1: use the \
             forebay of version 9",
        ),
    ] {
        let text = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (socket, _) = listener.accept().expect("a client");
                let mut reader = BufReader::new(socket);
                reader.read_line(&mut String::new()).expect("a request");
                reader.get_mut().write_all(answer.as_bytes()).expect("a reply");
            });
            error(&folder, "run/odd --once", 1)
        });
        assert!(text.contains(expected), "{answer}: {text}");
    }
}

/// A terminal of 80 columns and 24 lines, with a server of its own. Dropping it ends both.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Starts a server at a socket with this name. One that is ending still has its own.
    fn start(folder: &TempDir, name: &str, command: &str) -> Terminal {
        let terminal = Terminal { socket: folder.path().join(name).display().to_string() };
        // The screen stays after the end of the command, and shows its status.
        let command = format!("{command}; echo status $?; stty -a; exec sleep 600");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &command]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command.args(["-S", &self.socket]).args(args).output().expect("tmux runs");
        assert!(output.status.success(), "tmux {args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Waits until the screen contains all of these texts, and returns it with wrapped lines
    /// joined.
    #[track_caller]
    fn await_text(&self, texts: &[&str]) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let screen = self.tmux(&["capture-pane", "-p", "-J"]);
            if texts.iter().all(|text| screen.contains(text)) {
                return screen;
            }
            assert!(Instant::now() < end, "{texts:?} are not on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn live_view_follows_keys_and_sizes_and_leaves_the_terminal_as_it_was() {
    if !is_there("tmux", "live_view_follows_keys_and_sizes_and_leaves_the_terminal_as_it_was") {
        return;
    }
    let folder = folder();
    let mut server = Server::start(&folder, "ram:1M --limits iops=1m --control run/control");
    let socket = folder.path().join("run/control").display().to_string();
    let program = env!("CARGO_BIN_EXE_forebay");
    let view = format!("{program} top {socket} --interval 0.2");
    let terminal = Terminal::start(&folder, "t1", &view);
    terminal.await_text(&["[Disks 1]", "\nram:1M ", "q quit", "stage     per s"]);
    terminal.press("Tab");
    terminal.await_text(&["[Exports 1]", "CLIENTS"]);
    terminal.press("?");
    terminal.await_text(&[" Keys ", "close this help"]);
    terminal.press("Escape");
    terminal.await_text(&["status 0", " icanon", " echo "]);
    drop(terminal);

    let terminal = Terminal::start(&folder, "t2", &view);
    terminal.await_text(&["[Disks 1]", "MERGED"]);
    terminal.tmux(&["resize-window", "-x", "160", "-y", "50"]);
    terminal.await_text(&["SCHEDULER", "DRIVER"]);
    terminal.tmux(&["resize-window", "-x", "30", "-y", "8"]);
    terminal.await_text(&["at least 40x10"]);
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    let screen = terminal.await_text(&["[Disks 1]", "MERGED"]);
    assert!(screen.lines().all(|line| line.trim_end().chars().count() <= 80), "{screen}");
    server.signal("TERM");
    server.wait();
    let ended = format!("process {} has ended", server.pid());
    terminal.await_text(&[&ended, "status 1", " icanon"]);
    drop(terminal);

    let _server = Server::start(&folder, "ram:1M --control run/control");
    // A signal from outside: the view is killed, and the terminal is restored all the same.
    let terminal = Terminal::start(
        &folder,
        "t3",
        &format!("NO_COLOR=1 timeout --foreground -s TERM 2 {view}"),
    );
    terminal.await_text(&["[Disks 1]"]);
    terminal.await_text(&["interrupted by a signal", " icanon", " echo "]);
}
