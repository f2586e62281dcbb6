//! Events for subscribers of `tracing`, seen by a small subscriber.

use crate::common::submit;
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Disk, Io, SchedulerPolicy, Trace};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// Keeps each event of the library as a line: level, message and fields, then the open span.
#[derive(Clone, Default)]
struct Lines {
    state: Arc<Mutex<State>>,
    /// A disk from which the subscriber reads at each warning.
    reads: Option<Disk>,
    /// A trace that the subscriber stops when it has begun for a disk.
    stops: Option<Arc<Trace>>,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    spans: Vec<String>,
    entered: Vec<u64>,
}

/// The fields of an event or a span, as text.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("a string");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "forebay"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        let mut state = self.state.lock().expect("no panic");
        state.spans.push(format!("{}{}", span.metadata().name(), text.fields));
        Id::from_u64(state.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut state = self.state.lock().expect("no panic");
        let span = state.entered.last().map(|id| state.spans[*id as usize - 1].clone());
        let span = span.map_or(String::new(), |span| format!(" in {span}"));
        let line = format!("{} {}{}{span}", event.metadata().level(), text.message, text.fields);
        state.lines.push(line);
        drop(state);
        if let (Some(disk), &Level::WARN) = (&self.reads, event.metadata().level()) {
            assert_eq!(disk.read_at(&mut [0; 4096], 8192), Ok(4096));
        }
        if let (Some(trace), "trace begun") = (&self.stops, &text.message[..]) {
            trace.stop();
        }
    }

    fn enter(&self, span: &Id) {
        self.state.lock().expect("no panic").entered.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.state.lock().expect("no panic").entered.pop();
    }
}

/// Returns the lines of the events during `work`.
fn events(work: impl FnOnce()) -> Vec<String> {
    events_to(Lines::default(), work)
}

/// Returns the lines that a subscriber has after `work`.
fn events_to(lines: Lines, work: impl FnOnce()) -> Vec<String> {
    subscriber::with_default(lines.clone(), work);
    let state = lines.state.lock().expect("no panic");
    state.lines.clone()
}

#[test]
fn subscriber_may_stop_the_trace_that_has_begun() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Disk::open("ram:1M").expect("it opens");
    let trace = Arc::new(Trace::create(dir.path()).expect("it is empty"));
    let stops = Some(Arc::clone(&trace));
    let lines = events_to(Lines { stops, ..Lines::default() }, || {
        trace.add(&disk).expect("it is not traced");
    });
    assert_eq!(lines.len(), 1);
    trace.wait().expect("the files are written");
    let dir = tempfile::tempdir().expect("a directory");
    let again = Trace::create(dir.path()).expect("it is empty");
    again.add(&disk).expect("the first trace has ended");
}

#[test]
fn life_of_a_disk_is_a_sequence_of_events() {
    let lines = events(|| {
        let disk = Disk::open("ram:1M?nr_hw_queues=1&tag_set=events").expect("it opens");
        disk.write_at(&[1; 512], 0).expect("I/O has no events");
        disk.set_nr_requests(7).expect("less than the depth");
        let scheduling = disk.scheduling().scheduler(SchedulerPolicy::MqDeadline);
        disk.set_scheduler(scheduling).expect("one context");
        let dir = tempfile::tempdir().expect("a directory");
        let trace = Trace::create(dir.path()).expect("it is empty");
        trace.add(&disk).expect("it is not traced");
        // The thread of the trace reports the end, to the subscriber of the process.
        trace.finish().expect("the files are written");
    });
    let disk = "disk=\"ram:1M?nr_hw_queues=1&tag_set=events\"";
    let shown = disk.replace('"', "");
    assert_eq!(
        lines,
        [
            format!("INFO disk opened {shown} driver=\"ram\" size_bytes=1048576 in open {shown}"),
            format!("INFO setting changed {disk} key=\"nr_requests\" value=7"),
            format!("INFO setting changed {disk} key=\"scheduler\" value=mq-deadline"),
            format!("INFO trace begun {disk}"),
            format!("INFO disk closed {disk}"),
        ]
    );
}

/// Returns the lines of the events while `work` uses a disk, without those of the open and the
/// close.
pub(crate) fn events_on(spec: &str, work: impl FnOnce(&Disk)) -> Vec<String> {
    let mut lines = events(|| work(&Disk::open(spec).expect("it opens")));
    let opened = lines.remove(0);
    assert!(opened.starts_with("INFO disk opened"), "{opened}");
    let closed = lines.pop().expect("an event of the close");
    assert!(closed.starts_with("INFO disk closed"), "{closed}");
    lines
}

#[test]
fn failed_open_is_an_error_with_its_reason() {
    let lines = events(|| drop(Disk::open("nowhere.img").expect_err("no file")));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("ERROR disk not opened disk=nowhere.img error="), "{line}");
    assert!(line.contains("no such file"), "{line}");
}

