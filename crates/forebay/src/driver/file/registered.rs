//! Memory of callers that rings have registered: the kernel pins its pages once, not for each I/O.
//!
//! A device pins a range once, in the table of a small ring that gets no submissions. The rings of
//! its queues clone that entry into their own tables (Linux 6.13). On older kernels each ring pins
//! the range again, and each time it counts against the limit of locked memory.
//!
//! A caller keeps a registered range mapped, and registers it with each queue whose I/O uses it. It
//! ends the registration of a queue when no I/O of that queue uses the range any more. So an entry
//! of a table belongs to one mapping, and no command in flight names an entry that is cleared.
//!
//! The thread that uses the driver copies the table when its version has changed. If it misses an
//! addition, it names the memory by its address, as without a registration. It cannot miss a
//! removal: new memory at the same address reaches its queue after the removal, by the same thread
//! or handed over by synchronization of the caller.
// It registers memory.
#![allow(unsafe_code)]

use super::base::locked_limit;
use crate::sys::fork::Origin;
use crate::sys::primitive::{AtomicU64, Mutex, Ordering, lock};
use io_uring::IoUring;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Longest range of an entry: the kernel takes no longer one.
const MAX_LEN: usize = 1 << 30;
/// Entries of a table.
const NR_ENTRIES: u32 = 512;

/// A range of memory, and its index in the table of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) addr: usize,
    pub(super) len: usize,
    pub(super) index: u16,
}

impl Range {
    /// Returns whether `len` bytes at `addr` are inside.
    #[inline]
    pub(super) fn contains(&self, addr: usize, len: u64) -> bool {
        let offset = addr.wrapping_sub(self.addr);
        offset < self.len && len <= (self.len - offset) as u64
    }
}

/// An entry of a table that is in use.
#[derive(Debug)]
struct Entry {
    addr: usize,
    len: usize,
    nr_users: u32,
    /// Index of the pinned range that the entry is a clone of.
    pin: Option<u32>,
}

/// Returns the entry of a range, if a table has it.
fn find(entries: &[Option<Entry>], addr: usize, len: usize) -> Option<usize> {
    let is_same = |entry: &Entry| (entry.addr, entry.len) == (addr, len);
    entries.iter().position(|entry| entry.as_ref().is_some_and(is_same))
}

/// Returns the index of a free entry.
fn free(entries: &mut Vec<Option<Entry>>) -> io::Result<usize> {
    let free = entries.iter().position(Option::is_none);
    let index = free.unwrap_or(entries.len());
    if index == NR_ENTRIES as usize {
        return Err(io::Error::other("the table of the ring is full"));
    }
    if index == entries.len() {
        entries.push(None);
    }
    Ok(index)
}

/// The ranges that a device has pinned, with the ring whose table has them.
#[derive(Default)]
pub(super) struct Pins(Mutex<PinTable>);

#[derive(Default)]
struct PinTable {
    /// Created for the first range.
    ring: Option<IoUring>,
    entries: Vec<Option<Entry>>,
}

impl Pins {
    /// Pins a range, unless it is. Returns the descriptor of the ring, which lives as long as this,
    /// and the index of the range in its table.
    fn take(&self, addr: usize, len: usize) -> io::Result<(RawFd, u32)> {
        let PinTable { ring, entries } = &mut *lock(&self.0);
        let ring = match ring {
            Some(ring) => ring.as_raw_fd(),
            None => {
                let new = IoUring::new(1)?;
                make_table(new.as_raw_fd())?;
                ring.insert(new).as_raw_fd()
            }
        };
        if let Some(index) = find(entries, addr, len)
            && let Some(entry) = &mut entries[index]
        {
            entry.nr_users += 1;
            return Ok((ring, index as u32));
        }
        let index = free(entries)?;
        set(ring, index as u32, addr, len)?;
        entries[index] = Some(Entry { addr, len, nr_users: 1, pin: None });
        Ok((ring, index as u32))
    }

    /// Ends one use of a range.
    fn give(&self, index: u32) {
        let PinTable { ring, entries } = &mut *lock(&self.0);
        let place = &mut entries[index as usize];
        let entry = place.as_mut().expect("it is in use");
        entry.nr_users -= 1;
        if entry.nr_users > 0 {
            return;
        }
        // An entry that the kernel does not clear is neither found nor used again.
        entry.len = 0;
        if let Some(ring) = ring
            && set(ring.as_raw_fd(), index, 0, 0).is_ok()
        {
            *place = None;
        }
    }
}

