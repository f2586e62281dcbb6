//! USDT probes (user statically defined tracing): stages of requests, for `bpftrace` and `perf`.
//!
//! Each stage is a probe of the provider `forebay`. A probe is one `nop` in a function of its own,
//! and a note in the section `.note.stapsdt` ([format]), which names its address, its arguments and
//! its semaphore. A tracer puts a breakpoint in the place of the `nop`, and counts itself in the
//! semaphore, which is the [`switch`](super::switch) of all traces. So probes cost nothing until
//! then.
//!
//! [format]: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation
//!
//! All probes have the same arguments: the disk and the operation (C strings), the first byte and
//! the length, and the errno. A number of the event is in the place of the length.

#[cfg(all(feature = "usdt", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod notes;

use super::switch;
use crate::errno;
use forebay_core::{ProbeSwitch, TraceProbe, TraceRecord};
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the build has probes: with the feature, and on a processor whose notes are written here.
/// Tests have an observer of their own.
const HAS_PROBES: bool = cfg!(any(
    test,
    all(feature = "usdt", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))
));

/// The number of times that a writer has dropped its probe.
static NR_ENDS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the period in which a tracer observes the probes.
pub(super) fn period() -> u32 {
    NR_ENDS.load(Ordering::Relaxed)
}

/// The probe of a disk.
#[derive(Debug)]
pub(super) struct DiskProbe {
    disk: CString,
}

impl DiskProbe {
    /// Returns the probe of the disk with this spec. `None`: the build has no probes.
    pub(super) fn new(spec: &str) -> Option<DiskProbe> {
        // A spec has no zero byte in practice.
        let disk = CString::new(spec.replace('\0', "?")).ok()?;
        HAS_PROBES.then_some(DiskProbe { disk })
    }
}

impl TraceProbe for DiskProbe {
    fn switch(&self) -> ProbeSwitch {
        switch::PROBES
    }

    fn record(&self, record: &TraceRecord) {
        let errno = record.status.map_or(0, errno::of_status);
        #[cfg(test)]
        seen::add(&self.disk, record);
        #[cfg(all(
            feature = "usdt",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            not(miri)
        ))]
        notes::pass(&self.disk, record, errno);
        // Only tests get here without the notes.
        let _ = (&self.disk, errno);
    }

    fn end(&self) {
        NR_ENDS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The observer of tests.
#[cfg(test)]
mod seen {
    use super::*;
    use forebay_core::TraceEvent;
    use std::ffi::CStr;
    use std::sync::{Mutex, PoisonError};

    static ALL: Mutex<Vec<(CString, TraceEvent)>> = Mutex::new(Vec::new());

    pub(super) fn add(disk: &CStr, record: &TraceRecord) {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((disk.to_owned(), record.event));
    }

    /// Takes the events of this disk.
    #[cfg(not(any(blk_loom, blk_shuttle)))]
    pub(super) fn take(disk: &str) -> Vec<TraceEvent> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let of_disk = |it: &mut (CString, TraceEvent)| it.0.to_str() == Ok(disk);
        all.extract_if(.., of_disk).map(|(_, event)| event).collect()
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
