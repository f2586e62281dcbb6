//! Memory of an in-flight region, and its fields.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use vm_memory::{AtomicInteger, FileOffset, MmapRegion, VolatileMemory};

/// Length of a record's header, and of each entry, bytes.
const HEAD: usize = 16;
const ENTRY: usize = 16;
/// Records begin at multiples of this many bytes: a cache line, so that threads share none.
const ALIGN: usize = 64;
const VERSION: u16 = 1;

const AT_VERSION: usize = 8;
const AT_SIZE: usize = 10;
const AT_LAST_BATCH_HEAD: usize = 12;
const AT_USED_IDX: usize = 14;
const OF_NEXT: usize = 6;
const OF_COUNTER: usize = 8;

/// Shape of an in-flight region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightShape {
    /// Number of queues.
    pub nr_queues: u16,
    /// Number of descriptors of each queue.
    pub queue_size: u16,
}

impl InflightShape {
    /// Returns the length of a queue's record, bytes.
    fn stride(self) -> usize {
        (HEAD + ENTRY * usize::from(self.queue_size)).next_multiple_of(ALIGN)
    }

    /// Returns the length of the region, bytes.
    pub fn len_bytes(self) -> u64 {
        (self.stride() * usize::from(self.nr_queues)) as u64
    }
}

/// An in-flight region, mapped into this process. A clone shares it.
#[derive(Clone, Debug)]
pub struct InflightMemory {
    region: Arc<MmapRegion>,
    shape: InflightShape,
}

impl InflightMemory {
    /// Creates a region of zeroes. Returns its file as well, for the front end: the region begins
    /// at offset 0 of it.
    ///
    /// # Errors
    /// Returns the error of the system call, for example if memory is short.
    pub fn create(shape: InflightShape) -> io::Result<(InflightMemory, File)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("forebay in flight", flags)?);
        file.set_len(shape.len_bytes())?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = InflightMemory::map(file.try_clone()?, 0, shape)?;
        Ok((memory, file))
    }

    /// Maps a region that the front end has passed in.
    ///
    /// # Errors
    /// Returns an error if the file is too short for the shape, or may become so: a region must be
    /// sealed against shrinking, as those of [`create`](InflightMemory::create) are. Otherwise an
    /// access could raise SIGBUS.
    pub fn open(
        file: File,
        offset: u64,
        len: u64,
        shape: InflightShape,
    ) -> io::Result<InflightMemory> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let needed = shape.len_bytes();
        if len < needed {
            let InflightShape { nr_queues, queue_size } = shape;
            return Err(invalid(format!(
                "an in-flight region of {len} bytes is too short: {nr_queues} queues of \
                 {queue_size} descriptors need {needed}"
            )));
        }
        let end = offset.checked_add(needed);
        let has_seal = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !has_seal {
            let why = "the file of the in-flight region is not sealed against shrinking";
            return Err(invalid(why.to_owned()));
        }
        if end.is_none_or(|end| file.metadata().is_ok_and(|facts| facts.len() < end)) {
            return Err(invalid(format!(
                "the file of the in-flight region ends before byte {offset} + {needed}"
            )));
        }
        InflightMemory::map(file, offset, shape)
    }

    fn map(file: File, offset: u64, shape: InflightShape) -> io::Result<InflightMemory> {
        let file = FileOffset::new(file, offset);
        let region = MmapRegion::from_file(file, shape.len_bytes() as usize);
        let region = region.map_err(io::Error::other)?;
        Ok(InflightMemory { region: Arc::new(region), shape })
    }

    /// Returns the shape.
    pub fn shape(&self) -> InflightShape {
        self.shape
    }

    /// Records whether the driver has switched its write cache off, for a successor.
    pub(crate) fn set_write_through(&self, is_write_through: bool) {
        if let Some(cell) = self.write_through() {
            // Release: as for the records.
            cell.store(is_write_through.into(), Ordering::Release);
        }
    }

    /// Returns whether the driver has switched its write cache off.
    pub(crate) fn is_write_through(&self) -> bool {
        self.write_through().is_some_and(|cell| cell.load(Ordering::Acquire) != 0)
    }

    /// Returns the byte behind the entries of the first record. `None`: the record fills its lines,
    /// which those of rings, with a power of two of descriptors, do not.
    fn write_through(&self) -> Option<&AtomicU8> {
        let at = HEAD + ENTRY * usize::from(self.shape.queue_size);
        let has_room = at < self.shape.stride();
        has_room.then(|| self.region.get_atomic_ref(at).expect("it is within the region"))
    }

    /// Returns the record of a queue, or `None` if there is no such queue.
    pub(super) fn record(&self, queue: u16) -> Option<Record> {
        let InflightShape { nr_queues, queue_size } = self.shape;
        let start = usize::from(queue) * self.shape.stride();
        let region = Arc::clone(&self.region);
        (queue < nr_queues).then_some(Record { region, start, size: queue_size })
    }
}

