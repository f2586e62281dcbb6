//! A SATA disk with a volatile cache and a flush that runs only by itself.

use crate::machine::{Done, Ends, Machine, transfer_ns};
use crate::parameters::{BYTES, NUMBER, PER_S, TIME_NS, params};
use crate::{Command, Random};
use forebay_core::Op;

params! {
    /// The constants of a [`Sata`].
    ///
    /// Source: "block: hold queue if flush is running for non-queueable flush drive" (2011). It
    /// describes a SATA disk whose flush is not queued, and reports one figure: sysbench's fileio
    /// lost about a fifth. All constants but one are usual figures of such disks at that time: 32
    /// commands at once (NCQ), a link of 3 Gbit/s, 32 MiB of cache, 100 MB/s from the cache to the
    /// medium, and 20 us per command besides its bytes. A clean flush took 0.2 to 0.5 ms; 0.35 is
    /// the middle. The remaining constant, `position_ns`, is calibrated on the published fifth;
    /// `bench/LAB.md` says how.
    pub struct SataParams {
        /// The serial cost of a command besides its bytes, ns.
        command_ns: 20_000, TIME_NS;
        /// Bytes that pass the link to the cache per second.
        link_bytes_per_s: 300_000_000, PER_S;
        /// The cost of a flush that finds the cache clean, ns.
        flush_ns: 350_000, TIME_NS;
        /// The cost of writing back one extent besides its bytes, ns: the arm's way from the last
        /// extent, with all of them in a good order.
        position_ns: 940_000, TIME_NS;
        /// Bytes that move between the cache and the medium per second.
        bytes_per_s: 100_000_000, PER_S;
        /// The size of the cache in bytes. A write without room waits for what it displaces.
        cache_bytes: 32 << 20, BYTES;
        /// The cost of a read besides its bytes, ns: 8.5 ms of the arm and half a rotation.
        seek_ns: 12_700_000, TIME_NS;
        /// The number of commands that the disk accepts at once.
        ncq_depth: 32, NUMBER;
    }
}

/// Commands are served one after another in order of arrival. A write goes into the cache and costs
/// a fixed time plus a time for its bytes. A flush writes back the dirty extents one by one. It
/// begins only while nothing else is at the device, and nothing else begins until it is done; a
/// command at another time is refused as busy. Otherwise nothing is written back unless the cache
/// is full. A write that begins where the previous one ended belongs to the same extent. A read
/// finds nothing in the cache. A discard or write-zeroes takes a command's time and is an extent
/// without bytes. Nothing fails.
#[derive(Clone, Debug)]
pub struct Sata {
    params: SataParams,
    /// When all accepted commands will be done.
    free_at_ns: u64,
    /// When the last flush is done.
    flushed_at_ns: u64,
    nr_dirty_extents: u64,
    dirty_bytes: u64,
    /// Where the last extent in the cache ends.
    end: Option<u64>,
    ends: Ends,
}

impl Sata {
    /// Creates an idle disk with a clean cache.
    ///
    /// # Panics
    /// Panics if `ncq_depth` is 0.
    pub fn new(params: SataParams) -> Sata {
        assert!(params.ncq_depth > 0, "it would take no command");
        Sata {
            params,
            free_at_ns: 0,
            flushed_at_ns: 0,
            nr_dirty_extents: 0,
            dirty_bytes: 0,
            end: None,
            ends: Ends::default(),
        }
    }

    /// Applies a command to the cache. Returns how long it keeps the disk busy, in nanoseconds.
    fn serve(&mut self, command: &Command) -> u64 {
        let SataParams { command_ns, flush_ns, seek_ns, link_bytes_per_s, .. } = self.params;
        match command.op {
            Op::Flush => flush_ns.saturating_add(self.write_back(u64::MAX)),
            Op::Read => command_ns + seek_ns + transfer_ns(command.len, self.params.bytes_per_s),
            Op::Write => {
                self.nr_dirty_extents += u64::from(self.end != Some(command.start));
                self.end = Some(command.start + command.len);
                self.dirty_bytes += command.len;
                let displaced = self.dirty_bytes.saturating_sub(self.params.cache_bytes);
                let of_link = transfer_ns(command.len, link_bytes_per_s);
                (command_ns + of_link).saturating_add(self.write_back(displaced))
            }
            Op::Discard | Op::WriteZeroes => {
                self.nr_dirty_extents += 1;
                self.end = None;
                command_ns
            }
        }
    }

    /// Removes this many bytes from the cache, with the extents that hold them. Returns how long
    /// that takes, in nanoseconds.
    fn write_back(&mut self, len_bytes: u64) -> u64 {
        let SataParams { position_ns, bytes_per_s, .. } = self.params;
        let len_bytes = len_bytes.min(self.dirty_bytes);
        let nr_extents = match len_bytes == self.dirty_bytes {
            true => self.nr_dirty_extents,
            // All extents are assumed to have the same length.
            false => (u128::from(self.nr_dirty_extents) * u128::from(len_bytes))
                .div_ceil(self.dirty_bytes.into()) as u64,
        };
        self.dirty_bytes -= len_bytes;
        self.nr_dirty_extents -= nr_extents;
        if self.nr_dirty_extents == 0 {
            self.end = None;
        }
        nr_extents.saturating_mul(position_ns).saturating_add(transfer_ns(len_bytes, bytes_per_s))
    }
}

impl Machine for Sata {
    fn may_begin(&self, command: &Command, now: u64) -> bool {
        let nr_at_device = self.ends.nr_after(now) as u64;
        match command.op {
            Op::Flush => nr_at_device == 0,
            _ => now >= self.flushed_at_ns && nr_at_device < self.params.ncq_depth,
        }
    }

    fn begin(&mut self, id: u32, command: &Command, now: u64, _: &mut Random) {
        assert!(self.may_begin(command, now), "a command that the disk refuses was begun");
        let took_ns = self.serve(command);
        self.free_at_ns = self.free_at_ns.max(now).saturating_add(took_ns);
        if command.op == Op::Flush {
            self.flushed_at_ns = self.free_at_ns;
        }
        self.ends.add(id, command, self.free_at_ns);
    }

    fn next_at_ns(&self) -> Option<u64> {
        self.ends.next_at_ns()
    }

    fn take_done(&mut self, now: u64, _: &mut Random) -> Option<Done> {
        self.ends.take(now)
    }
}

#[cfg(test)]
mod tests;
