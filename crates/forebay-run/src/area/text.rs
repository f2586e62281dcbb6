//! Short texts in the words of an area. A text ends with a zero.

use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces the start of a text that is cut.
const CUT: &[u8] = b"...";

/// Stores a text that is shorter than the words.
pub(super) fn store(words: &[AtomicU64], text: &[u8]) {
    for (nth, word) in words.iter().enumerate() {
        let mut bytes = [0; 8];
        let part = text.get(8 * nth..).unwrap_or_default();
        bytes.iter_mut().zip(part).for_each(|(place, byte)| *place = *byte);
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// Returns a text of at most `max` bytes: the end of a longer one, after [`CUT`].
pub(super) fn end_of(text: &[u8], max: usize) -> std::borrow::Cow<'_, [u8]> {
    match text.len().checked_sub(max) {
        None | Some(0) => text.into(),
        Some(nr) => [CUT, &text[nr + CUT.len()..]].concat().into(),
    }
}

/// Returns the text in the bytes of some words.
pub(super) fn of_bytes(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
