//! Traces of a server that does not run.

use super::*;
use crate::config::{ExportOptions, Options};
use crate::listen::Address;
use crate::server::Server;
use crate::shared::Shared;
use forebay::TraceStats;

/// Returns the shared state of a server with an export, and with a directory for traces or none.
fn shared(folder: &tempfile::TempDir, trace: Option<&str>) -> Arc<Shared> {
    let export = ExportOptions { spec: "ram:1M".to_owned(), ..ExportOptions::default() };
    let options = Options {
        exports: vec![export],
        listen: vec![Address::Unix(folder.path().join("s"))],
        trace: trace.map(|dir| folder.path().join(dir)),
        ..Options::default()
    };
    Server::open(options).expect("it opens").shared
}

fn write(shared: &Shared) {
    shared.exports.get(0).disk.write_at(&[1; 4096], 0).expect("it is written");
}

#[test]
fn each_trace_has_a_directory_and_none_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = shared(&folder, Some("new/t"));
    let traces = &shared.traces;
    assert!(matches!(traces.describe(), Some(TraceState::Off)));
    for nth in 1..=2 {
        traces.switch_on(|| shared.exports.all()).expect("none runs");
        write(&shared);
        let dir = folder.path().join("new/t").join(nth.to_string());
        let place = Place::Directory(dir.clone());
        assert!(matches!(traces.describe(), Some(TraceState::On(it, _)) if it == place));
        let error = traces.switch_on(|| shared.exports.all()).expect_err("one runs");
        let expected = format!(
            "a trace to {} runs already: end it with `forebay ctl SOCKET trace off`",
            dir.display()
        );
        assert_eq!(error, expected);
        let last = traces.switch_off().expect("it ran");
        assert_eq!((last.place, last.outcome), (place, Ok(stats(4))));
        assert!(dir.join("ram-1M.blktrace.0").exists());
    }
    assert!(traces.switch_off().is_none());
    traces.end();
    let error = traces.switch_on(|| shared.exports.all()).expect_err("shutdown");
    assert_eq!(error, "the server is shutting down");
}

fn stats(records: u64) -> TraceStats {
    let mut stats = TraceStats::default();
    stats.records = records;
    stats
}

#[test]
fn client_that_leaves_ends_its_trace_and_another_may_begin() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = shared(&folder, None);
    let traces = &shared.traces;
    assert!(traces.describe().is_none());
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    traces.send(|| shared.exports.all(), ours.into()).expect("none runs");
    let (other, _theirs) = UnixStream::pair().expect("sockets");
    let error = traces.send(|| shared.exports.all(), other.into()).expect_err("one runs");
    assert!(error.starts_with("another client records a trace: wait for its end, or"), "{error}");
    write(&shared);
    drop(theirs);
    let ended = traces.inner.ended.wait_while(traces.state(), |state| state.running.is_some());
    let last = ended.expect("no panic").last.clone().expect("it has ended");
    let expected = "cannot send the trace to its receiver: it has closed the socket";
    assert_eq!((last.place, last.outcome), (Place::Client, Err(expected.to_owned())));
    let (ours, _theirs) = UnixStream::pair().expect("sockets");
    traces.send(|| shared.exports.all(), ours.into()).expect("the first has ended");
    traces.end();
}

#[test]
fn directory_that_cannot_be_written_is_refused_before_the_disks_are_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("a file");
    let export = ExportOptions { spec: "nowhere.img".to_owned(), ..ExportOptions::default() };
    let trace = Some(folder.path().join("file/t"));
    let options = Options { exports: vec![export], trace, ..Options::default() };
    let error = Server::open(options).expect_err("not a directory").to_string();
    assert!(error.contains("file/t: cannot write traces there: Not a directory"), "{error}");
}
