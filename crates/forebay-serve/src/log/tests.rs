//! Log lines that are written, and lines that are dropped.

use std::io::{PipeReader, Read, pipe};

use super::*;
use crate::metrics::Traffic;
use forebay_front::RequestKind;

/// Returns a log, and the pipe with its lines.
fn log() -> (Log, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    (Log::to(Some(writer.into()), LogFormat::Journald, LogLevel::Info), reader)
}

fn read(reader: &mut PipeReader) -> String {
    let mut text = String::new();
    // The read ends with "would block", and has then read all lines.
    let _ = reader.read_to_string(&mut text);
    text
}

#[test]
fn a_log_line_stays_one_line_with_any_peer_text() {
    let (log, mut reader) = log();
    log.line(0, "export \"a\n<6>all is well\x1b[2J\u{7f}\u{85}ü\"");
    log.line(0, "x".repeat(10_000));
    let text = read(&mut reader);
    let mut lines = text.lines();
    let expected = "<6>export \"a\\n<6>all is well\\u{1b}[2J\\u{7f}\\u{85}ü\"";
    assert_eq!(lines.next(), Some(expected));
    let long = lines.next().unwrap();
    assert!(long.ends_with("xxx...") && long.len() < format::MAX_LINE_BYTES);
    assert_eq!(lines.next(), None);
}

#[test]
fn a_flood_is_cut_off_and_counted() {
    let (log, mut reader) = log();
    for line in 0..1000 {
        log.line(5, line);
    }
    assert_eq!(read(&mut reader).lines().count() as u64, BURST);
    log.line(5 + NS_PER_LINE, "next");
    assert_eq!(read(&mut reader), "<4>800 log lines dropped: too many at once\n<6>next\n");
    log.line(5 + NS_PER_LINE, "one more is too many");
    assert_eq!(read(&mut reader), "");
    let later = 5 + NS_PER_LINE * 2 * BURST;
    (0..BURST).for_each(|line| log.line(later, line));
    assert_eq!(read(&mut reader).lines().count() as u64, BURST + 1, "the burst is back");
}

#[test]
fn log_does_not_wait_for_a_stopped_or_closed_reader() {
    let (log, mut reader) = log();
    // More than fits into a pipe.
    for at in 0..1000 {
        log.line(at * NS_PER_LINE, "x".repeat(4000));
    }
    let held = read(&mut reader).lines().count();
    assert!(held < 1000);
    log.line(1000 * NS_PER_LINE, "next");
    let expected = format!("<4>{} log lines dropped", 1000 - held);
    assert!(read(&mut reader).starts_with(&expected));
    drop(reader);
    log.line(u64::MAX / 2, "it is gone");
    Log::to(None, LogFormat::Text, LogLevel::Info).line(0, "there was none");
}

#[test]
fn lines_below_the_level_are_left_out() {
    let (log, mut reader) = log();
    log.set_level(LogLevel::Warning);
    assert_eq!(log.level(), LogLevel::Warning);
    log.line(0, "left out");
    log.warn(0, "written");
    log.set_level(LogLevel::Error);
    log.warn(0, "left out");
    log.write_at(LogLevel::Error, 0, "grave");
    log.set_level(LogLevel::Info);
    log.line(0, "again");
    assert_eq!(read(&mut reader), "<4>written\n<3>grave\n<6>again\n");
}

#[test]
fn connection_is_logged_at_its_start_and_end() {
    let peer = Peer::Tcp("127.0.0.1:9".parse().unwrap());
    let opened =
        Opened { id: 3, peer, export: "a\"b", tls: Some("TLSv1_3 X"), mode: "structured replies" };
    assert_eq!(
        opened.to_string(),
        "connection 3 from 127.0.0.1:9: export \"a\\\"b\", structured replies, TLSv1_3 X"
    );
    let counted = Traffic::default();
    counted.begin(RequestKind::Read);
    counted.end(RequestKind::Read, 1536);
    counted.begin(RequestKind::Write);
    counted.end(RequestKind::Write, 5);
    for _ in 0..2 {
        counted.begin(RequestKind::Trim);
        counted.fail();
    }
    let traffic = counted.sum();
    let closed = Closed {
        id: 3,
        peer: Peer::Unix,
        export: Some("x"),
        why: "the client has left",
        traffic,
        open_ns: 1_234_567_890,
    };
    assert_eq!(
        closed.to_string(),
        "connection 3 from unix: the client has left after 1.235 s; 4 requests (2 failed), \
         1.5 KiB read, 5 B written"
    );
    let closed = Closed { export: None, ..closed };
    assert!(closed.to_string().ends_with("after 1.235 s; no export chosen"));
}

#[test]
fn sizes_are_in_the_largest_unit_that_they_reach() {
    let said = [0, 1023, 1024, (1 << 20) - 1, 1 << 20, u64::MAX].map(|size| Size(size).to_string());
    assert_eq!(said, ["0 B", "1023 B", "1.0 KiB", "1024.0 KiB", "1.0 MiB", "16.0 EiB"]);
}
