//! Requests of back ends in C.
//!
//! C gets a request as the key of a slab, so that a second end of the request is detected (J2). Its
//! memory is accessible only through copies, because it may be that of another program.
// Exports functions to C, and copies to and from memory of the caller.
#![allow(unsafe_code)]

use crate::error::{Failure, guard, status_of};
use crate::io::{FOREBAY_IO_FSYNC, FOREBAY_IO_FUA, check_memory};
use crate::slab::{Entry, Key, Miss, Slab};
use forebay::{BlockStatus, Op, Request};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// A request from a disk to its back end. Only one thread at a time may use it.
/// forebay_request_end() ends it.
pub struct forebay_request {
    _private: [u8; 0],
}

/// The requests of all back ends that have not ended.
static REQUESTS: Slab<Request> = Slab::new();

/// Opens a request for C. Ends it if there are too many.
#[inline]
pub(crate) fn open(request: Request) -> Option<*mut forebay_request> {
    match REQUESTS.insert(request) {
        Ok(key) => Some(ptr::without_provenance_mut(key.bits())),
        Err(request) => {
            request.complete(Err(BlockStatus::Resource));
            None
        }
    }
}

/// Returns the request of a handle.
#[inline]
fn get(request: *mut forebay_request) -> Result<Entry<'static, Request>, Failure> {
    let key = Key::from_bits(request.addr()).ok_or(Miss::Unknown);
    key.and_then(|key| REQUESTS.get(key)).map_err(|miss| refuse(miss, request.is_null()))
}

#[cold]
fn refuse(miss: Miss, is_null: bool) -> Failure {
    match miss {
        Miss::Unknown if is_null => Failure::of(libc::EINVAL, c"the request is NULL"),
        Miss::Unknown => {
            Failure::of(libc::EINVAL, c"expected a request, but the pointer is not a request")
        }
        Miss::Taken => Failure::of(libc::EBADF, c"the request has ended already; end each once"),
        Miss::InUse => Failure::of(libc::EBUSY, c"the request is in use by another call"),
    }
}

/// Runs a call on a request.
#[inline]
fn on_request<T: From<c_int>>(
    request: *mut forebay_request,
    call: impl FnOnce(&mut Request) -> Result<T, Failure>,
) -> T {
    guard(|| call(get(request)?.value()))
}

/// Returns the operation of a request, one of enum forebay_op, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_op(request: *mut forebay_request) -> c_int {
    on_request(request, |request| Ok(crate::io::number_of(request.op())))
}

/// Returns the first byte of a request on the disk, or a negative errno; 0 for a flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_offset(request: *mut forebay_request) -> i64 {
    on_request(request, |request| Ok(request.offset() as i64))
}

/// Returns the number of bytes of a request on the disk, or a negative errno; 0 for a flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_len(request: *mut forebay_request) -> i64 {
    on_request(request, |request| Ok(request.len() as i64))
}

/// Returns the flags of a request, or a negative errno: FOREBAY_IO_FUA for a write that must be
/// durable when it ends, FOREBAY_IO_FSYNC for a flush that must make all metadata durable too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_flags(request: *mut forebay_request) -> c_int {
    on_request(request, |request| {
        let fua = if request.is_fua() { FOREBAY_IO_FUA } else { 0 };
        let fsync = if request.is_full_sync() { FOREBAY_IO_FSYNC } else { 0 };
        Ok((fua | fsync) as c_int)
    })
}

/// Copies len bytes of a write to buf, starting at byte `at` of the request. buf must not overlap
/// the memory of the request.
///
/// Returns 0, or a negative errno: -EINVAL if the request is not a write or has too few bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_copy_to(
    request: *mut forebay_request,
    at: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    let copy = |request: &mut Request| {
        check_copy(request, Op::Write, at, buf, len)?;
        if len > 0 {
            let buf = buf.cast::<MaybeUninit<u8>>();
            // SAFETY: the caller passes memory of its own with this length.
            request.copy_to_uninit(at, unsafe { slice::from_raw_parts_mut(buf, len) });
        }
        Ok(0)
    };
    on_request(request, copy)
}

/// Copies len bytes of buf to the memory of a read, starting at byte `at` of the request. buf must
/// not overlap that memory.
///
/// Returns 0, or a negative errno: -EINVAL if the request is not a read or has too few bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_copy_from(
    request: *mut forebay_request,
    at: u64,
    buf: *const c_void,
    len: usize,
) -> c_int {
    let copy = |request: &mut Request| {
        check_copy(request, Op::Read, at, buf, len)?;
        if len > 0 {
            // SAFETY: the caller passes memory of its own with this length.
            request.copy_from(at, unsafe { slice::from_raw_parts(buf.cast::<u8>(), len) });
        }
        Ok(0)
    };
    on_request(request, copy)
}

fn check_copy(
    request: &Request,
    op: Op,
    at: u64,
    buf: *const c_void,
    len: usize,
) -> Result<(), Failure> {
    if request.op() != op {
        let text = format!("a {} has no memory for this copy", request.op().name());
        return Err(Failure::invalid(text));
    }
    if at.checked_add(len as u64).is_none_or(|end| end > request.len()) {
        return Err(Failure::invalid(format!(
            "{len} bytes from byte {at} on are more than the {} bytes of the request",
            request.len()
        )));
    }
    match len {
        0 => Ok(()),
        _ => check_memory(buf, len as u64),
    }
}

/// Ends a request, and closes its handle. result is the number of bytes that a read or write has
/// moved, 0 for another operation that has succeeded, or a negative errno. If it is less than the
/// length, the layer continues with the rest; a read of 0 bytes marks the end of the disk. Only
/// whole logical blocks of a read count. A write that ends inside a block fails.
///
/// Returns 0, or a negative errno: -EBADF if the request has already ended, -EINVAL if the result
/// does not fit the request. After -EINVAL the request has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_end(request: *mut forebay_request, result: i64) -> c_int {
    guard(|| {
        let mut entry = get(request)?;
        let own = entry.value();
        let max = if own.op().moves_data() { own.len() } else { 0 };
        if u64::try_from(result).is_ok_and(|moved| moved > max) {
            let text = format!("a {} cannot move {result} bytes of {max}", own.op().name());
            return Err(Failure::invalid(text));
        }
        let own = entry.take();
        match u64::try_from(result) {
            Err(_) => own.complete(Err(status_of(result))),
            Ok(moved) if moved < max => own.complete_short(moved),
            Ok(_) => own.complete(Ok(())),
        }
        Ok(0)
    })
}
