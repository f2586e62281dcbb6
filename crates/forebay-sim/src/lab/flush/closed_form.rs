//! Expected throughput of threads that call fsync after each write, on a SATA disk, by arithmetic.
//!
//! A write keeps the disk busy for its command, its transfer over the link, and, when it is
//! flushed, its extent: together `write_ns`. A flush costs `flush_ns` in addition.
//!
//! - A single thread: a write and a flush, and after each of them the thread has to wake up and go
//!   on.
//! - Many threads proceed in step. While the disk flushes for those that asked in time, the last of
//!   them asks too late, and has a clean flush of its own right after. Then all write again, as
//!   many as the disk takes at once. So there are two flushes for that many writes. The wake-up of
//!   a thread costs nothing, because the disk is busy with other requests meanwhile.
//! - Under `tail` one re-queued request goes before each flush. It makes the cache dirty, and while
//!   that flush runs its thread asks for the next one, which has such a request before it too. So
//!   there is one flush for each write, for any number of threads.
//! - With `elide` a thread that asks too late joins the running flush, if its write had ended
//!   before that flush was issued: one flush for all.

use super::super::costs::Costs;
use super::{FlushLoad, FsyncShape};
use forebay_core::FlushPolicy;
use forebay_model::SataParams;

/// Returns the writes per second of a load. `None` if there is no such formula: for another device,
/// or if an fsync does not follow each write.
pub(super) fn iops(load: &FlushLoad) -> Option<f64> {
    let is_known = load.device.name == "sata" && load.shape == FsyncShape::EachWrite;
    if !is_known {
        return None;
    }
    let params = SataParams::from_values(&load.device.defaults());
    let transfer_ns = |bytes_per_s: u64| load.block_bytes as f64 * 1e9 / bytes_per_s as f64;
    let write_ns = (params.command_ns + params.position_ns) as f64
        + transfer_ns(params.link_bytes_per_s)
        + transfer_ns(params.bytes_per_s);
    let flush_ns = params.flush_ns as f64;
    let Costs { submit_ns, tag_ns, reap_ns, wake_min_ns, wake_max_ns } = load.costs;
    let wake_ns = (wake_min_ns + wake_max_ns) as f64 / 2.0 + (submit_ns + tag_ns + reap_ns) as f64;
    // The number of writes that the disk takes at once.
    let nr = f64::from(load.nr_threads).min(params.ncq_depth as f64);
    let ns_per_write = match (load.nr_threads, load.flush) {
        (1, _) => write_ns + flush_ns + 2.0 * wake_ns,
        (_, FlushPolicy::Tail) => write_ns + flush_ns,
        _ if load.elide => write_ns + flush_ns / nr,
        _ => write_ns + 2.0 * flush_ns / nr,
    };
    Some(1e9 / ns_per_write)
}
