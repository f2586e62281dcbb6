//! Blocking calls over several slices or segments, without an allocation for each call.
// Blocking calls pass the addresses of borrowed memory to drivers.
#![allow(unsafe_code)]

use super::Disk;
use crate::error::IoError;
use crate::segment_list::{list, run_with_list};
use forebay_core::{Bio, BioFlags, Op, Segment};
use std::io::{IoSlice, IoSliceMut};

/// Calls over several pieces of memory.
impl Disk {
    /// Reads at byte `offset` into several slices, one after the other, and waits until they are
    /// filled. It is one I/O: it merges, fails and counts as a whole. Returns the number of bytes
    /// read, which is less than the sum of the lengths only at the end of a file.
    ///
    /// Any thread may call it at any time. After its first call, a thread allocates nothing for up
    /// to 1024 slices. With `direct=on` each slice must have the device's alignment.
    ///
    /// # Errors
    /// Same as [`read_at`](Disk::read_at).
    ///
    /// ```
    /// use std::io::IoSliceMut;
    ///
    /// let disk = forebay::Disk::open("ram:1M")?;
    /// let (mut header, mut body) = ([0; 512], [0; 3584]);
    /// let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut body)];
    /// assert_eq!(disk.read_vectored_at(&mut parts, 8192)?, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<usize, IoError> {
        let parts = bufs.iter_mut().map(|buf| (buf.as_mut_ptr().expose_provenance(), buf.len()));
        let (segments, len) = list(parts);
        let bio = Bio { segments, ..Bio::range(Op::Read, offset, len) };
        // SAFETY: the memory is that of the slices, borrowed mutably until this returns.
        unsafe { self.run_with_list(bio) }.map(|len| len as usize)
    }

    /// Writes several slices, one after the other, at byte `offset`, and waits until they are
    /// written. It is one I/O, as [`read_vectored_at`](Disk::read_vectored_at) documents. Returns
    /// the number of bytes written.
    ///
    /// # Errors
    /// Same as [`write_at`](Disk::write_at).
    ///
    /// ```
    /// use std::io::IoSlice;
    ///
    /// let disk = forebay::Disk::open("ram:1M")?;
    /// let parts = [IoSlice::new(&[1; 512]), IoSlice::new(&[2; 3584])];
    /// assert_eq!(disk.write_vectored_at(&parts, 8192)?, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize, IoError> {
        let parts = bufs.iter().map(|buf| (buf.as_ptr().expose_provenance(), buf.len()));
        let (segments, len) = list(parts);
        let bio = Bio { segments, ..Bio::range(Op::Write, offset, len) };
        // SAFETY: the memory is that of the slices, borrowed until this returns.
        unsafe { self.run_with_list(bio) }.map(|len| len as usize)
    }

    /// Submits a bio with these segments, and waits until it has ended. Returns the number of bytes
    /// moved. Same as [`run_raw`](Disk::run_raw), but it borrows the list. After its first call, a
    /// thread allocates nothing for up to 1024 segments. [`read_guest_at`](Disk::read_guest_at) and
    /// [`write_guest_at`](Disk::write_guest_at) are its safe forms.
    ///
    /// # Errors
    /// Fails if the bio is refused, or if it ends with a failure.
    ///
    /// # Panics
    /// Panics if `bio` has segments of its own.
    ///
    /// # Safety
    /// Same as [`run_raw`](Disk::run_raw). Memory that another program may change at any time, such
    /// as a guest's, must be mapped until this returns, and no reference to it may exist. The
    /// device then moves whatever bytes are there.
    ///
    /// ```
    /// use forebay::{Bio, Disk, IoError, Op, Segment};
    ///
    /// /// Serves a guest's read of `len` bytes at `offset` into parts of the guest's memory.
    /// fn read(disk: &Disk, offset: u64, parts: &[(*mut u8, u32)]) -> Result<u64, IoError> {
    ///     let mut segments = [Segment { addr: 0, len: 0 }; 128]; // the device's `seg_max`
    ///     for (segment, (addr, len)) in segments.iter_mut().zip(parts) {
    ///         *segment = Segment { addr: addr.expose_provenance(), len: *len };
    ///     }
    ///     let segments = &segments[..parts.len()];
    ///     let len = segments.iter().map(|segment| u64::from(segment.len)).sum();
    ///     // SAFETY: the guest's memory stays mapped, and nothing has a reference to it.
    ///     unsafe { disk.run_raw_vectored(Bio::range(Op::Read, offset, len), segments) }
    /// }
    /// # let (disk, mut memory) = (Disk::open("ram:1M")?, vec![1_u8; 8192]);
    /// # let at = memory.as_mut_ptr();
    /// # // SAFETY: within the vector.
    /// # assert_eq!(read(&disk, 0, &[(at, 512), (unsafe { at.add(4096) }, 1024)])?, 1536);
    /// # assert!(memory[..512] == [0; 512] && memory[512..4096] == [1; 3584]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn run_raw_vectored(&self, bio: Bio, segments: &[Segment]) -> Result<u64, IoError> {
        assert!(bio.segments.as_slice().is_empty(), "the bio has segments of its own");
        let (segments, _) = list(segments.iter().map(|part| (part.addr, part.len as usize)));
        // The caller may use its memory again when the bio ends, so it must not end early (H2).
        let bio = Bio { segments, flags: bio.flags.without(BioFlags::OWNED), ..bio };
        // SAFETY: the caller keeps the conditions.
        unsafe { self.run_with_list(bio) }
    }

    /// Runs a bio as [`run`](Disk::run) does, and keeps its list for the next call of the thread.
    ///
    /// # Safety
    /// Same as [`run`](Disk::run).
    pub(super) unsafe fn run_with_list(&self, bio: Bio) -> Result<u64, IoError> {
        // SAFETY: the caller's obligations are passed on.
        unsafe { run_with_list(&self.shared, bio) }
    }
}