/// The memory that callers have registered with the ring of a queue.
pub(crate) struct RingMemory {
    ring: Arc<OwnedFd>,
    pins: Arc<Pins>,
    /// Empty until the first range: then the ring has a table.
    entries: Mutex<Vec<Option<Entry>>>,
    /// Number of changes of the table.
    version: AtomicU64,
    /// Requests that have used the memory. Only the thread that uses the driver writes it.
    nr_requests: AtomicU64,
    origin: Origin,
}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory").field("ring", &self.ring).finish_non_exhaustive()
    }
}

impl RingMemory {
    pub(super) fn new(ring: Arc<OwnedFd>, pins: Arc<Pins>) -> RingMemory {
        RingMemory {
            ring,
            pins,
            entries: Mutex::new(Vec::new()),
            version: AtomicU64::new(0),
            nr_requests: AtomicU64::new(0),
            origin: Origin::here(),
        }
    }

    /// Registers a range until the returned value is dropped. Only the owner of an owned queue may
    /// call this.
    ///
    /// # Errors
    /// Returns the kernel's error, with a hint.
    pub(crate) fn register(
        self: &Arc<RingMemory>,
        addr: usize,
        len: usize,
    ) -> io::Result<Registration> {
        let (memory, indices) = (Arc::clone(self), Vec::new());
        let mut registration = Registration { memory, indices, on_thread: PhantomData };
        let mut done = 0;
        while done < len {
            let now = (len - done).min(MAX_LEN);
            // If this fails, the drop of `registration` ends those of before.
            registration.indices.push(self.take(addr + done, now).map_err(with_hint)?);
            done += now;
        }
        Ok(registration)
    }

    fn take(&self, addr: usize, len: usize) -> io::Result<u16> {
        let mut entries = lock(&self.entries);
        if let Some(index) = find(&entries, addr, len)
            && let Some(entry) = &mut entries[index]
        {
            entry.nr_users += 1;
            return Ok(index as u16);
        }
        let ring = self.ring.as_raw_fd();
        if entries.is_empty() {
            make_table(ring)?;
        }
        let index = free(&mut entries)?;
        // Kernels without the fix "io_uring/rsrc: fix lost entries after cloned range" lose all
        // entries behind a clone.
        let is_last = entries[index..].iter().all(Option::is_none);
        let pin = match is_last {
            true => self.clone_pin(index as u32, addr, len)?,
            false => None,
        };
        if pin.is_none() {
            set(ring, index as u32, addr, len)?;
        }
        entries[index] = Some(Entry { addr, len, nr_users: 1, pin });
        // Release pairs with the acquire in `version`. The ranges are read under the lock.
        self.version.fetch_add(1, Ordering::Release);
        Ok(index as u16)
    }

    /// Makes an entry a clone of a range that the device has pinned. Returns the index of that
    /// range, or `None` if the kernel does not clone single entries.
    fn clone_pin(&self, index: u32, addr: usize, len: usize) -> io::Result<Option<u32>> {
        let (pins, pin) = self.pins.take(addr, len)?;
        let Err(error) = clone((pins, pin), (self.ring.as_raw_fd(), index)) else {
            return Ok(Some(pin));
        };
        self.pins.give(pin);
        match error.raw_os_error() {
            Some(libc::EINVAL) => Ok(None),
            _ => Err(error),
        }
    }

