//! A rotational disk with one arm that sweeps.

use crate::machine::{Done, Ends, Machine, transfer_ns};
use crate::parameters::{NUMBER, PER_S, TIME_NS, params};
use crate::{Command, Random};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

params! {
    /// The constants of an [`Hdd`].
    ///
    /// Source: the 4 TB disk of the mails "blk-mq: provide more tags for woken-up process when tag
    /// allocation is busy" (2020): 120 random reads of 1 MiB per second with one job, each in four
    /// requests of 256 KiB. That row gives only a sum: one positioning and four transfers take 8.33
    /// ms. Neither the division of that sum nor the number of commands that the disk sorts is
    /// published. A SATA disk takes 32 commands at once (NCQ). It sorts those, and the others wait
    /// in order of arrival. 163 MB/s is an average rate over the surface of disks of that size, 1.6
    /// ms per request. The rest of the 8.33 ms, 1.9 ms, is a positioning chosen among 32 commands.
    /// These values were chosen so that the rows with more jobs agree too: they are a fit. With
    /// 3.33 ms, 1.25 ms and a sweep over 256, which fit the one-job row as well, separately taken
    /// tags split fewer reads apart than was published: 113, 108 and 104 reads per second with 24,
    /// 48 and 72 jobs, instead of 105, 102 and 100.
    ///
    /// So `seek_ns` stands for the whole positioning by default. With `stroke_ns` and `turn_ns` the
    /// disk has a place for its arm and an angle for its platters. With 1 ms, 13.5 ms and 8.33 ms
    /// it turns 7200 times per minute, and a mean seek takes 8.2 ms. That mean is in the manual of
    /// HGST's Ultrastar 7K4000, of 4 TB; its division is a choice. It was not published which part
    /// of the disk the reads covered. If it was the whole, the rows do not fit: one job does 73
    /// reads per second. They fit within 5 %, with any number of jobs, if the reads covered a
    /// fiftieth, with 0.7 ms, 2 ms and 205 MB/s (`tags-rotation` of `forebay lab`).
    pub struct HddParams {
        /// The mean time to position the arm, ns. Each positioning takes 0.5 to 1.5 times that. If
        /// the disk turns (`turn_ns`), it is the shortest seek, and always the same.
        seek_ns: 1_900_000, TIME_NS;
        /// Bytes that pass the head in a second: 256 KiB in 1.6 ms.
        bytes_per_s: 163_000_000, PER_S;
        /// The number of commands that the disk sorts. Others wait in order of arrival.
        nr_sorted: 32, NUMBER;
        /// The additional time of a seek over the whole disk, ns. A shorter seek takes a part of
        /// it: the square root of its share of the disk.
        stroke_ns: 0, TIME_NS;
        /// The time of one turn, ns. A command waits until its first byte is under the head. 0: the
        /// disk has no angle.
        turn_ns: 0, TIME_NS;
    }
}

/// One arm serves one command at a time: the one at the next higher address, and after the highest
/// the lowest (a one-directional elevator). A command that begins where the last one ended needs no
/// positioning. So four parts of one I/O, in order, cost one positioning if nothing comes between
/// them, and four otherwise.
///
/// With [`turn_ns`](HddParams::turn_ns), the place of a byte determines its angle, and the time
/// determines the angle of the platters. The arm then serves the command that it reaches first,
/// and commands in a row from the first of them. A seek within a track takes no time. A command
/// that the arm passed over 8 times for each sorted command goes before all others.
///
/// Without an angle there are no deadlines: a stream of neighbours can keep the arm. Commands that
/// move no data complete at once, because their cost is not published. Nothing fails.
#[derive(Clone, Debug)]
pub struct Hdd {
    params: HddParams,
    /// The way of the longest seek, in bytes.
    capacity_bytes: u64,
    /// The offset where the last command ended, in bytes.
    head: u64,
    /// Commands to sort, by address; at one address in order of arrival.
    sorted: Vec<Waiting>,
    /// The number of commands whose service has begun.
    nr_served: u64,
    /// Commands that wait for room in `sorted`.
    outside: VecDeque<(u32, Command)>,
    /// The command being served, and its completion time.
    serving: Option<(u32, Command, u64)>,
    ends: Ends,
}

/// A command to sort.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u32,
    command: Command,
    /// `nr_served` of the disk when it came.
    since: u64,
}

/// How often the arm of a disk with an angle passes over a command, for each sorted command.
const PASSES_MAX: u64 = 8;

impl Hdd {
    /// Creates a disk of this size with the arm at its beginning.
    ///
    /// # Panics
    /// Panics if the size, `nr_sorted` or the rate is 0.
    pub fn new(params: HddParams, capacity_bytes: u64) -> Hdd {
        assert!(params.nr_sorted > 0 && params.bytes_per_s > 0, "it would do nothing");
        assert!(capacity_bytes > 0, "it has no place");
        Hdd {
            params,
            capacity_bytes,
            nr_served: 0,
            head: 0,
            sorted: Vec::new(),
            outside: VecDeque::new(),
            serving: None,
            ends: Ends::default(),
        }
    }

    /// The command being served counts as one of the sorted ones.
    fn has_room(&self) -> bool {
        let nr = self.sorted.len() + usize::from(self.serving.is_some());
        (nr as u64) < self.params.nr_sorted
    }

