//! Probes: observers of records as they are written, in the thread that writes them.
//!
//! A reader of a ring sees records later, and in a thread of its own. A probe sees them at once, so
//! a debugger or tracer of the system can stop there or take the stack. The core cannot contain the
//! instructions that such tools need, so the library supplies them.

use super::record::TraceRecord;
use core::fmt;

/// An observer of the records of a software queue or hardware context.
pub trait TraceProbe: fmt::Debug + Send + Sync {
    /// Returns whether anything observes records now.
    fn is_on(&self) -> bool;

    /// Observes a record. Called only while [`is_on`](Self::is_on) returns true.
    fn record(&self, record: &TraceRecord);

    /// Notes that a writer has dropped this probe, because nothing observes records any more.
    fn end(&self);
}