    fn give(&self, index: u16) {
        if self.origin.is_elsewhere() {
            return;
        }
        let mut entries = lock(&self.entries);
        let place = &mut entries[usize::from(index)];
        let entry = place.as_mut().expect("it is in use");
        entry.nr_users -= 1;
        if entry.nr_users > 0 {
            return;
        }
        let pin = entry.pin;
        // The driver does not find the range any more, even if the kernel keeps the entry. Then the
        // entry is not used again.
        entry.len = 0;
        if set(self.ring.as_raw_fd(), index.into(), 0, 0).is_ok() {
            *place = None;
            if let Some(pin) = pin {
                self.pins.give(pin);
            }
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of changes of the table so far.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the ranges, sorted by address, and the version of the table.
    pub(super) fn ranges(&self) -> (u64, Vec<Range>) {
        let entries = lock(&self.entries);
        let used = entries.iter().enumerate().filter_map(|(index, entry)| {
            let entry = entry.as_ref().filter(|entry| entry.len > 0)?;
            Some(Range { addr: entry.addr, len: entry.len, index: index as u16 })
        });
        let mut ranges: Vec<Range> = used.collect();
        ranges.sort_unstable_by_key(|range| range.addr);
        // It changes under the lock only.
        (self.version.load(Ordering::Relaxed), ranges)
    }

    /// Counts a request that uses the memory. Only the thread that uses the driver calls this.
    #[inline]
    pub(super) fn count(&self) {
        // Relaxed: a number for reports.
        let nr = self.nr_requests.load(Ordering::Relaxed);
        self.nr_requests.store(nr + 1, Ordering::Relaxed);
    }

    /// Returns how many requests have used the memory.
    #[inline]
    fn nr_requests(&self) -> u64 {
        self.nr_requests.load(Ordering::Relaxed)
    }
}

/// A range that is registered with a ring until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    memory: Arc<RingMemory>,
    indices: Vec<u16>,
    /// The ring of an owned queue accepts changes by its owner only.
    on_thread: PhantomData<*const ()>,
}

impl Registration {
    /// Returns how many requests have used memory that is registered with the ring, by any
    /// registration.
    pub(crate) fn nr_ring_requests(&self) -> u64 {
        self.memory.nr_requests()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.indices.iter().for_each(|index| self.memory.give(*index));
    }
}

/// Returns whether the kernel has tables that can be changed (Linux 5.19).
pub(super) fn is_supported() -> bool {
    IoUring::new(1).is_ok_and(|ring| make_table(ring.as_raw_fd()).is_ok())
}

/// Adds what to do to an error of a registration.
fn with_hint(error: io::Error) -> io::Error {
    let hint = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => format!(
            "the limit of locked memory is {}: raise it (ulimit -l, or LimitMEMLOCK= of systemd)",
            locked_limit()
        ),
        Some(libc::EFAULT | libc::EOPNOTSUPP | libc::EINVAL) => {
            "the kernel pins only memory of a memfd, tmpfs or hugetlbfs".to_owned()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {hint}"))
}

/// `struct io_uring_rsrc_register`.
#[repr(C)]
struct NewTable {
    nr: u32,
    flags: u32,
    resv2: u64,
    data: u64,
    tags: u64,
}

/// `struct io_uring_rsrc_update2`.
#[repr(C)]
struct Update {
    offset: u32,
    resv: u32,
    data: u64,
    tags: u64,
    nr: u32,
    resv2: u32,
}

/// `struct io_uring_clone_buffers`.
#[repr(C)]
struct Clone {
    src_fd: u32,
    flags: u32,
    src_off: u32,
    dst_off: u32,
    nr: u32,
    pad: [u32; 3],
}

// `enum io_uring_register_op`, and flags, in <linux/io_uring.h>.
pub(super) const REGISTER_BUFFERS2: u8 = 15;
pub(super) const REGISTER_BUFFERS_UPDATE: u8 = 16;
pub(super) const REGISTER_CLONE_BUFFERS: u8 = 30;
const RSRC_REGISTER_SPARSE: u32 = 1;
const REGISTER_DST_REPLACE: u32 = 2;

/// Gives a ring a table without ranges.
fn make_table(ring: RawFd) -> io::Result<()> {
    let flags = RSRC_REGISTER_SPARSE;
    let table = NewTable { nr: NR_ENTRIES, flags, resv2: 0, data: 0, tags: 0 };
    call(ring, REGISTER_BUFFERS2, &table, size_of::<NewTable>())
}

/// Registers a range as an entry of a table, or clears the entry if `addr` and `len` are 0.
fn set(ring: RawFd, index: u32, addr: usize, len: usize) -> io::Result<()> {
    let iov_base = std::ptr::with_exposed_provenance_mut(addr);
    let vector = libc::iovec { iov_base, iov_len: len };
    let data = (&raw const vector).addr() as u64;
    let update = Update { offset: index, resv: 0, data, tags: 0, nr: 1, resv2: 0 };
    call(ring, REGISTER_BUFFERS_UPDATE, &update, size_of::<Update>())
}

/// Makes an entry of the table of the second ring the same as one of the first.
fn clone((from, src_off): (RawFd, u32), (to, dst_off): (RawFd, u32)) -> io::Result<()> {
    let (src_fd, flags) = (from as u32, REGISTER_DST_REPLACE);
    let clone = Clone { src_fd, flags, src_off, dst_off, nr: 1, pad: [0; 3] };
    call(to, REGISTER_CLONE_BUFFERS, &clone, 1)
}

fn call<T>(ring: RawFd, opcode: u8, arg: &T, nr: usize) -> io::Result<()> {
    // SAFETY: the kernel reads the argument, and what it points to, during the call. It pins the
    // pages of a range, so they stay valid whatever becomes of their mapping.
    let answer = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring, u32::from(opcode), &raw const *arg, nr)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