    fn sort_in(&mut self, id: u32, command: Command) {
        let at = self.sorted.partition_point(|other| other.command.start <= command.start);
        self.sorted.insert(at, Waiting { id, command, since: self.nr_served });
    }

    /// Returns the index of the next command of the sweep. There is one.
    fn next_of_sweep(&self) -> usize {
        let next = self.sorted.partition_point(|other| other.command.start < self.head);
        if next < self.sorted.len() { next } else { 0 }
    }

    /// Returns the index of the command that the arm reaches first from `now`, or of one that has
    /// waited too long. There is one.
    fn next_to_reach(&self, now: u64) -> usize {
        let passes = self.params.nr_sorted.saturating_mul(PASSES_MAX);
        let oldest = (0..self.sorted.len()).min_by_key(|&at| self.sorted[at].since);
        let oldest = oldest.expect("a command waits");
        if self.nr_served - self.sorted[oldest].since >= passes {
            return oldest;
        }
        let is_first = |at: usize| {
            let start = self.sorted[at].command.start;
            let before = at.checked_sub(1).map(|before| self.sorted[before].command);
            start == self.head || before.is_none_or(|it| it.start + it.len != start)
        };
        let firsts = (0..self.sorted.len()).filter(|&at| is_first(at));
        let reach = |&at: &usize| {
            let start = self.sorted[at].command.start;
            let seek_ns = self.seek_ns(start, self.params.seek_ns);
            seek_ns + self.turn_ns(start, now.saturating_add(seek_ns))
        };
        firsts.min_by_key(reach).expect("the lowest has none before it")
    }

    /// Returns how long the arm moves to `start`, if the shortest move takes `shortest_ns`.
    fn seek_ns(&self, start: u64, shortest_ns: u64) -> u64 {
        let turn_ns = u128::from(self.params.turn_ns);
        let track = |place: u64| self.place_ns(place).checked_div(turn_ns);
        if start == self.head || (turn_ns > 0 && track(start) == track(self.head)) {
            return 0;
        }
        let capacity = u128::from(self.capacity_bytes);
        let way = u128::from(start.abs_diff(self.head)).min(capacity);
        // The square root of the share, times 2^20.
        let root = ((way << 40) / capacity).isqrt();
        shortest_ns + ((u128::from(self.params.stroke_ns) * root) >> 20) as u64
    }

    /// Returns how long the head waits for `start` from `now`.
    fn turn_ns(&self, start: u64, now: u64) -> u64 {
        let turn_ns = u128::from(self.params.turn_ns);
        if start == self.head || turn_ns == 0 {
            return 0;
        }
        let angle = self.place_ns(start) % turn_ns + turn_ns - u128::from(now) % turn_ns;
        (angle % turn_ns) as u64
    }

    /// Returns how long the head would read from the beginning of the disk up to a place.
    fn place_ns(&self, place: u64) -> u128 {
        u128::from(place) * 1_000_000_000 / u128::from(self.params.bytes_per_s)
    }

    /// Serves the next command, if there is one.
    fn serve_next(&mut self, now: u64, random: &mut Random) {
        if self.sorted.is_empty() {
            return;
        }
        let has_angle = self.params.turn_ns > 0;
        let next = if has_angle { self.next_to_reach(now) } else { self.next_of_sweep() };
        let Waiting { id, command, .. } = self.sorted.remove(next);
        let shortest_ns = match has_angle || command.start == self.head {
            true => self.params.seek_ns,
            // The random part stands for the angle.
            false => random.between(self.params.seek_ns / 2, self.params.seek_ns / 2 * 3),
        };
        let seek_ns = self.seek_ns(command.start, shortest_ns);
        let turn_ns = self.turn_ns(command.start, now.saturating_add(seek_ns));
        let took_ns = seek_ns + turn_ns + transfer_ns(command.len, self.params.bytes_per_s);
        self.head = command.start + command.len;
        self.nr_served += 1;
        self.serving = Some((id, command, now.saturating_add(took_ns)));
    }

    /// Completes what is done by `now`, and serves the next commands, each from the end of the
    /// last.
    fn advance(&mut self, now: u64, random: &mut Random) {
        while let Some((id, command, done_at_ns)) = self.serving.filter(|serving| serving.2 <= now)
        {
            self.ends.add(id, &command, done_at_ns);
            self.serving = None;
            if let Some((id, command)) = self.outside.pop_front() {
                self.sort_in(id, command);
            }
            self.serve_next(done_at_ns, random);
        }
    }
}

impl Machine for Hdd {
    fn begin(&mut self, id: u32, command: &Command, now: u64, random: &mut Random) {
        self.advance(now, random);
        if !command.op.moves_data() {
            self.ends.add(id, command, now);
        } else if self.has_room() {
            self.sort_in(id, *command);
            if self.serving.is_none() {
                self.serve_next(now, random);
            }
        } else {
            self.outside.push_back((id, *command));
        }
    }

    fn next_at_ns(&self) -> Option<u64> {
        // A completed command is older than the one being served.
        self.ends.next_at_ns().or(self.serving.map(|(_, _, done_at_ns)| done_at_ns))
    }

    fn take_done(&mut self, now: u64, random: &mut Random) -> Option<Done> {
        self.advance(now, random);
        self.ends.take(now)
    }
}

#[cfg(test)]
mod tests;
