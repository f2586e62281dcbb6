//! What threads that call fsync after each write should reach on a SATA disk, by arithmetic.
//!
//! A write keeps the disk busy for its command, its way over the link, and, when it is flushed, its
//! extent: together `write_ns`. A flush costs `flush_ns` beside that.
//!
//! - One thread is alone: a write, a flush, and after each it has to wake and to go on.
//! - Many go in step. While the disk flushes for those who asked in time, the last of them asks,
//!   too late, and has a clean flush of its own right after; then all write again, as many as the
//!   disk takes at once. So there are two flushes for that many writes. That a thread wakes takes
//!   no time, for the disk is busy with others meanwhile.
//! - Under `tail` one request that was queued again goes before each flush. It makes the cache
//!   dirty, and while that flush runs its thread asks for the next, which has just such a request
//!   before it. So there is a flush for each write, however many threads there are.
//! - With `elide` who asks too late joins the flush that runs, if it has written before that was
//!   issued: one flush for all.

use super::super::costs::Costs;
use super::{FlushLoad, FsyncShape};
use forebay_core::FlushPolicy;
use forebay_model::SataParams;

/// Writes per second of a load; None where there is no such form: of another device, or where not
/// each write is followed by an fsync.
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
    // Of those that the disk takes at once.
    let nr = f64::from(load.nr_threads).min(params.ncq_depth as f64);
    let ns_per_write = match (load.nr_threads, load.flush) {
        (1, _) => write_ns + flush_ns + 2.0 * wake_ns,
        (_, FlushPolicy::Tail) => write_ns + flush_ns,
        _ if load.elide => write_ns + flush_ns / nr,
        _ => write_ns + 2.0 * flush_ns / nr,
    };
    Some(1e9 / ns_per_write)
}
