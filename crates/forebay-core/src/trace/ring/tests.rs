//! One ring, written and read by one thread.

use super::*;
use alloc::vec::Vec;

fn packed(number: u64) -> [u64; NR_WORDS] {
    TraceRecord::note(TraceEvent::Unplug, number, number).pack()
}

#[test]
fn ring_returns_records_in_order_and_counts_those_without_room() {
    let (mut writer, mut reader) = TraceWriter::for_queue(4);
    assert_eq!(reader.pop(), None);
    (0..7).for_each(|number| assert!(writer.push(packed(number))));
    let mut got = Vec::new();
    assert_eq!(reader.drain(|record| got.push((record.event, record.len))), 4);
    assert_eq!(got, [0, 1, 2, 3].map(|number| (TraceEvent::Unplug, number)));
    assert_eq!(reader.nr_lost(), 3);
    assert!(writer.push(packed(7)));
    got.clear();
    reader.drain(|record| got.push((record.event, record.len)));
    assert_eq!(got, [(TraceEvent::Lost, 3), (TraceEvent::Unplug, 7)]);
    assert_eq!(reader.nr_lost(), 3);
}

#[test]
fn lost_count_waits_for_room_for_two_records() {
    let (mut writer, mut reader) = TraceWriter::for_queue(2);
    (0..3).for_each(|number| assert!(writer.push(packed(number))));
    assert_eq!(reader.pop().map(|record| record.len), Some(0));
    assert!(writer.push(packed(3)));
    assert_eq!(reader.pop().map(|record| record.len), Some(1));
    assert_eq!((reader.pop(), reader.nr_lost()), (None, 2));
    assert!(writer.push(packed(4)));
    let kinds: Vec<_> = core::iter::from_fn(|| reader.pop()).map(|it| (it.event, it.len)).collect();
    assert_eq!(kinds, [(TraceEvent::Lost, 2), (TraceEvent::Unplug, 4)]);
}

#[test]
fn records_of_a_context_are_later_and_their_times_grow() {
    let (mut writer, mut reader) = TraceWriter::for_context(8);
    for number in [5, 9, 7] {
        assert!(writer.push(packed(number)));
    }
    let times: Vec<_> = core::iter::from_fn(|| reader.pop()).map(|it| it.time_ns).collect();
    assert_eq!(times, [6, 10, 11]);
}

/// Counts the records that it sees.
#[derive(Debug, Default)]
struct Counter {
    nr_records: AtomicU32,
    nr_ends: AtomicU32,
}

/// The switch of the counter: one bit, beside others.
static SWITCH: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(4);
const ON: u64 = 2;

impl TraceProbe for Counter {
    fn switch(&self) -> ProbeSwitch {
        ProbeSwitch::new(&SWITCH, ON)
    }

    fn record(&self, record: &TraceRecord) {
        assert_eq!(record.event, TraceEvent::Unplug);
        self.nr_records.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.nr_ends.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn writer_lives_as_long_as_its_reader_or_its_probe_wants_records() {
    let counter = Arc::new(Counter::default());
    let counts = || [&counter.nr_records, &counter.nr_ends].map(|nr| nr.load(Ordering::Relaxed));
    let turn = |is_on: bool| SWITCH.store(4 | if is_on { ON } else { 0 }, Ordering::Relaxed);
    let (writer, mut reader) = TraceWriter::for_queue(8);
    let mut writer = writer.with_probe(Some(counter.clone()));
    turn(true);
    assert!(writer.push(packed(1)));
    turn(false);
    assert!(writer.push(packed(2)));
    assert_eq!((reader.drain(|_| {}), counts()), (2, [1, 0]));
    reader.close();
    turn(true);
    assert!(writer.push(packed(3)) && !writer.is_open());
    turn(false);
    assert!(!writer.push(packed(4)));
    assert_eq!((reader.pop(), counts()), (None, [2, 1]));
    let mut alone = TraceWriter::for_probe(counter.clone());
    turn(true);
    assert!((0..9).all(|number| alone.push(packed(number))) && !alone.is_open());
    assert_eq!(counts(), [11, 1]);
}

#[test]
fn writer_stops_after_the_reader_has_closed_and_reader_sees_that_it_is_gone() {
    let (mut writer, mut reader) = TraceWriter::for_queue(8);
    assert!(writer.push(packed(1)));
    reader.close();
    assert!(!writer.push(packed(2)) && !reader.has_ended());
    drop(writer);
    assert!(reader.has_ended());
    assert_eq!((reader.pop().map(|it| it.len), reader.pop()), (Some(1), None));
}