/// A queue's record. All accesses are atomic, because the front end shares the memory. Stores
/// release: a successor finds them in program order.
pub(super) struct Record {
    region: Arc<MmapRegion>,
    start: usize,
    size: u16,
}

impl Record {
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Returns whether the record was never used: its region is new.
    pub(super) fn is_new(&self) -> bool {
        self.load::<AtomicU16>(AT_VERSION) == 0
    }

    /// Makes a new record valid.
    pub(super) fn init(&self, used_idx: u16) {
        self.store::<AtomicU16>(AT_SIZE, self.size);
        self.store::<AtomicU16>(AT_USED_IDX, used_idx);
        self.store::<AtomicU16>(AT_VERSION, VERSION);
    }

    /// Returns the version and the number of descriptors.
    pub(super) fn format(&self) -> (u16, u16) {
        (self.load::<AtomicU16>(AT_VERSION), self.load::<AtomicU16>(AT_SIZE))
    }

    pub(super) fn is_supported(version: u16) -> bool {
        version == VERSION
    }

    #[inline]
    pub(super) fn last_batch_head(&self) -> u16 {
        self.load::<AtomicU16>(AT_LAST_BATCH_HEAD)
    }

    #[inline]
    pub(super) fn set_last_batch_head(&self, head: u16) {
        self.store::<AtomicU16>(AT_LAST_BATCH_HEAD, head);
    }

    #[inline]
    pub(super) fn used_idx(&self) -> u16 {
        self.load::<AtomicU16>(AT_USED_IDX)
    }

    #[inline]
    pub(super) fn set_used_idx(&self, idx: u16) {
        self.store::<AtomicU16>(AT_USED_IDX, idx);
    }

    #[inline]
    pub(super) fn is_in_flight(&self, head: u16) -> bool {
        self.load::<AtomicU8>(self.entry(head)) != 0
    }

    #[inline]
    pub(super) fn set_in_flight(&self, head: u16, is_in_flight: bool) {
        self.store::<AtomicU8>(self.entry(head), u8::from(is_in_flight));
    }

    #[inline]
    pub(super) fn next(&self, head: u16) -> u16 {
        self.load::<AtomicU16>(self.entry(head) + OF_NEXT)
    }

    #[inline]
    pub(super) fn set_next(&self, head: u16, next: u16) {
        self.store::<AtomicU16>(self.entry(head) + OF_NEXT, next);
    }

    #[inline]
    pub(super) fn counter(&self, head: u16) -> u64 {
        self.load::<AtomicU64>(self.entry(head) + OF_COUNTER)
    }

    #[inline]
    pub(super) fn set_counter(&self, head: u16, counter: u64) {
        self.store::<AtomicU64>(self.entry(head) + OF_COUNTER, counter);
    }

    /// Returns the offset of a descriptor's entry in the record.
    ///
    /// # Panics
    /// Panics if there is no such descriptor: the caller has checked it.
    #[inline]
    fn entry(&self, head: u16) -> usize {
        assert!(head < self.size, "descriptor {head} of {}", self.size);
        HEAD + ENTRY * usize::from(head)
    }

    #[inline]
    fn load<A: AtomicInteger>(&self, at: usize) -> A::V {
        self.cell::<A>(at).load(Ordering::Acquire)
    }

    #[inline]
    fn store<A: AtomicInteger>(&self, at: usize, value: A::V) {
        self.cell::<A>(at).store(value, Ordering::Release);
        #[cfg(test)]
        super::tests::stored(self);
    }

    /// Returns a field of the record.
    #[inline]
    fn cell<A: AtomicInteger>(&self, at: usize) -> &A {
        let cell = self.region.get_atomic_ref(self.start + at);
        cell.expect("records are aligned, and within the region")
    }

    /// Returns a copy of the record's bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD + ENTRY * usize::from(self.size)];
        let slice = self.region.get_slice(self.start, bytes.len()).expect("it is within");
        slice.copy_to(&mut bytes);
        bytes
    }

    /// Replaces the record's bytes.
    #[cfg(test)]
    pub(super) fn set_bytes(&self, bytes: &[u8]) {
        self.region.get_slice(self.start, bytes.len()).expect("it is within").copy_from(bytes);
    }
}