#[test]
fn losses_of_blocking_and_queued_flushes_are_errors_once_until_acknowledged() {
    let spec = "fault:model:sata?size=1M&rule=flush:nospace";
    let lines = events_on(spec, |disk| {
        disk.write_at(&[1; 512], 0).expect("it is written");
        disk.flush().expect_err("the rule");
        disk.flush().expect_err("the loss is not acknowledged");
        disk.acknowledge_loss().expect("a loss");
        let mut queue = disk.queue();
        let mut done = Vec::new();
        for io in [Io::write(Buf::new(512), 0), Io::flush()] {
            submit(&mut queue, io);
            queue.reap(1, 1, &mut done);
        }
        disk.acknowledge_loss().expect("a second loss");
    });
    let at = format!("disk={spec:?}");
    assert_eq!(
        lines,
        [
            format!("ERROR writes may be lost {at} status=\"nospace\" after=0 up_to=2"),
            format!("WARN loss of writes acknowledged {at} after=0 up_to=2"),
            format!("ERROR writes may be lost {at} status=\"nospace\" after=0 up_to=3"),
            format!("WARN loss of writes acknowledged {at} after=0 up_to=3"),
        ]
    );
}

#[test]
fn loss_that_the_open_of_a_queue_finds_is_reported_once() {
    // The file of an owned context does not report the error of a write-back that another program
    // has received.
    let rules = "rule=write:writeback=io:range=512k+512k&rule=read:foreign_sync:range=0+512";
    let spec = format!("fault:ram:1M?{rules}&nr_hw_queues=2");
    let lines = events_on(&spec, |disk| {
        disk.write_at(&[1; 512], 512 << 10).expect("it is in the cache");
        disk.read_at(&mut [0; 512], 0).expect("the other program syncs");
        let mut queue = disk.queue();
        submit(&mut queue, Io::read(Buf::new(512), 4096));
        queue.reap(1, 1, &mut Vec::new());
        drop(queue);
        disk.flush().expect_err("the loss is not acknowledged");
    });
    let at = format!("disk={spec:?}");
    assert_eq!(lines, [format!("ERROR writes may be lost {at} after=0 up_to=2")]);
}

#[test]
fn disk_is_reported_as_gone_once_until_it_is_revived() {
    let spec = "fault:ram:1M?rule=read:offline:nth=2";
    let lines = events_on(spec, |disk| {
        let read = || disk.read_at(&mut [0; 512], 0);
        for _ in 0..2 {
            read().expect("the first of two");
            read().expect_err("the second of two");
            read().expect_err("the disk is gone");
            disk.revive();
            disk.revive();
        }
    });
    let at = format!("disk={spec:?}");
    let gone = format!("ERROR disk gone {at} reason=\"a request ended as offline\"");
    let revived = format!("INFO disk revived {at}");
    assert_eq!(lines, [gone.clone(), revived.clone(), gone, revived]);
}

#[test]
fn overdue_request_is_a_warning_with_its_range() {
    let spec = "fault:ram:1M?rule=read:hang:range=0+4096&io_timeout_ms=20";
    let lines = events_on(spec, |disk| {
        disk.read_at(&mut [0; 4096], 0).expect_err("it hangs");
    });
    let range = "op=\"read\" start=0 len=4096 reaction=\"cancelled\" left_out=0";
    assert_eq!(lines, [format!("WARN request overdue disk={spec:?} {range}")]);
}

#[test]
fn subscriber_may_use_the_disk_whose_failure_it_receives() {
    // All threads share one context, and this thread is its leader when the request is overdue.
    for keys in ["nr_hw_queues=1", "nr_hw_queues=2", "service=on"] {
        let spec = format!("fault:ram:1M?rule=read:hang:range=0+4096&io_timeout_ms=20&{keys}");
        let disk = Disk::open(&spec).expect("it opens");
        let reads = Some(disk.clone());
        let lines = events_to(Lines { reads, ..Lines::default() }, || {
            let mut queue = disk.queue();
            submit(&mut queue, Io::read(Buf::new(4096), 0));
            disk.read_at(&mut [0; 4096], 0).expect_err("it hangs");
            queue.reap(1, 1, &mut Vec::new());
        });
        // The service thread has no subscriber.
        let nr_lines = if keys == "service=on" { 0 } else { 2 };
        assert_eq!(lines.len(), nr_lines, "{keys}: {lines:?}");
    }
}

#[test]
fn lost_connection_is_reported_with_the_reason_of_the_driver() {
    // A connection ends with its script.
    let server = NbdServer::scripted(export(1 << 20), &[], |_, _| Ok(()));
    let spec = server.uri();
    let lines = events_on(&spec, |disk| {
        disk.read_at(&mut [0; 4096], 0).expect_err("the server hangs up");
        disk.write_at(&[0; 4096], 0).expect_err("the disk is gone");
    });
    let why = "reason=\"the server has closed the connection\"";
    assert_eq!(lines, [format!("ERROR disk gone disk={spec:?} {why}")]);
}
