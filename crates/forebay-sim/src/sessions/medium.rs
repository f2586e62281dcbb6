//! What is below the core: sectors, with a volatile cache in front, which a loss of power may empty
//! in any way. It completes in any order, fails, and does less than it was asked to.
//!
//! A write is there when it is done. A flush makes durable what was there when it was issued.

use super::SECTOR;
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, Op, Tag};
use forebay_model::Random;

/// What a sector held since it was durable, oldest first, with the moments of the writes.
type Versions = Vec<(u64, Vec<u8>)>;

/// A command on its way.
#[derive(Debug)]
struct Running {
    tag: Tag,
    op: Op,
    fua: bool,
    /// When it was issued.
    issued: u64,
    start: u64,
    len: u64,
    /// Its memory: addresses and lengths.
    segments: Vec<(usize, usize)>,
    /// Its ranges, where it has no memory.
    ranges: Vec<(u64, u64)>,
}

/// How often things go wrong, in a thousand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) fail: u32,
    pub(super) short: u32,
    pub(super) busy: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Medium {
    sectors: Vec<Versions>,
    running: Vec<Running>,
    done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// Memory of bios, by the number of their box.
    pub(super) memory: Vec<Vec<u8>>,
    faults: Faults,
    random: Random,
    moment: u64,
}

/// Where the memory of a box begins, as an address.
pub(super) fn address(number: u32) -> usize {
    (number as usize + 1) << 32
}

impl Medium {
    pub(super) fn new(kept: Vec<Vec<u8>>, faults: Faults, random: Random) -> Medium {
        Medium {
            sectors: kept.into_iter().map(|bytes| vec![(0, bytes)]).collect(),
            running: Vec::new(),
            done: Vec::new(),
            memory: Vec::new(),
            faults,
            random,
            moment: 1,
        }
    }

    /// Lets one command come to its end. Whether there was any.
    pub(super) fn complete_one(&mut self, random: &mut Random) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let nth = random.below(self.running.len() as u64) as usize;
        let running = self.running.swap_remove(nth);
        self.moment += 1;
        let result = match running.op {
            Op::Flush => {
                self.flush(running.issued);
                Ok(0)
            }
            _ if random.chance(self.faults.fail, 1000) => {
                // Of what fails anything may be done.
                let done = SECTOR * random.below(running.len / SECTOR + 1);
                self.apply(&running, done);
                Err(BlockStatus::Io)
            }
            Op::Read | Op::Write if random.chance(self.faults.short, 1000) => {
                Ok(SECTOR * random.between(1, running.len / SECTOR))
            }
            _ => Ok(running.len),
        };
        if let (Ok(done), true) = (result, running.op != Op::Flush) {
            self.apply(&running, done);
        }
        self.done.push((running.tag, result));
        true
    }

    /// Moves the first bytes of a command.
    fn apply(&mut self, running: &Running, len: u64) {
        match running.op {
            Op::Read | Op::Write => {
                let places = running.segments.iter().flat_map(|&(addr, len)| {
                    (0..len).step_by(SECTOR as usize).map(move |at| addr + at)
                });
                let sectors = (running.start / SECTOR)..(running.start + len) / SECTOR;
                for (sector, addr) in sectors.zip(places.collect::<Vec<_>>()) {
                    self.move_sector(running, sector, addr);
                }
            }
            _ => {
                let of_range = |&(start, len): &(u64, u64)| start / SECTOR..(start + len) / SECTOR;
                let sectors =
                    running.ranges.iter().flat_map(of_range).take((len / SECTOR) as usize);
                for sector in sectors.collect::<Vec<_>>() {
                    self.put(sector, vec![0; SECTOR as usize], running.fua);
                }
            }
        }
    }

    fn move_sector(&mut self, running: &Running, sector: u64, addr: usize) {
        let (slot, at) = ((addr >> 32) - 1, addr & 0xffff_ffff);
        let memory = &mut self.memory[slot][at..at + SECTOR as usize];
        if running.op == Op::Write {
            let bytes = memory.to_vec();
            self.put(sector, bytes, running.fua);
        } else {
            let versions = &self.sectors[sector as usize];
            memory.copy_from_slice(&versions[versions.len() - 1].1);
        }
    }

    fn put(&mut self, sector: u64, bytes: Vec<u8>, fua: bool) {
        let versions = &mut self.sectors[sector as usize];
        versions.push((self.moment, bytes));
        if fua {
            versions.drain(..versions.len() - 1);
        }
    }

    /// What was written by then is durable.
    fn flush(&mut self, issued: u64) {
        for versions in &mut self.sectors {
            let last = versions.iter().rposition(|(moment, _)| *moment <= issued);
            versions.drain(..last.unwrap_or(0));
        }
    }

    /// What is left when the power fails now.
    pub(super) fn lose_power(&self, random: &mut Random) -> Vec<Vec<u8>> {
        let left = self
            .sectors
            .iter()
            .map(|versions| versions[random.below(versions.len() as u64) as usize].1.clone());
        left.collect()
    }
}

impl Driver for Medium {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        // With nothing in flight nobody would ask again.
        if !self.running.is_empty() && self.random.chance(self.faults.busy, 1000) {
            return Issue::Busy;
        }
        let segments = rq.segments().map(|segment| (segment.addr, segment.len as usize)).collect();
        let ranges = if rq.op.moves_data() { Vec::new() } else { rq.ranges().collect() };
        self.running.push(Running {
            tag: rq.tag,
            op: rq.op,
            fua: rq.fua,
            issued: self.moment,
            start: rq.start,
            len: rq.len,
            segments,
            ranges,
        });
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _look: Look) {
        for (tag, result) in self.done.drain(..) {
            done.push(tag, result);
        }
    }

    fn wait(&mut self, _nr_completions: u32) {
        unreachable!("what completes is decided outside of a turn");
    }
}
