//! Models of the ring: a writer and a reader in every interleaving.

use super::*;
use alloc::vec::Vec;
use loom::thread;

fn numbered(number: u64) -> TraceRecord {
    // All words depend on the number, so a mix of two records is noticed.
    TraceRecord { start: number, ..TraceRecord::note(TraceEvent::Unplug, number, number) }
}

/// Every record arrives once, whole and in order, or is counted where it is missing.
#[test]
fn records_arrive_in_order_or_are_counted() {
    loom::model(|| {
        let (mut writer, mut reader) = TraceWriter::for_queue(2);
        let thread = thread::spawn(move || {
            (1..=4).for_each(|number| assert!(writer.push(numbered(number).pack())));
        });
        let mut got = Vec::new();
        got.extend(reader.pop());
        got.extend(reader.pop());
        thread.join().expect("the writer does not panic");
        got.extend(core::iter::from_fn(|| reader.pop()));
        let mut next = 1;
        for record in got {
            match record.event {
                TraceEvent::Lost => next += record.len,
                _ => {
                    assert_eq!((record.start, record.len), (next, next));
                    assert!(record.time_ns >= next);
                    next += 1;
                }
            }
        }
        // The last ones that were lost have no record.
        assert!(next <= 5 && next + reader.nr_lost() >= 5, "{next}");
        assert!(reader.has_ended());
    });
}
