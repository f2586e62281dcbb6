//! Events for subscribers of `tracing`, seen by a small subscriber.

use forebay::{Disk, SchedulerPolicy, Trace};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

/// Keeps each event of the library as a line: level, message and fields, then the open span.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<State>>);

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
        let mut state = self.0.lock().expect("no panic");
        state.spans.push(format!("{}{}", span.metadata().name(), text.fields));
        Id::from_u64(state.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut state = self.0.lock().expect("no panic");
        let span = state.entered.last().map(|id| state.spans[*id as usize - 1].clone());
        let span = span.map_or(String::new(), |span| format!(" in {span}"));
        let line = format!("{} {}{}{span}", event.metadata().level(), text.message, text.fields);
        state.lines.push(line);
    }

    fn enter(&self, span: &Id) {
        self.0.lock().expect("no panic").entered.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().expect("no panic").entered.pop();
    }
}

/// Returns the lines of the events during `work`.
fn events(work: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    subscriber::with_default(lines.clone(), work);
    let state = lines.0.lock().expect("no panic");
    state.lines.clone()
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

#[test]
fn failures_of_open_and_flush_are_errors_with_their_reason() {
    let lines = events(|| {
        Disk::open("nowhere.img").expect_err("no file");
        let disk = Disk::open("fault:model:sata?size=1M&rule=flush:io:nth=1").expect("it opens");
        disk.write_at(&[1; 512], 0).expect("it is written");
        disk.flush().expect_err("the rule");
        disk.acknowledge_loss().expect("a loss");
    });
    let [not_opened, _opened, failed, acknowledged, _closed] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert!(not_opened.starts_with("ERROR disk not opened disk=nowhere.img error="), "{lines:?}");
    assert!(not_opened.contains("no such file"), "{lines:?}");
    assert!(failed.starts_with("ERROR flush failed disk=\"fault:model:sata"), "{lines:?}");
    assert!(acknowledged.starts_with("WARN loss of writes acknowledged disk="), "{lines:?}");
    assert!(acknowledged.ends_with(" after=0 up_to=2"), "{lines:?}");
}
