//! Models of durable points that need more than the public functions, for loom. The others are in
//! `tests/loom/durability.rs`.

use super::{Durability, Wanted};
use alloc::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

/// A wait that begins after a loss was acknowledged does not fail because of that loss.
#[test]
fn wait_after_an_acknowledgement_begins_after_its_loss() {
    loom::model(|| {
        let durability = Arc::new(Durability::new());
        let wanted = Wanted::All(durability.point());
        let other = Arc::clone(&durability);
        let flusher = thread::spawn(move || {
            other.flush_failed();
            other.acknowledge_loss();
        });
        // A change, because loom does not try a load of this word after the other thread's change.
        if durability.nr_acknowledged.fetch_add(0, Relaxed) == 1 {
            let since = durability.check(wanted).expect("no loss is left");
            assert!(durability.check_since(since, wanted).is_some(), "the loss was acknowledged");
        }
        flusher.join().unwrap();
    });
}
