//! Late requests of a disk: those that have exceeded their time limit.
// Exports a function to C.
#![allow(unsafe_code)]

use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use crate::io::number_of;
use forebay::{LateRequest, LateStage};
use std::ffi::c_int;
use std::sync::PoisonError;

/// The reaction of the library to a late request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum forebay_late_stage {
    /// The device was asked to cancel it.
    Cancelled = 0,
    /// It cannot be cancelled, so the library waits for it.
    Awaited = 1,
    /// It has not ended within the grace period, so the device counts as gone.
    GivenUp = 2,
}

/// A request that has exceeded its time limit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_late {
    /// The first byte on the disk; 0 for a flush.
    pub offset: u64,
    /// The number of bytes; 0 for a flush.
    pub len: u64,
    /// One of enum forebay_op.
    pub op: u32,
    /// One of enum forebay_late_stage.
    pub stage: u32,
}

/// Stores the requests that have exceeded their time limit (io_timeout_ms of the spec) since the
/// last call, oldest first, at most max of them. The disk keeps the latest 256. Intended for logs.
///
/// Returns the number of requests, or a negative errno. If it is max, there may be more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_late_requests(
    disk: *mut forebay_disk,
    late: *mut forebay_late,
    max: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
        let max = max.min(c_int::MAX as u32) as usize;
        if max == 0 || late.is_null() || !late.is_aligned() {
            let text = "the array of late requests is NULL, misaligned or empty";
            return Err(Failure::invalid(text));
        }
        disk.check_not_forked()?;
        let mut rest = disk.late.lock().unwrap_or_else(PoisonError::into_inner);
        rest.extend(disk.disk.take_late_requests());
        let nr = rest.len().min(max);
        for (nth, request) in rest.drain(..nr).enumerate() {
            // SAFETY: the caller passes room for `max` requests, and there are no more.
            unsafe { late.add(nth).write(stored(&request)) };
        }
        Ok(nr as c_int)
    })
}

fn stored(request: &LateRequest) -> forebay_late {
    let stage = match request.stage {
        LateStage::Cancelled => forebay_late_stage::Cancelled,
        LateStage::Awaited => forebay_late_stage::Awaited,
        LateStage::GivenUp => forebay_late_stage::GivenUp,
    };
    let (offset, len) = (request.start, request.len);
    forebay_late { offset, len, op: number_of(request.op) as u32, stage: stage as u32 }
}
