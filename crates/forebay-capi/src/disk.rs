//! Blocking calls, and the size of a disk.
// Exports functions to C, and passes the addresses of the caller's memory to drivers.
#![allow(unsafe_code)]

use crate::args::place_of;
use crate::error::{Done, Failure, guard};
use crate::handle::{self, Kind, Mark};
use crate::io::{iovecs_of, memory_of, push_memory};
use forebay::{Bio, BioFlags, Disk, IoError, LateRequest, Op, Segments, SubmitErrorKind};
use libc::iovec;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::process;
use std::sync::Mutex;

/// An open disk. Any number of threads may use it at once.
pub struct forebay_disk {
    _private: [u8; 0],
}

/// The value of a `forebay_disk`.
pub(crate) struct OpenDisk {
    pub(crate) disk: Disk,
    /// Late requests that were taken from the disk, but not returned to the caller yet.
    pub(crate) late: Mutex<VecDeque<LateRequest>>,
    /// The process that opened the disk.
    process: u32,
}

impl OpenDisk {
    pub(crate) fn new(disk: Disk) -> OpenDisk {
        OpenDisk { disk, late: Mutex::default(), process: process::id() }
    }

    /// Fails in a child of a fork, for calls that the library does not refuse there.
    pub(crate) fn check_not_forked(&self) -> Result<(), Failure> {
        match process::id() == self.process {
            true => Ok(()),
            false => Err(Failure::from(IoError::from(SubmitErrorKind::Forked))),
        }
    }
}

impl Kind for OpenDisk {
    const MARK: Mark = handle::DISK;
    type Pointee = forebay_disk;
}

/// Runs a blocking call on a disk.
///
/// # Safety
/// As for [`handle::get`].
unsafe fn on_disk<T: From<c_int>>(
    disk: *mut forebay_disk,
    call: impl FnOnce(&Disk) -> Result<T, Failure>,
) -> T {
    guard(|| {
        // SAFETY: the caller keeps the conditions.
        call(&unsafe { handle::get::<OpenDisk>(disk) }?.disk)
    })
}

/// Moves data, and returns the number of bytes.
///
/// # Safety
/// The segments are memory of the caller of C, who leaves it alone until this returns.
unsafe fn transfer(
    disk: &Disk,
    op: Op,
    flags: BioFlags,
    segments: Segments,
    offset: u64,
) -> Result<i64, Failure> {
    let bio = Bio { flags, ..Bio::range(op, offset, segments.len_bytes()) };
    // SAFETY: the caller keeps the conditions.
    let moved = unsafe { disk.run_raw(Bio { segments, ..bio }) }?;
    Ok(i64::try_from(moved).unwrap_or(i64::MAX))
}

fn done(result: Result<(), IoError>) -> Done {
    result.map(|()| 0).map_err(Failure::from)
}

/// Reads len bytes at offset into buf, and waits until they are read.
///
/// Returns the number of bytes, less than len only at the end of a file, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_read(
    disk: *mut forebay_disk,
    buf: *mut c_void,
    len: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller passes a handle, and memory of this length.
    unsafe {
        on_disk(disk, |disk| {
            transfer(disk, Op::Read, BioFlags::NONE, memory_of(buf, len as u64)?, offset)
        })
    }
}

/// Writes len bytes of buf at offset, and waits until they are written. They are durable after the
/// next forebay_flush() that succeeds.
///
/// Returns the number of bytes, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_write(
    disk: *mut forebay_disk,
    buf: *const c_void,
    len: usize,
    offset: u64,
) -> i64 {
    // SAFETY: as in `forebay_read`.
    unsafe {
        on_disk(disk, |disk| {
            transfer(disk, Op::Write, BioFlags::NONE, memory_of(buf, len as u64)?, offset)
        })
    }
}

/// Writes as forebay_write() does, and waits until the data is durable.
///
/// Returns the number of bytes, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_write_durable(
    disk: *mut forebay_disk,
    buf: *const c_void,
    len: usize,
    offset: u64,
) -> i64 {
    // SAFETY: as in `forebay_read`.
    unsafe {
        on_disk(disk, |disk| {
            transfer(disk, Op::Write, BioFlags::FUA, memory_of(buf, len as u64)?, offset)
        })
    }
}

