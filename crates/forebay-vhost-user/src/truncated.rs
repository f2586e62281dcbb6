//! Handler of SIGBUS: a device whose guest memory was truncated stops, and the process goes on.
//!
//! A front end shares the memory of its guest as a file. If it truncates the file, an access to the
//! lost pages is a SIGBUS, which would end the process and all its other devices. The handler
//! replaces the mapping of such a region by zeroes and marks it, and the access is repeated. The
//! rings of the device find the mark ([`Watch::is_lost`]) and stop.
//!
//! That is sound because the contents of the memory may change at any time anyway: see
//! [`crate::memory`]. The replacement is a mapping at the same addresses with the same rights. The
//! kernel keeps pages that a device still writes to, and answers its own accesses with EFAULT.
//!
//! The handler runs on the thread that made the access. That thread holds the table of the region,
//! so the region's entry cannot change meanwhile. Entries of other regions may: each has a sequence
//! number, and an entry that changes is skipped. All tables with a mapping share its entry, so the
//! mark of a mapping is one, and a front end uses no more entries than it has mappings.
//!
//! A library must not install signal handlers, so the program calls [`survive_truncated_memory`].
// It installs a signal handler, which maps memory.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::ptr::addr_of;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, Once, PoisonError};

/// Most regions that are watched at once. An access to another one that was truncated would end the
/// process, so memory that is not watched must not be used.
const NR_ENTRIES: usize = 4096;

/// A region that the handler may replace.
struct Entry {
    /// Even, or odd while the entry changes.
    sequence: AtomicUsize,
    start: AtomicUsize,
    /// Bytes; 0 for none.
    len: AtomicUsize,
    is_lost: AtomicBool,
}

static ENTRIES: [Entry; NR_ENTRIES] = [const {
    Entry {
        sequence: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
    }
}; NR_ENTRIES];

/// The use of the entries.
struct Used {
    /// The number of watches of each entry that was ever used.
    nr_watches: Vec<usize>,
    /// Those of them that have none.
    free: Vec<usize>,
}

static USED: Mutex<Used> = Mutex::new(Used { nr_watches: Vec::new(), free: Vec::new() });

/// Number of regions that were replaced. A ring checks its regions only if it has changed.
static NR_LOST: AtomicU64 = AtomicU64::new(0);

impl Entry {
    /// Changes the entry. Callers hold the lock of `USED`.
    fn set(&self, start: usize, len: usize) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // The odd number is visible before the changes: it pairs with the handler's last fence.
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.is_lost.store(false, Ordering::Relaxed);
        // Release: the changes are visible before the even number.
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Returns start and length of the region. `None`: there is none, or the entry changes.
    fn get(&self) -> Option<(usize, usize)> {
        // Acquire pairs with the release of the even number.
        let before = self.sequence.load(Ordering::Acquire);
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        // The values are loaded before the second number.
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2) && len > 0).then_some((start, len))
    }

    fn contains(&self, addr: usize) -> Option<(usize, usize)> {
        self.get().filter(|&(start, len)| addr.wrapping_sub(start) < len)
    }
}

impl Used {
    /// Returns an entry without watches. `None`: there is none.
    fn claim(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            let next = self.nr_watches.len();
            (next < NR_ENTRIES).then(|| {
                self.nr_watches.push(0);
                next
            })
        })
    }
}

/// A region that is watched until this is dropped. It must be dropped before the mapping ends.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None`: there was no free entry.
    index: Option<usize>,
}

impl Watch {
    /// Watches a mapping of `len` bytes at `start`.
    pub(crate) fn new(start: usize, len: usize) -> Watch {
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        // Another table may have the same mapping. Its entry has the mark if it was replaced.
        let shared = (0..used.nr_watches.len()).find(|&at| ENTRIES[at].get() == Some((start, len)));
        let index = shared.or_else(|| used.claim());
        if let Some(index) = index {
            used.nr_watches[index] += 1;
            if shared.is_none() {
                ENTRIES[index].set(start, len);
            }
        }
        Watch { index }
    }

    /// Returns whether there was an entry for the region.
    pub(crate) fn is_active(&self) -> bool {
        self.index.is_some()
    }

    /// Returns whether the region was truncated, and replaced by zeroes.
    pub(crate) fn is_lost(&self) -> bool {
        self.index.is_some_and(|index| ENTRIES[index].is_lost.load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
            used.nr_watches[index] -= 1;
            if used.nr_watches[index] == 0 {
                ENTRIES[index].set(0, 0);
                used.free.push(index);
            }
        }
    }
}

/// Returns the number of regions that were lost so far. For other threads than that of the handler
/// a later call is early enough. Acquire pairs with the handler's release: a ring that sees a new
/// number looks for marks once, so it must see the marks that were made before.
#[inline]
pub(crate) fn nr_lost() -> u64 {
    NR_LOST.load(Ordering::Acquire)
}

