//! The static that the I/O path tests: whether anything observes any disk of the process.
//!
//! One word holds both reasons, so that one load and one comparison are all that an I/O pays while
//! there is none. Its high half is the number of traced disks. Its low 16 bits are the semaphore of
//! the [`probes`](super::probes): the number of tracers, which the kernel changes in the memory of
//! the process (`ref_ctr_offset` of a uprobe). The kernel adds to these 16 bits alone, and the
//! library changes the word with one instruction, so neither loses a change of the other.
// A section by name is unsafe.
#![cfg_attr(feature = "usdt", allow(unsafe_code))]

use forebay_core::ProbeSwitch;
use std::sync::atomic::{AtomicU64, Ordering};

/// One traced disk.
const DISK: u64 = 1 << 32;

/// The bits of the semaphore. Its address is that of the word only if the low bits come first.
const TRACERS: u64 = if cfg!(target_endian = "little") { 0xffff } else { 0 };

/// The switch.
// The kernel changes only memory that a file backs, so this is not in `.bss`.
// SAFETY: the section is only for data that can be written, as this is.
#[cfg_attr(feature = "usdt", unsafe(link_section = ".probes"))]
pub(super) static SWITCH: AtomicU64 = AtomicU64::new(0);

/// Returns whether any disk of this process is traced, or a tracer observes the probes. Builds with
/// `--cfg forebay_no_trace` have no traces.
#[inline(always)]
pub(crate) fn is_any() -> bool {
    // Relaxed, here and below: see the parent module.
    !cfg!(forebay_no_trace) && SWITCH.load(Ordering::Relaxed) != 0
}

/// The part of the switch that is on while a tracer observes the probes.
pub(super) static PROBES: ProbeSwitch = ProbeSwitch::new(&SWITCH, TRACERS);

/// Counts one more traced disk.
pub(super) fn add_disk() {
    SWITCH.fetch_add(DISK, Ordering::Relaxed);
}

/// Counts one traced disk less.
pub(super) fn remove_disk() {
    SWITCH.fetch_sub(DISK, Ordering::Relaxed);
}
