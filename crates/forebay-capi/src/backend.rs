//! Back ends in C: a device of the caller's own, as a table of functions.
//!
//! Its requests are in [`request`](crate::request).
// Calls functions of the caller, and exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use crate::request::{self, forebay_request};
use forebay::{Backend, Batch, Disk, DiskOptions, QueueLimits};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// The size of the disk in bytes: a multiple of the logical block size, not 0, and at most
    /// INT64_MAX.
    pub capacity: u64,
    /// The name of the back end, for reports. It is copied.
    pub name: *const c_char,
    /// Passed to the functions.
    pub context: *mut c_void,
    /// Must be set. Any thread that uses the disk may call it. It must not wait for I/O of its own
    /// disk. The array of requests is valid only during the call.
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
    /// 1 if the back end makes a write durable when forebay_request_flags() returns FOREBAY_IO_FUA.
    /// If 0, a flush follows each write that must be durable.
    pub fua: u32,
    /// Must be 0. Reserved for a later version.
    pub reserved: u32,
    /// Settings of the disk in the syntax of a spec, such as "queue_depth=64&io_timeout_ms=5000";
    /// NULL for the defaults.
    pub settings: *const c_char,
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

thread_local! {
    /// An empty list of requests, for the next batch. During a `submit` that calls the `submit` of
    /// another disk, the list has no capacity.
    static SPARE: Cell<Vec<*mut forebay_request>> = const { Cell::new(Vec::new()) };
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
        let mut requests = SPARE.try_with(Cell::take).unwrap_or_default();
        requests.extend(batch.filter_map(request::open));
        let nr = u32::try_from(requests.len()).expect("a batch is no longer than the queue");
        // SAFETY: the caller of `forebay_backend_open` has promised it.
        unsafe { (self.submit)(self.context, requests.as_mut_ptr(), nr) };
        requests.clear();
        // If the thread is ending, there is no place for the list, and it is freed.
        let _ = SPARE.try_with(|spare| spare.set(requests));
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
        // SAFETY: the settings are a C string or null.
        let options = unsafe { options_of(table.settings) }?;
        let is_open = Arc::new(AtomicBool::new(false));
        let (context, close) = (table.context, table.close);
        let backend = Table { name, context, submit, close, is_open: Arc::clone(&is_open) };
        let disk = options.open_backend(backend, limits)?;
        is_open.store(true, Ordering::Relaxed);
        let handle = handle::open(OpenDisk::new(disk));
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Returns the options with these settings. Those that a back end cannot have are refused when the
/// disk is opened.
///
/// # Safety
/// `settings` is null or a C string.
unsafe fn options_of(settings: *const c_char) -> Result<DiskOptions, Failure> {
    let mut options = Disk::options();
    if settings.is_null() {
        return Ok(options);
    }
    // SAFETY: the caller keeps the condition.
    let text = unsafe { text_of(settings, "field `settings` of the back end") }?;
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        options = options.set(key, value).map_err(|error| {
            Failure::invalid(format!("the field `settings` of the back end: {error}"))
        })?;
    }
    Ok(options)
}

fn limits_of(table: &forebay_backend) -> Result<QueueLimits, Failure> {
    let switch = |value: u32, name: &str| match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::invalid(format!("the field `{name}` of the back end is 0 or 1"))),
    };
    if table.reserved != 0 {
        return Err(Failure::invalid("the field `reserved` of the back end is not 0"));
    }
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
    let is_possible = table.capacity > 0 && i64::try_from(table.capacity).is_ok();
    if !is_possible || !table.capacity.is_multiple_of(block.into()) {
        return Err(Failure::invalid(format!(
            "the field `capacity` of the back end is {}; expected whole logical blocks of \
             {block} bytes, at least one, and at most INT64_MAX bytes",
            table.capacity
        )));
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
        .fua(switch(table.fua, "fua")?)
        .volatile_cache(switch(table.volatile_cache, "volatile_cache")?)
        .read_only(switch(table.read_only, "read_only")?))
}
