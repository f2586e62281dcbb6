//! Parts that bindings to other languages share. Hidden from the documentation: not for programs.

use forebay_core::Segment;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest segment that [`cut`] makes, in bytes.
pub const SEGMENT_MAX: usize = 1 << 30;

/// Returns the number of the calling thread. No other thread of the process ever has the same.
#[inline]
pub fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! { static NUMBER: Cell<u64> = const { Cell::new(0) }; }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

/// Returns the segments of `len` bytes at an address: none for no bytes, and several if one cannot
/// be that long.
pub fn cut(addr: usize, len: usize) -> impl Iterator<Item = Segment> {
    let part = move |at: usize| Segment { addr: addr + at, len: SEGMENT_MAX.min(len - at) as u32 };
    (0..len).step_by(SEGMENT_MAX).map(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_the_memory() {
        let lens = |len| cut(4096, len).map(|part| (part.addr, part.len)).collect::<Vec<_>>();
        assert_eq!(lens(0), []);
        assert_eq!(lens(512), [(4096, 512)]);
        assert_eq!(lens(1 << 30), [(4096, 1 << 30)]);
        let second = 4096 + (1 << 30);
        assert_eq!(lens((2 << 30) - 512), [(4096, 1 << 30), (second, (1 << 30) - 512)]);
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let own = thread_number();
        let other = std::thread::spawn(thread_number).join().expect("no panic");
        assert!(own != other && own == thread_number());
    }
}
