//! Back ends in C: a device of the caller's own, as a table of functions.
//!
//! A request reaches C as a handle, so that a second end of it is found (J2). The memory of a
//! request is accessible through copies only: it may be that of another program.
// Calls functions of the caller, and exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard, status_of};
use crate::handle::{self, Kind, Mark};
use forebay::{Backend, Batch, Disk, Op, Policy, QueueLimits, Request};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A request of a disk to its back end. One thread at a time may use it. It ends with
/// forebay_request_end().
pub struct forebay_request {
    _private: [u8; 0],
}

/// Begins nr requests, in any order. Each has to be ended once, by forebay_request_end(), during
/// the call or later, on any thread.
pub type forebay_submit_fn = Option<
    unsafe extern "C" fn(context: *mut c_void, requests: *mut *mut forebay_request, nr: u32),
>;

/// Called once, when the disk is closed and no request is left.
pub type forebay_close_fn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// A device of the caller's own. Set all fields; those without a use are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_backend {
    /// sizeof(struct forebay_backend). Later versions may append fields.
    pub size: u32,
    /// The unit of offsets and lengths, a power of two from 1 to 4096; 0 for 512.
    pub logical_block_size: u32,
    /// The size of the disk in bytes, at most INT64_MAX.
    pub capacity: u64,
    /// The name of the back end, for reports. It is copied.
    pub name: *const c_char,
    /// Passed to the functions.
    pub context: *mut c_void,
    /// Must be set. Any thread that uses the disk may call it. It must not wait for I/O of its own
    /// disk, nor close it. The array is valid during the call.
    pub submit: forebay_submit_fn,
    /// May be NULL. Not called if the disk could not be opened.
    pub close: forebay_close_fn,
    /// The largest discard in bytes, at least one block and 512; 0 if there is none.
    pub max_discard: u64,
    /// The largest write of zeroes in bytes, at least one block and 512; 0 if there is none.
    pub max_write_zeroes: u64,
    /// 1 if writes may be lost before the next flush, 0 if every write is durable when it ends.
    pub volatile_cache: u32,
    /// 1 if the disk is read-only.
    pub read_only: u32,
}

/// A back end of the caller.
struct Table {
    name: String,
    context: *mut c_void,
    submit: unsafe extern "C" fn(*mut c_void, *mut *mut forebay_request, u32),
    close: forebay_close_fn,
    /// False until the disk is open: a failure to open it leaves the context to the caller.
    is_open: Arc<AtomicBool>,
}

// SAFETY: the caller of `forebay_backend_open` promises that any thread may call the functions with
// the context.
unsafe impl Send for Table {}
// SAFETY: the same.
unsafe impl Sync for Table {}

impl Backend for Table {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        let open = |request| handle::open(OpenRequest(Mutex::new(Some(request))));
        let mut requests: Vec<*mut forebay_request> = batch.map(open).collect();
        let nr = u32::try_from(requests.len()).expect("a batch is no longer than the queue");
        // SAFETY: the caller of `forebay_backend_open` has promised it.
        unsafe { (self.submit)(self.context, requests.as_mut_ptr(), nr) };
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(close) = self.close
            && self.is_open.load(Ordering::Relaxed)
        {
            // SAFETY: the caller of `forebay_backend_open` has promised it.
            unsafe { close(self.context) };
        }
    }
}

/// The value of a `forebay_request`. `None` while it ends.
pub(crate) struct OpenRequest(Mutex<Option<Request>>);

impl Kind for OpenRequest {
    const MARK: Mark = handle::REQUEST;
    type Pointee = forebay_request;
}

