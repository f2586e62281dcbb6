//! Boxes of bios, kept from one run to the next on a thread.
//!
//! A random scenario needs about half as many boxes as it has bios. Allocating and freeing them
//! would take a twentieth of the run.

use forebay_core::QueuedBio;
use std::cell::RefCell;

/// The boxes of larger runs are not kept.
const NR_BOXES_MAX: usize = 2048;

thread_local! {
    static BOXES: RefCell<Vec<Box<QueuedBio>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty box with this owner and number.
pub(super) fn new_box(owner: u64, number: u32) -> Box<QueuedBio> {
    match BOXES.with_borrow_mut(Vec::pop) {
        None => QueuedBio::new(owner, number),
        Some(mut boxed) => {
            boxed.renew(owner, number);
            boxed
        }
    }
}

/// Keeps boxes whose bios have ended, unless there are many.
pub(super) fn keep_boxes(boxes: &mut Vec<Box<QueuedBio>>) {
    // At the end of the thread there is no next run.
    let _ = BOXES.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let nr = boxes.len().min(NR_BOXES_MAX.saturating_sub(kept.len()));
        kept.extend(boxes.drain(..nr));
    });
}
