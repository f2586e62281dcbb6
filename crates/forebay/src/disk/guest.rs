//! Blocking calls on memory that another program may change at any time, such as a guest's.
//!
//! The only unsafe step is [`GuestSlice::new`], once for each mapping. Its parts and the calls on
//! them are safe. Counterpart in rust-vmm: `vm_memory::VolatileSlice`.
// The constructor is unsafe, because it makes a promise about an address.
#![allow(unsafe_code)]

use super::Disk;
use crate::error::IoError;
use crate::segment_list::list;
use forebay_core::{Bio, Op};
use std::fmt;
use std::marker::PhantomData;

/// A range of memory that other programs or devices may read and write at any time: the memory of
/// a guest, a front end or a shared mapping. No Rust reference can refer to such memory, so this is
/// an address and a length, which stay valid for `'m`.
///
/// It is two words, and freely copied. The program itself cannot access the bytes through it: it
/// passes them to [`Disk::read_guest_at`] and [`Disk::write_guest_at`].
///
/// ```
/// use forebay::{Disk, GuestSlice, IoError};
///
/// /// Serves a guest's read at `offset` into parts of its memory: offsets and lengths in bytes.
/// fn serve(
///     disk: &Disk,
///     memory: GuestSlice<'_>,
///     offset: u64,
///     parts: &[(usize, usize)],
/// ) -> Result<usize, IoError> {
///     let parts = parts.iter().map(|&(at, len)| memory.part(at, len).expect("within the memory"));
///     disk.read_guest_at(parts, offset)
/// }
///
/// # let disk = Disk::open("ram:1M")?;
/// let mut mapping = vec![1_u8; 8192]; // stands for a mapping of the guest's memory
/// let (address, len) = (mapping.as_mut_ptr(), mapping.len());
/// // SAFETY: the mapping stays until the last use of `memory`, and nothing refers to it.
/// let memory = unsafe { GuestSlice::new(address, len) };
/// assert_eq!(serve(&disk, memory, 0, &[(0, 512), (4096, 1024)])?, 1536);
/// assert!(mapping[..512] == [0; 512] && mapping[512..4096] == [1; 3584]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct GuestSlice<'m> {
    address: usize,
    len: usize,
    memory: PhantomData<&'m ()>,
}

impl<'m> GuestSlice<'m> {
    /// Returns the range of `len` bytes from `address` on, and exposes the provenance of the
    /// address.
    ///
    /// # Safety
    /// For all of `'m`:
    ///
    /// - The range is one allocation or mapping, valid for reads and writes.
    /// - This process has no reference to a part of it while a call uses that part, and accesses it
    ///   meanwhile at most as it may access memory that another program changes. Such a program,
    ///   and a guest's processor, may access it at any time.
    ///
    /// Two calls on overlapping parts at the same time are allowed. The device then moves the
    /// bytes that are there.
    pub unsafe fn new(address: *mut u8, len: usize) -> Self {
        GuestSlice { address: address.expose_provenance(), len, memory: PhantomData }
    }

    /// Returns the `len` bytes from byte `at` on, or `None` if they are not within this range.
    #[must_use]
    pub fn part(self, at: usize, len: usize) -> Option<Self> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        is_within.then(|| GuestSlice { address: self.address + at, len, ..self })
    }

    /// Returns the length in bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether the range has no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for GuestSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestSlice({:#x}, {} bytes)", self.address, self.len)
    }
}

/// Calls on memory that another program may change.
impl Disk {
    /// Reads at byte `offset` into parts of a guest's memory, one after the other, and waits until
    /// they are filled. It is one I/O: it merges, fails and counts as a whole. Returns the number
    /// of bytes read, which is less than the sum of the lengths only at the end of a file.
    ///
    /// Any thread may call it at any time. After its first call, a thread allocates nothing for up
    /// to 1024 parts. With `direct=on` each part must have the device's alignment.
    ///
    /// # Errors
    /// Same as [`read_at`](Disk::read_at).
    pub fn read_guest_at<'m>(
        &self,
        parts: impl IntoIterator<Item = GuestSlice<'m>>,
        offset: u64,
    ) -> Result<usize, IoError> {
        self.run_guest(Op::Read, parts, offset)
    }

    /// Writes parts of a guest's memory, one after the other, at byte `offset`, and waits until
    /// they are written. It is one I/O, as [`read_guest_at`](Disk::read_guest_at) documents.
    /// Returns the number of bytes written. If the guest changes a byte meanwhile, either value is
    /// written, and a retry may write the other one.
    ///
    /// # Errors
    /// Same as [`write_at`](Disk::write_at).
    ///
    /// ```
    /// use forebay::{Disk, GuestSlice};
    ///
    /// let disk = Disk::open("ram:1M")?;
    /// let mut mapping = [7_u8; 4096];
    /// // SAFETY: the mapping stays until the last use of `memory`, and nothing refers to it.
    /// let memory = unsafe { GuestSlice::new(mapping.as_mut_ptr(), 4096) };
    /// assert_eq!(disk.write_guest_at([memory], 8192)?, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_guest_at<'m>(
        &self,
        parts: impl IntoIterator<Item = GuestSlice<'m>>,
        offset: u64,
    ) -> Result<usize, IoError> {
        self.run_guest(Op::Write, parts, offset)
    }

    fn run_guest<'m>(
        &self,
        op: Op,
        parts: impl IntoIterator<Item = GuestSlice<'m>>,
        offset: u64,
    ) -> Result<usize, IoError> {
        let (segments, len) = list(parts.into_iter().map(|part| (part.address, part.len)));
        let bio = Bio { segments, ..Bio::range(op, offset, len) };
        // SAFETY: the ranges are mapped for `'m`, which this call does not outlive, because the bio
        // is not `OWNED` and so does not end before the driver is done with it. The caller of
        // `GuestSlice::new` promises that no reference exists.
        unsafe { self.run_with_list(bio) }.map(|len| len as usize)
    }
}
