//! Parts that bindings to other languages share. Hidden from the documentation: not for programs.
// Duplicates a descriptor that a program names by its number.
#![allow(unsafe_code)]

use forebay_core::Segment;
use std::cell::Cell;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
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

/// Returns a duplicate of a descriptor, which programs that this one executes do not inherit. The
/// caller's descriptor stays open.
///
/// # Errors
/// `EBADF` if `fd` is not open, `EMFILE` if the process may open no more.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a call with numbers.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn duplicate_outlives_its_original() {
        let (mut from, to) = io::pipe().expect("a pipe");
        let own = duplicate(to.as_raw_fd()).expect("it is open");
        drop(to);
        let nr = io::Write::write(&mut io::PipeWriter::from(own), b"x");
        assert_eq!(
            (nr.expect("room"), io::read_to_string(&mut from).expect("it")),
            (1, "x".into())
        );
        assert_eq!(duplicate(-1).expect_err("no descriptor").raw_os_error(), Some(libc::EBADF));
    }

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
