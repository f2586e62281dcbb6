//! The trace of a run: the stages of each request, from the same places of the core as in the
//! library.

use forebay_core::{TraceReader, TraceRecord, TraceWriter};
use std::cell::RefCell;

/// Room of a ring, in records. The rings are emptied after each action on a context, which writes
/// a few records for each tag.
const NR_RECORDS: usize = 1 << 16;

/// The writer of a list of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceSource {
    /// The hardware context with this index.
    Context(usize),
    /// The task with this number.
    Task(usize),
}

/// The records of a hardware context or a task, oldest first. Times are virtual, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOfSource {
    /// The writer.
    pub source: TraceSource,
    /// Its records.
    pub records: Vec<TraceRecord>,
}

/// The rings of a traced run.
#[derive(Debug, Default)]
pub(crate) struct Stages(RefCell<Vec<(TraceReader, TraceOfSource)>>);

impl Stages {
    /// Creates the ring of a context.
    pub(crate) fn of_context(&self, at: usize) -> TraceWriter {
        self.add(TraceSource::Context(at), TraceWriter::for_context(NR_RECORDS))
    }

    /// Creates the ring of a task.
    pub(crate) fn of_task(&self, id: usize) -> TraceWriter {
        self.add(TraceSource::Task(id), TraceWriter::for_queue(NR_RECORDS))
    }

    fn add(&self, source: TraceSource, ring: (TraceWriter, TraceReader)) -> TraceWriter {
        let (writer, reader) = ring;
        self.0.borrow_mut().push((reader, TraceOfSource { source, records: Vec::new() }));
        writer
    }

    /// Empties the rings.
    pub(crate) fn drain(&self) {
        for (reader, trace) in &mut *self.0.borrow_mut() {
            reader.drain(|record| trace.records.push(record));
            assert_eq!(reader.nr_lost(), 0, "a ring holds the records of an action");
        }
    }

    /// Returns the records so far.
    pub(crate) fn take(&self) -> Vec<TraceOfSource> {
        self.drain();
        self.0.borrow_mut().drain(..).map(|(_, trace)| trace).collect()
    }
}
