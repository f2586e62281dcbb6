//! The process of `forebay serve`: in the background, with a command, with a PID file.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the process may take to end, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder")
}

fn command(folder: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("serve").args(args).current_dir(folder.path()).stdin(Stdio::null());
    command
}

/// Runs `forebay serve`, which returns. If the server in the background kept the pipes open, this
/// would not return.
fn serve(folder: &TempDir, args: &[&str]) -> Output {
    command(folder, args).output().expect("it can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn await_end(path: &Path) {
    let start = Instant::now();
    while path.exists() {
        assert!(start.elapsed() < PATIENCE, "{} is still there", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn server_in_the_background_listens_when_its_parent_returns() {
    let folder = folder();
    let args = ["ram:1M", "--nbd", "unix:s", "--fork", "--pid-file", "pid", "--exit-last"];
    let output = serve(&folder, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("nbd+unix:///?socket="), "{output:?}");
    let path = |name: &str| folder.path().join(name);
    drop(UnixStream::connect(path("s")).expect("it listens"));
    let pid = fs::read_to_string(path("pid")).expect("a PID file");
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).expect("it runs");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    assert_eq!(fields[3], pid.trim(), "it leads its session");
    // The last client ends it. Then its files are gone.
    let nbd = format!("nbd+unix:///?socket={}", path("s").display());
    let info = Command::new(env!("CARGO_BIN_EXE_forebay")).args(["info", &nbd]).output();
    let info = info.expect("it can be run");
    assert!(info.status.success(), "{}", text(&info.stderr));
    await_end(&path("s"));
    await_end(&path("pid"));
}

#[test]
fn parent_returns_the_error_of_a_server_that_cannot_start() {
    let folder = folder();
    let output = serve(&folder, &["nowhere.img", "--nbd", "unix:s", "--fork"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("forebay: nowhere.img: "), "{stderr}");
    let output = serve(&folder, &["ram:many", "--nbd", "unix:s", "--fork"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output =
        command(&folder, &["ram:1M", "--fork"]).env("LISTEN_FDS", "1").output().expect("it runs");
    assert!(text(&output.stderr).contains("leave out --fork"), "{}", text(&output.stderr));
}

#[test]
fn command_uses_the_server_and_decides_the_exit_code() {
    let folder = folder();
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let script = format!(
        "echo \"$exportname $uri\"; test -S \"$unixsocket\" && \
         '{forebay}' bench \"--filename=$uri\" --rw=read --size=64k >bench.txt && exit 7"
    );
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).expect("a folder");
    let args = ["ram:1M", "--name", "disk", "--run", &script];
    let output = command(&folder, &args).env("TMPDIR", &temporary).output().expect("it runs");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("disk nbd+unix:///disk?socket="), "{stdout}");
    assert_eq!(fs::read_dir(temporary).expect("a folder").count(), 0, "its directory is gone");
    let killed = serve(&folder, &["ram:1M", "--run", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(128 + 9));
}

#[test]
fn log_has_levels_and_formats() {
    let folder = folder();
    let lines = |args: &[&str]| {
        let args = [&["ram:1M", "--run", "true"], args].concat();
        text(&serve(&folder, &args).stderr)
    };
    let json = lines(&["--log-format", "json"]);
    for line in json.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["time"].is_string() && line["message"].is_string(), "{line}");
        assert_eq!(line["level"], "info", "{line}");
    }
    assert!(json.contains("\"message\":\""), "{json}");
    // Lines of the start have a time as the others have.
    let text_lines = lines(&["--log-format", "text"]);
    let has_time = |line: &str| {
        let time = line.strip_prefix("forebay: ").and_then(|rest| rest.split(' ').next());
        time.is_some_and(|time| time.len() == 24 && time.ends_with('Z'))
    };
    assert!(!text_lines.is_empty() && text_lines.lines().all(has_time), "{text_lines}");
    let journal = lines(&["--log-format", "journald"]);
    assert!(journal.lines().all(|line| line.starts_with("<6>")), "{journal}");
    assert_eq!(lines(&["--log-level", "error"]), "");
    let failed = text(&serve(&folder, &["nowhere", "--log-format", "journald"]).stderr);
    assert!(failed.starts_with("<3>nowhere: "), "{failed}");
    // Standard error is the journal if the variable names its device and inode.
    let log = File::create(folder.path().join("log")).expect("a file");
    let stat = rustix::fs::fstat(&log).expect("an open file");
    let status = command(&folder, &["ram:1M", "--run", "true"])
        .env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino))
        .stderr(log)
        .status();
    assert!(status.expect("it runs").success());
    let log = fs::read_to_string(folder.path().join("log")).expect("a log");
    assert!(!log.is_empty() && log.lines().all(|line| line.starts_with("<6>")), "{log}");
}

#[test]
fn unknown_options_have_no_misleading_tip() {
    let folder = folder();
    for (option, tip) in [
        ("--daemonize", "unknown option --daemonize; use --fork"),
        ("--pidfile", "unknown option --pidfile; use --pid-file"),
        ("--forks", "unknown option --forks; did you mean --fork?"),
        ("--zzz", "unknown option --zzz\n"),
    ] {
        let output = serve(&folder, &["ram:1M", option]);
        let text = text(&output.stderr);
        assert!(text.starts_with(&format!("forebay: {tip}")), "{text}");
        assert!(!text.contains("as a value") && !text.contains("'-- "), "{text}");
    }
}

#[test]
fn pid_file_replaces_no_other_file() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    fs::write(&path, vec![7; 4096]).expect("a disk");
    let args = ["disk.img", "--nbd", "unix:s", "--pid-file", "disk.img", "--run", "true"];
    let output = serve(&folder, &args);
    let text = text(&output.stderr);
    let expected = "forebay: --pid-file disk.img: this path exists and is not a PID file: choose";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(&path).expect("the disk"), vec![7; 4096]);
    for earlier in ["", "4711\n"] {
        fs::write(folder.path().join("pid"), earlier).expect("a PID file");
        let output = serve(&folder, &["ram:1M", "--pid-file", "pid", "--run", "true"]);
        assert!(output.status.success(), "{earlier:?}: {output:?}");
    }
}
