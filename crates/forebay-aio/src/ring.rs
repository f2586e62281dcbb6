//! The ring of events in memory, which is also the program's handle of a context.
//!
//! Some programs take events from the ring without a call, and move its head. So the ring has the
//! layout of the kernel's. This library writes events and the tail, under the lock of the context.
//! The head belongs to the program: `io_getevents` moves it for one that calls. A program that also
//! moves it by itself must not call at the same time, as with the kernel's ring.
//!
//! An event is written before the tail behind it is stored with Release, and both the program and
//! [`Ring::pop`] load the tail with Acquire. A place is used again only when the head is past it:
//! [`Ring::len`] loads the head with Acquire, which pairs with the Release of its store.
// Memory that the program accesses.
#![allow(unsafe_code)]

use crate::abi::{IoEvent, RING_MAGIC, RingHead};
use crate::raw::Errno;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the number of places that the kernel's ring has for a context of `nr` iocbs. `None` if
/// the kernel would refuse so many.
///
/// Source: `aio_setup_ring` and `ioctx_alloc` in `fs/aio.c`. The kernel doubles the number, because
/// each processor may keep some places, and fills the last page.
pub(crate) fn places(nr: u32) -> Option<u32> {
    // SAFETY: the arguments are numbers.
    let sysconf = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok();
    let (page, nr_cpus) = (sysconf(libc::_SC_PAGESIZE)?, sysconf(libc::_SC_NPROCESSORS_CONF)?);
    let (head, event) = (size_of::<RingHead>() as u64, size_of::<IoEvent>() as u64);
    let wanted = u64::from(nr).max(4 * nr_cpus) * 2 + 2;
    let bytes = (head + wanted * event).next_multiple_of(page);
    u32::try_from((bytes - head) / event).ok().filter(|_| nr <= NR_MAX)
}

/// The most iocbs of a context, as in the kernel.
const NR_MAX: u32 = 0x1000_0000 / size_of::<IoEvent>() as u32;

/// A ring with room for a number of events.
#[derive(Debug)]
pub(crate) struct Ring {
    head: NonNull<RingHead>,
    nr: u32,
    bytes: usize,
}

// SAFETY: the ring is memory of its own, and its indices are atomic. Its lock is that of the
// context.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Creates a ring with `places` places, one of which stays free, and the number `id`.
    pub(crate) fn new(places: u32, id: u32) -> Result<Ring, Errno> {
        let bytes = size_of::<RingHead>() + places as usize * size_of::<IoEvent>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, at an address that the kernel chooses.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(libc::ENOMEM);
        }
        let head = NonNull::new(mapped.cast::<RingHead>()).ok_or(libc::ENOMEM)?;
        let content = RingHead {
            id,
            nr: places,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            magic: RING_MAGIC,
            compat_features: 1,
            incompat_features: 0,
            header_len: size_of::<RingHead>() as u32,
        };
        // SAFETY: the mapping is writable, aligned to a page, and large enough.
        unsafe { head.write(content) };
        Ok(Ring { head, nr: places, bytes })
    }

    /// Returns the address, which is the program's handle.
    pub(crate) fn address(&self) -> usize {
        self.head.as_ptr().expose_provenance()
    }

    fn head(&self) -> &RingHead {
        // SAFETY: the mapping lives as long as this. The program changes only the atomic head.
        unsafe { self.head.as_ref() }
    }

    /// Returns the place of an event.
    fn place(&self, nth: u32) -> *mut IoEvent {
        assert!(nth < self.nr, "the index is in the ring");
        // SAFETY: `nr` events follow the head in the mapping.
        unsafe { self.head.as_ptr().add(1).cast::<IoEvent>().add(nth as usize) }
    }

    /// Returns the number of events in the ring. A head outside of it counts as that of an empty
    /// ring: the program has overwritten it.
    pub(crate) fn len(&self) -> u32 {
        let ring = self.head();
        let (head, tail) = (ring.head.load(Ordering::Acquire), ring.tail.load(Ordering::Acquire));
        if head >= self.nr { 0 } else { (tail + self.nr - head) % self.nr }
    }

    /// Returns the index of the oldest event. It changes when the program takes one by itself.
    pub(crate) fn head_index(&self) -> u32 {
        self.head().head.load(Ordering::Relaxed)
    }

    /// Adds an event. The caller has the lock of the context, and has kept a place for it.
    pub(crate) fn push(&self, event: IoEvent) {
        let tail = self.head().tail.load(Ordering::Relaxed);
        // SAFETY: the place is free: there are fewer events than places, and the lock keeps other
        // writers out.
        unsafe { self.place(tail).write(event) };
        self.head().tail.store((tail + 1) % self.nr, Ordering::Release);
    }

    /// Takes the oldest event. The caller has the lock of the context.
    pub(crate) fn pop(&self) -> Option<IoEvent> {
        let head = self.head().head.load(Ordering::Relaxed);
        if self.len() == 0 {
            return None;
        }
        // SAFETY: the place was written before the tail behind it, and is not free yet.
        let event = unsafe { self.place(head).read() };
        self.head().head.store((head + 1) % self.nr, Ordering::Release);
        Some(event)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and no reference to it is left.
        unsafe { libc::munmap(self.head.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn event(data: u64) -> IoEvent {
        IoEvent { data, obj: data + 1, res: 4096, res2: 0 }
    }

    #[test]
    fn events_come_out_in_order_around_the_end() {
        let ring = Ring::new(4, 7).unwrap();
        assert_eq!((ring.head().id, ring.head().nr, ring.len()), (7, 4, 0));
        assert_eq!(ring.pop(), None);
        for round in 0..5 {
            (0..3).for_each(|nth| ring.push(event(round * 3 + nth)));
            assert_eq!(ring.len(), 3);
            (0..3).for_each(|nth| assert_eq!(ring.pop(), Some(event(round * 3 + nth))));
        }
    }

    #[test]
    fn head_outside_of_the_ring_is_an_empty_ring() {
        let ring = Ring::new(4, 1).unwrap();
        ring.push(event(1));
        ring.head().head.store(9, Ordering::Relaxed);
        assert_eq!((ring.len(), ring.pop()), (0, None));
    }

    /// A program that reads events by itself sees each of them whole. Miri checks the orderings.
    #[test]
    fn program_that_moves_the_head_sees_each_event() {
        const NR: u64 = if cfg!(miri) { 40 } else { 10_000 };
        let ring = Ring::new(5, 1).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 0;
                while next < NR {
                    let head = ring.head().head.load(Ordering::Relaxed);
                    if head == ring.head().tail.load(Ordering::Acquire) {
                        thread::yield_now();
                        continue;
                    }
                    // SAFETY: the event was written before the tail behind it.
                    assert_eq!(unsafe { ring.place(head).read() }, event(next));
                    ring.head().head.store((head + 1) % ring.nr, Ordering::Release);
                    next += 1;
                }
            });
            let mut nr_pushed = 0;
            while nr_pushed < NR {
                if ring.len() < 4 {
                    ring.push(event(nr_pushed));
                    nr_pushed += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
    }
}