/// The handler of SIGBUS before ours.
struct Former(UnsafeCell<libc::sigaction>);

// SAFETY: it is written once, before the handler that reads it is installed.
unsafe impl Sync for Former {}

// SAFETY: all bytes 0 are a valid `sigaction`: the default action.
static FORMER: Former = Former(UnsafeCell::new(unsafe { std::mem::zeroed() }));

/// Makes the process survive accesses to truncated memory of guests: installs a handler of SIGBUS.
/// At another fault the handler restores the former one.
///
/// # Errors
/// Returns the error of the system call.
pub fn survive_truncated_memory() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        // SAFETY: all bytes 0 are a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: valid pointers. The former action is read first, and written only here.
        let failed = unsafe {
            libc::sigaction(libc::SIGBUS, std::ptr::null(), FORMER.0.get()) != 0
                || libc::sigaction(libc::SIGBUS, addr_of!(action), std::ptr::null_mut()) != 0
        };
        if failed {
            result = Err(io::Error::last_os_error());
        }
    });
    result
}

/// Handles SIGBUS. It calls only functions that are safe in a handler: atomics and system calls.
extern "C" fn handle(_signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer. A SIGBUS of a fault has an address.
    let addr = unsafe { (*info).si_addr() } as usize;
    // SAFETY: errno is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let mut found = false;
    for entry in &ENTRIES {
        let Some((start, len)) = entry.contains(addr) else { continue };
        if !found {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: the range is a mapping of a guest's memory, which this thread keeps alive
            // while it accesses it. The new mapping has the same place and rights.
            let mapped = unsafe { libc::mmap(at, len, prot, flags | libc::MAP_NORESERVE, -1, 0) };
            found = mapped != libc::MAP_FAILED;
        }
        entry.is_lost.store(found, Ordering::Relaxed);
    }
    if found {
        // Release: after the marks.
        NR_LOST.fetch_add(1, Ordering::Release);
    } else {
        // The access is repeated, and its next SIGBUS goes to the former handler.
        // SAFETY: it was written before this handler was installed.
        unsafe { libc::sigaction(libc::SIGBUS, FORMER.0.get(), std::ptr::null_mut()) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

    const LEN: usize = 1 << 20;

    fn shared() -> (File, GuestMemoryMmap) {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("test", flags).expect("memory"));
        file.set_len(LEN as u64).expect("memory");
        let place = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let memory = GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), LEN, Some(place))]);
        (file, memory.expect("a mapping"))
    }

    #[test]
    fn truncated_region_reads_as_zeroes_and_is_marked() {
        survive_truncated_memory().expect("a handler");
        let ((file, memory), (_other_file, other)) = (shared(), shared());
        let (table, others) = (crate::GuestMemory::new(memory), crate::GuestMemory::new(other));
        let again = crate::GuestMemory::new(table.regions().clone());
        for memory in [&table, &others] {
            memory.regions().write_obj(7_u8, GuestAddress(LEN as u64 - 1)).expect("a write");
        }
        assert!(!table.is_lost() && !again.is_lost());
        file.set_len(0).expect("it is truncated");
        let byte: u8 = table.regions().read_obj(GuestAddress(LEN as u64 - 1)).expect("a read");
        assert_eq!(byte, 0);
        table.regions().write_obj(9_u8, GuestAddress(0)).expect("a write");
        assert!(table.is_lost() && again.is_lost());
        let later = crate::GuestMemory::new(table.regions().clone());
        assert!(later.is_lost(), "a table that is made later has the same mapping");
        assert!(!others.is_lost());
        let byte: u8 = others.regions().read_obj(GuestAddress(LEN as u64 - 1)).expect("a read");
        assert_eq!(byte, 7);
    }

    #[test]
    fn entry_is_free_after_its_watch() {
        let watches: Vec<_> = (1..100).map(|nr| Watch::new(nr << 44, 4096)).collect();
        drop(watches);
        let nr_used = || USED.lock().unwrap().nr_watches.len();
        let before = nr_used();
        for nr in 1..10_000 {
            drop(Watch::new(nr << 30, 4096));
        }
        assert!(nr_used() <= before + 64, "other tests have a few");
    }

    #[test]
    fn tables_of_one_mapping_share_its_entry() {
        survive_truncated_memory().expect("a handler");
        let (file, memory) = shared();
        // As many as a front end with many rings, and many requests in flight, can make.
        let table = || crate::GuestMemory::new(memory.clone());
        let mut tables: Vec<_> = (0..2 * NR_ENTRIES).map(|_| table()).collect();
        assert!(tables.iter().all(crate::GuestMemory::is_watched));
        let last = tables.pop().expect("a table");
        drop(tables);
        assert!(last.is_watched() && !last.is_lost());
        file.set_len(0).expect("it is truncated");
        last.regions().write_obj(9_u8, GuestAddress(0)).expect("a write");
        assert!(last.is_lost() && table().is_lost());
    }
}