/// Opens a disk on a back end of the caller: a device of its own. Stores a handle in *disk.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_backend_open(
    backend: *const forebay_backend,
    disk: *mut *mut forebay_disk,
) -> c_int {
    guard(|| {
        let opened = place_of(disk)?;
        if backend.is_null() || !backend.is_aligned() {
            return Err(Failure::invalid("the back end is NULL or misaligned"));
        }
        // SAFETY: the field is there in every version.
        let size = unsafe { (*backend).size } as usize;
        if size != size_of::<forebay_backend>() {
            return Err(Failure::invalid(format!(
                "the field `size` of the back end is {size}; set it to sizeof(struct \
                 forebay_backend), which is {} in this version",
                size_of::<forebay_backend>()
            )));
        }
        // SAFETY: the structure has this size.
        let table = unsafe { backend.read() };
        // SAFETY: the name is a C string or null.
        let name = unsafe { text_of(table.name, "name of the back end") }?.to_owned();
        let submit = table
            .submit
            .ok_or_else(|| Failure::invalid("the function `submit` of the back end is NULL"))?;
        let limits = limits_of(&table)?;
        let is_open = Arc::new(AtomicBool::new(false));
        let (context, close) = (table.context, table.close);
        let backend = Table { name, context, submit, close, is_open: Arc::clone(&is_open) };
        let disk = Disk::with_backend(backend, limits, Policy::default())?;
        is_open.store(true, Ordering::Relaxed);
        let handle = handle::open(OpenDisk { disk });
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

fn limits_of(table: &forebay_backend) -> Result<QueueLimits, Failure> {
    let switch = |value: u32, name: &str| match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::invalid(format!("the field `{name}` of the back end is 0 or 1"))),
    };
    let block = match table.logical_block_size {
        0 => 512,
        size if size <= 4096 && size.is_power_of_two() => size,
        size => {
            return Err(Failure::invalid(format!(
                "the field `logical_block_size` of the back end is {size}; it is a power of two \
                 from 1 to 4096, or 0 for 512"
            )));
        }
    };
    // Offsets are signed in C.
    if i64::try_from(table.capacity).is_err() {
        let text = "the field `capacity` of the back end is larger than INT64_MAX";
        return Err(Failure::invalid(text));
    }
    // The layer counts these limits in sectors.
    let sectors = |bytes: u64, name: &str| match u64::from(block.max(512)) {
        least if bytes > 0 && bytes < least => Err(Failure::invalid(format!(
            "the field `{name}` of the back end is {bytes}; it is at least {least}, or 0"
        ))),
        _ => Ok(u32::try_from(bytes / 512).unwrap_or(u32::MAX)),
    };
    Ok(QueueLimits::default()
        .capacity_bytes(Some(table.capacity))
        .logical_block_size(block)
        .physical_block_size(block)
        .io_min(block)
        .discard_granularity(if table.max_discard > 0 { block } else { 0 })
        .max_discard_sectors(sectors(table.max_discard, "max_discard")?)
        .max_write_zeroes_sectors(sectors(table.max_write_zeroes, "max_write_zeroes")?)
        .volatile_cache(switch(table.volatile_cache, "volatile_cache")?)
        .read_only(switch(table.read_only, "read_only")?))
}

/// Runs a call on a request.
///
/// # Safety
/// As for [`handle::get`].
unsafe fn on_request<T: From<c_int>>(
    request: *mut forebay_request,
    call: impl FnOnce(&mut Request) -> Result<T, Failure>,
) -> T {
    guard(|| {
        // SAFETY: the caller keeps the conditions.
        let open = unsafe { handle::get::<OpenRequest>(request) }?;
        let mut open = open.0.try_lock().map_err(|_| ending())?;
        call(open.as_mut().ok_or_else(ending)?)
    })
}

#[cold]
fn ending() -> Failure {
    Failure::of(libc::EBUSY, c"the request is in use by another call")
}

/// Returns the operation of a request, one of enum forebay_op, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_op(request: *mut forebay_request) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_request(request, |request| Ok(crate::io::number_of(request.op()))) }
}

/// Returns the first byte of a request on the disk, or a negative errno; 0 for a flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_offset(request: *mut forebay_request) -> i64 {
    // SAFETY: the caller passes a handle.
    unsafe { on_request(request, |request| Ok(request.offset() as i64)) }
}

/// Returns the number of bytes of a request on the disk, or a negative errno; 0 for a flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_len(request: *mut forebay_request) -> i64 {
    // SAFETY: the caller passes a handle.
    unsafe { on_request(request, |request| Ok(request.len() as i64)) }
}

/// Copies len bytes of a write, from byte at of its memory on, to buf, which does not overlap it.
///
/// Returns 0, or a negative errno: -EINVAL if the request is no write, or has not so many bytes.
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
            // SAFETY: the caller passes memory of its own with this length.
            let buf = unsafe {
                buf.cast::<u8>().write_bytes(0, len);
                std::slice::from_raw_parts_mut(buf.cast::<u8>(), len)
            };
            request.copy_to(at, buf);
        }
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_request(request, copy) }
}

/// Copies len bytes of buf to the memory of a read, from byte at on. They do not overlap.
///
/// Returns 0, or a negative errno: -EINVAL if the request is no read, or has not so many bytes.
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
            request.copy_from(at, unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) });
        }
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_request(request, copy) }
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
    match buf.is_null() && len > 0 {
        true => Err(Failure::invalid("the memory is NULL")),
        false => Ok(()),
    }
}

/// Ends a request. result is the number of bytes that a read or write has moved, 0 for another
/// operation that has succeeded, or a negative errno. Fewer bytes than the length: the layer
/// continues with the rest, and a read of 0 bytes is the end of the disk. The handle is closed.
///
/// Returns 0, or a negative errno: -EBADF if the request has ended a short time ago, -EINVAL if the
/// result does not fit the request, which has not ended then. A request that ended long ago may be
/// taken for a later one: end each once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_request_end(request: *mut forebay_request, result: i64) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let open = unsafe { handle::get::<OpenRequest>(request) }?;
        let mut place = open.0.try_lock().map_err(|_| ending())?;
        let own = place.as_ref().ok_or_else(ending)?;
        let max = if own.op().moves_data() { own.len() } else { 0 };
        if u64::try_from(result).is_ok_and(|moved| moved > max) {
            let text = format!("a {} cannot move {result} bytes of {max}", own.op().name());
            return Err(Failure::invalid(text));
        }
        let own = place.take().ok_or_else(ending)?;
        drop(place);
        // SAFETY: the request is in no other call, because this thread has taken it.
        unsafe { handle::close::<OpenRequest>(request) }?;
        match u64::try_from(result) {
            Err(_) => own.complete(Err(status_of(result))),
            Ok(moved) if moved < max => own.complete_short(moved),
            Ok(_) => own.complete(Ok(())),
        }
        Ok(0)
    })
}
