//! Events of the control plane, for subscribers of the crate `tracing` (a feature): disks that are
//! opened and closed, settings that change, failures, and traces. I/O has no events here, because
//! each would cost more than the I/O: see [`Trace`](crate::Trace).
//!
//! The target of all is `forebay`, and the field `disk` is the spec. Levels: `ERROR` if I/O or an
//! open has failed, or data may be lost; `WARN` for delays and acknowledged losses; `INFO` for
//! the rest. `docs/guide.md` lists the events and their fields.
//!
//! Failures that turns find are limited in number, and emitted once the token is released: see
//! `runtime::failures`. Without the feature these functions are empty.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

#[cfg(feature = "tracing")]
use forebay_core::{BlockStatus, LateRequest, LostWrites};
use std::fmt;
use std::time::Duration;

/// The span of an open call, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Opening {
    #[cfg(feature = "tracing")]
    _span: tracing::span::EnteredSpan,
}

/// Begins the span of an open call. It may take long: an open waits for servers, and for the I/O of
/// programs that were killed.
pub(crate) fn opening(disk: &dyn fmt::Display) -> Opening {
    Opening {
        #[cfg(feature = "tracing")]
        _span: tracing::info_span!(target: "forebay", "open", %disk).entered(),
    }
}

/// A disk was opened.
pub(crate) fn opened(disk: &dyn fmt::Display, driver: &str, size_bytes: Option<u64>) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "forebay", %disk, driver, size_bytes, "disk opened");
}

/// A disk could not be opened.
pub(crate) fn not_opened(disk: &dyn fmt::Display, error: &dyn fmt::Display) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "forebay", %disk, %error, "disk not opened");
}

/// A disk was closed: no I/O is in flight.
pub(crate) fn closed(disk: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "forebay", disk, "disk closed");
}

/// A setting of an open disk has changed.
pub(crate) fn changed(disk: &str, key: &str, value: &dyn fmt::Display) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "forebay", disk, key, %value, "setting changed");
}

/// An open call waits for the I/O of a program that was killed.
pub(crate) fn waits_for_predecessor(at_most: Duration) {
    #[cfg(feature = "tracing")]
    {
        let at_most_ms = at_most.as_millis() as u64;
        tracing::warn!(target: "forebay", at_most_ms, "waiting for the I/O of a killed program");
    }
}

/// The disk is gone: its I/O ends with `Offline` until it is revived.
#[cfg(feature = "tracing")]
pub(crate) fn gone(disk: &str, reason: &str) {
    tracing::error!(target: "forebay", disk, reason, "disk gone");
}

/// The caller has revived a disk that was gone.
pub(crate) fn revived(disk: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "forebay", disk, "disk revived");
}

/// A request has exceeded its time limit. `left_out` requests have exceeded it before, without an
/// event.
#[cfg(feature = "tracing")]
pub(crate) fn overdue(disk: &str, late: &LateRequest, left_out: u64) {
    let LateRequest { op, start, len, stage, .. } = late;
    let (op, reaction) = (op.name(), stage.name());
    tracing::warn!(target: "forebay", disk, op, start, len, reaction, left_out, "request overdue");
}

/// Writes may be lost, with durable points in this range. `status`: the failure of the flush, if
/// one has just failed.
#[cfg(feature = "tracing")]
pub(crate) fn lost(disk: &str, lost: LostWrites, status: Option<BlockStatus>) {
    let (LostWrites { after, up_to }, status) = (lost, status.map(BlockStatus::name));
    tracing::error!(target: "forebay", disk, status, after, up_to, "writes may be lost");
}

/// The caller has acknowledged the loss of writes, with durable points in this range.
pub(crate) fn loss_acknowledged(disk: &str, after: u64, up_to: u64) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "forebay", disk, after, up_to, "loss of writes acknowledged");
}

/// A trace of a disk has begun.
pub(crate) fn trace_begun(disk: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "forebay", disk, "trace begun");
}

/// A trace has ended: with its records, those that were lost, and the error that has ended it.
pub(crate) fn trace_ended(records: u64, lost: u64, error: Option<&std::io::Error>) {
    #[cfg(feature = "tracing")]
    match error {
        None if lost == 0 => tracing::info!(target: "forebay", records, lost, "trace ended"),
        None => {
            tracing::warn!(target: "forebay", records, lost, "trace ended, records are missing")
        }
        Some(error) => {
            tracing::error!(target: "forebay", records, lost, %error, "trace ended early");
        }
    }
}
