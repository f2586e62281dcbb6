//! The socket of a process, as a client sees it.

use forebay::{Disk, Limits, Rate};
use forebay_insight::Insight;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// The tests count the disks of this process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Returns a folder that is closed to other users.
fn folder() -> TempDir {
    let mode = PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().expect("a folder")
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client with an open connection.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Client {
        Client(BufReader::new(UnixStream::connect(path).expect("a connection")))
    }

    fn ask(&mut self, line: &str) -> Value {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("a request");
        let mut reply = String::new();
        self.0.read_line(&mut reply).expect("a reply");
        serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
    }

    fn stats(&mut self) -> Value {
        self.ask(r#"{"command":"stats"}"#)
    }
}

#[test]
fn answer_has_every_disk_and_owner_and_follows_their_counters() {
    let _turn = turn();
    let folder = folder();
    let path = folder.path().join("insight");
    let insight = Insight::listen(&path).expect("it listens");
    assert_eq!(insight.path(), path);
    let mut client = Client::connect(&path);
    assert_eq!(client.stats()["disks"], json!([]));
    let file = folder.path().join("disk.img");
    std::fs::write(&file, [0; 1 << 20]).expect("a file");
    let disk = Disk::open(&format!("psync:{}?nr_hw_queues=1", file.display())).expect("it opens");
    let tenant = disk.owner("tenant").expect("an owner");
    let mut limits = Limits::default();
    limits.both.iops = Rate::per_s(1_000_000);
    tenant.set_limits(&limits).expect("a limit");
    tenant.write_at(&[1; 4096], 0).expect("a write");
    let before = client.stats();
    tenant.write_at(&[1; 4096], 4096).expect("a write");
    disk.flush().expect("a flush");
    let after = client.stats();
    let of = |answer: &Value, pointer: &str| {
        answer.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}"))
    };
    assert_eq!(of(&after, "/protocol"), 1);
    assert_eq!(after["disks"][0]["name"], "disk.img");
    assert_eq!(of(&after, "/process/pid"), u64::from(std::process::id()));
    assert!(of(&after, "/now_ns") > of(&before, "/now_ns"));
    assert!(of(&after, "/process/cpu_ns") > 0);
    for (counter, expected) in [
        ("counters/write_bytes", 4096),
        ("counters/write_bios", 1),
        ("counters/flushes_asked", 1),
        ("owners/0/counters/bytes", 4096),
        ("owners/0/counters/ios", 1),
        ("stages/driver/count", 2),
        // Only I/O after an answer is counted from its start to its end.
        ("owners/0/stages/total/count", 1),
        ("owners/0/stages/driver/count", 1),
    ] {
        let [before, after] =
            [&before, &after].map(|answer| of(answer, &format!("/disks/0/{counter}")));
        assert_eq!(after - before, expected, "{counter}");
    }
    assert_eq!(of(&before, "/disks/0/owners/0/stages/total/count"), 0);
    assert_eq!(of(&after, "/disks/0/owners/0/in_flight"), 0);
    let buckets = after["disks"][0]["stages"]["driver"]["buckets"].as_array().expect("buckets");
    assert!(
        buckets.iter().all(|pair| pair[0].as_u64() > Some(0) && pair[1].as_u64() > Some(0)),
        "{buckets:?}"
    );
    // The owner is a handle of the disk.
    drop((disk, tenant));
    assert_eq!(client.stats()["disks"], json!([]), "the disk is closed");
    drop(insight);
    assert!(!path.exists());
}

#[test]
fn malformed_requests_are_answered_and_the_connection_stays() {
    let _turn = turn();
    let folder = folder();
    let path = folder.path().join("insight");
    let _insight = Insight::listen(&path).expect("it listens");
    let mut client = Client::connect(&path);
    let expected = "expected {\"command\": \"stats\"}";
    for (line, error) in [
        ("stats", "not a line of JSON: expected value at line 1 column 1".to_owned()),
        ("[1]", format!("not a JSON object: {expected}")),
        ("{}", format!("the field \"command\" is missing: {expected}")),
        (
            r#"{"command":"drain"}"#,
            format!(
                "command \"drain\": this process is not a server, and its socket only shows \
                 counters: watch it with `forebay top`; to trace a run of `bench`, start it with \
                 --trace, and in a program use `forebay::Trace`; a program that reads the \
                 counters: {expected}"
            ),
        ),
        (r#"{"command":"stats","x":1}"#, format!("there is no field \"x\": {expected}")),
    ] {
        assert_eq!(client.ask(line), json!({ "error": error }), "{line}");
    }
    assert_eq!(client.stats()["protocol"], 1);
    let long = client.ask(&"x".repeat(20_000));
    assert_eq!(long, json!({"error": "a request is longer than 16384 bytes"}));
    let mut rest = String::new();
    assert_eq!(client.0.read_line(&mut rest).unwrap_or(0), 0, "the connection is closed: {rest}");
}

#[test]
fn path_is_refused_with_the_reason_and_a_remedy() {
    let _turn = turn();
    let folder = folder();
    let refused = |path: &Path| Insight::listen(path).expect_err("refused");
    let missing = refused(&folder.path().join("none/insight"));
    assert_eq!((missing.kind(), missing.errno()), (ErrorKind::NotFound, 2));
    assert!(missing.to_string().contains("create it with `mkdir -m 700 "), "{missing}");
    let path = folder.path().join("insight");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
    let open = refused(&path);
    assert_eq!((open.kind(), open.errno()), (ErrorKind::PermissionDenied, 1));
    assert!(open.to_string().contains("is open to other users: run `chmod 700`"), "{open}");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).expect("a mode");
    std::fs::write(&path, "").expect("a file");
    let file = refused(&path);
    assert!(file.to_string().ends_with("choose another path, or move the file away"), "{file}");
    std::fs::remove_file(&path).expect("it is there");
    let insight = Insight::listen(&path).expect("it listens");
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    let second = refused(&path);
    assert_eq!((second.kind(), second.errno()), (ErrorKind::AddrInUse, 98));
    drop(insight);
    // As a process that was killed leaves it.
    drop(UnixListener::bind(&path).expect("it listens"));
    assert!(path.exists());
    Insight::listen(&path).expect("a stale socket is replaced");
}