/// Reads at offset into iovcnt buffers, and waits until they are read. At most 1024 buffers.
///
/// Returns the number of bytes, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_readv(
    disk: *mut forebay_disk,
    iov: *const iovec,
    iovcnt: u32,
    offset: u64,
) -> i64 {
    // SAFETY: as in `forebay_read`, for each buffer.
    unsafe {
        on_disk(disk, |disk| {
            transfer(disk, Op::Read, BioFlags::NONE, gathered(iov, iovcnt)?, offset)
        })
    }
}

/// Writes iovcnt buffers at offset, one after another, and waits until they are written. At most
/// 1024 buffers.
///
/// Returns the number of bytes, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writev(
    disk: *mut forebay_disk,
    iov: *const iovec,
    iovcnt: u32,
    offset: u64,
) -> i64 {
    // SAFETY: as in `forebay_read`, for each buffer.
    unsafe {
        on_disk(disk, |disk| {
            transfer(disk, Op::Write, BioFlags::NONE, gathered(iov, iovcnt)?, offset)
        })
    }
}

/// Returns the memory of several buffers.
///
/// # Safety
/// As for [`iovecs_of`].
unsafe fn gathered(iov: *const iovec, nr: u32) -> Result<Segments, Failure> {
    let mut list = Vec::new();
    // SAFETY: the caller keeps the conditions.
    for part in unsafe { iovecs_of(iov, nr) }? {
        push_memory(&mut list, part.iov_base, part.iov_len as u64)?;
    }
    Ok(match list.is_empty() {
        true => Segments::None,
        false => Segments::Many(list),
    })
}

/// Makes every write that ended before this call durable, and waits until it is. After a failure,
/// writes since the last successful flush may be lost: see forebay_acknowledge_loss().
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_flush(disk: *mut forebay_disk) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_disk(disk, |disk| done(disk.flush())) }
}

/// Does the same as forebay_flush(), and makes all metadata of the file durable too.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_fsync(disk: *mut forebay_disk) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_disk(disk, |disk| done(disk.fsync())) }
}

/// Discards len bytes at offset: the device may free their space. The contents of the range
/// afterwards depend on the device.
///
/// Returns 0, or a negative errno: -EOPNOTSUPP if the device cannot discard.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_discard(disk: *mut forebay_disk, offset: u64, len: u64) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_disk(disk, |disk| done(disk.discard(offset, len))) }
}

/// Makes len bytes at offset read as zeroes, and waits until they do.
///
/// Returns 0, or a negative errno: -EOPNOTSUPP if the device cannot do it without data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_write_zeroes(
    disk: *mut forebay_disk,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_disk(disk, |disk| done(disk.write_zeroes(offset, len))) }
}

/// Stores the size of the disk in *bytes: UINT64_MAX for a file that grows (capacity=growing).
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_capacity(disk: *mut forebay_disk, bytes: *mut u64) -> c_int {
    // SAFETY: the caller passes a handle, and the place of a number.
    unsafe {
        on_disk(disk, |disk| {
            place_of(bytes)?.write(disk.capacity_bytes().unwrap_or(u64::MAX));
            Ok(0)
        })
    }
}

/// Reads the size of the file or block device again. If it has grown, the disk accepts I/O up to
/// the new size, and all threads may use it when this returns. A disk never shrinks.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_grow(disk: *mut forebay_disk) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe {
        on_disk(disk, |disk| {
            if let Some(size) = disk.reread_size()? {
                disk.grow(size)?;
            }
            Ok(0)
        })
    }
}

/// Lets I/O reach the device again after it was gone. Call it when the device is back. Until then
/// all I/O fails with -ENODEV.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_revive(disk: *mut forebay_disk) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe {
        on_disk(disk, |disk| {
            disk.revive();
            Ok(0)
        })
    }
}
