//! Streams of I/Os over several files: `file_service_type` and `openfiles`.
//!
//! Source: fio's HOWTO and fio 3.33. Each file has a stream of its own, with its own positions. A
//! file is done when as many bytes were served from it as its part has, and a pass ends when all
//! files are done. With the distributions that are not uniform, no file is ever done.

use super::skew::{Distribution, Skew};
use super::{Direction, Op, Ops, Stream, Workload};
use crate::random::Xoshiro256;

/// How the file of the next I/O is chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum Service {
    /// At random, and then this number of I/Os in a row.
    Random(u32),
    /// In turn, this number of I/Os each.
    RoundRobin(u32),
    /// One file after another.
    Sequential,
    /// By this distribution.
    Skewed(Distribution),
}

impl Default for Service {
    fn default() -> Self {
        Self::RoundRobin(1)
    }
}

/// The state of a file in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    Done,
}

/// A file with its stream.
#[derive(Debug, Clone)]
struct One {
    ops: Ops,
    /// Bytes of its part.
    len: u64,
    /// Bytes served in this pass.
    served: u64,
    state: State,
}

/// The stream of I/Os of a clone with several files.
#[derive(Debug, Clone)]
pub struct Files {
    files: Vec<One>,
    service: Service,
    skew: Option<Skew>,
    draws: Xoshiro256,
    /// Whether files are ever done.
    ends: bool,
    openfiles: usize,
    current: Option<usize>,
    /// I/Os that the current file is still to have in a row.
    left_in_row: u32,
    /// The next file in turn.
    next: usize,
    left_bytes: u64,
    left_ios: u64,
}

impl Files {
    /// Returns the stream over files with these workloads, one for each, of which at most
    /// `openfiles` are used at a time. It ends after `io_size` bytes.
    ///
    /// # Panics
    ///
    /// As [`Ops::new`], and if there is no workload.
    pub fn new(
        workloads: &[Workload],
        service: &Service,
        openfiles: Option<u32>,
        io_size: Option<u64>,
    ) -> Self {
        /// Keeps these draws apart from those of offsets.
        const DRAWS_KEY: u64 = 0x6669_6c65_0000_0002;
        let first = &workloads[0];
        let one = |(at, workload): (u64, &Workload)| {
            let mut own = Workload { io_size: None, ..workload.clone() };
            own.stream ^= at << 32;
            if let Some(variety) = &mut own.variety {
                variety.number_ios = None;
            }
            One { ops: Ops::new(&own), len: own.region.len, served: 0, state: State::Closed }
        };
        let draws = Xoshiro256::new(first.seed ^ DRAWS_KEY, first.stream);
        let skew = match service {
            Service::Skewed(distribution) => {
                Some(Skew::new(distribution, workloads.len() as u64, 1, draws.clone()))
            }
            _ => None,
        };
        let endless = first.pattern.random && first.norandommap;
        let number_ios = first.variety.as_ref().and_then(|variety| variety.number_ios);
        Self {
            files: (0..).zip(workloads).map(one).collect(),
            service: service.clone(),
            ends: skew.is_none() && !endless,
            skew,
            draws,
            openfiles: openfiles.map_or(workloads.len(), |nr| (nr as usize).max(1)),
            current: None,
            left_in_row: 0,
            next: 0,
            left_bytes: io_size.unwrap_or(u64::MAX),
            left_ios: number_ios.unwrap_or(u64::MAX),
        }
    }

    /// Returns the file of the next I/O; `None` at the end. Another call returns the same.
    fn file(&mut self) -> Option<usize> {
        if self.left_bytes == 0 || self.left_ios == 0 {
            return None;
        }
        let stays = self.left_in_row > 0 || self.service == Service::Sequential;
        let is_open = |&at: &usize| stays && self.files[at].state == State::Open;
        if let Some(current) = self.current.filter(is_open) {
            return Some(current);
        }
        if self.files.iter().all(|file| file.state == State::Done) {
            // Another pass.
            for file in &mut self.files {
                (file.state, file.served) = (State::Closed, 0);
            }
        }
        let at = match self.service {
            Service::RoundRobin(_) | Service::Sequential => self.next_in_turn(),
            Service::Random(_) | Service::Skewed(_) => self.next_drawn(),
        };
        self.files[at].state = State::Open;
        self.left_in_row = match self.service {
            Service::Random(nr) | Service::RoundRobin(nr) => nr.max(1),
            Service::Sequential | Service::Skewed(_) => 1,
        };
        self.current = Some(at);
        Some(at)
    }

    fn is_usable(&self, at: usize) -> bool {
        let nr_open = || self.files.iter().filter(|file| file.state == State::Open).count();
        match self.files[at].state {
            State::Open => true,
            State::Closed => nr_open() < self.openfiles,
            State::Done => false,
        }
    }

    /// Returns the next usable file in turn. There is one: a file is open, or none is.
    fn next_in_turn(&mut self) -> usize {
        loop {
            let at = self.next;
            self.next = (at + 1) % self.files.len();
            if self.is_usable(at) {
                return at;
            }
        }
    }

    fn next_drawn(&mut self) -> usize {
        let nr = self.files.len() as u64;
        // Without luck, the next one in turn: most files may be done.
        for _ in 0..4 * nr {
            let at = match &mut self.skew {
                Some(skew) => skew.draw(),
                None => self.draws.below(nr),
            };
            if self.is_usable(at as usize) {
                return at as usize;
            }
        }
        self.next_in_turn()
    }
}

impl Iterator for Files {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let direction = self.direction()?;
        self.next_as(direction)
    }
}

impl Stream for Files {
    fn direction(&mut self) -> Option<Direction> {
        let at = self.file()?;
        self.files[at].ops.direction()
    }

    fn next_as(&mut self, direction: Direction) -> Option<Op> {
        let at = self.file()?;
        let file = &mut self.files[at];
        let op = file.ops.next_as(direction)?;
        file.served += u64::from(op.len);
        if self.ends && file.served >= file.len {
            file.state = State::Done;
        }
        self.left_in_row = self.left_in_row.saturating_sub(1);
        self.left_bytes = self.left_bytes.saturating_sub(op.len.into());
        self.left_ios -= 1;
        Some(Op { file: at as u16, ..op })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{Pattern, Region};

    fn workload(rw: &str, blocks: u64) -> Workload {
        Workload {
            pattern: Pattern::from_word(rw).expect("a pattern"),
            rwmixread: 50,
            bs: 4096,
            region: Region { offset: 0, len: blocks * 4096 },
            io_size: None,
            norandommap: false,
            seed: 1,
            stream: 0,
            variety: None,
        }
    }

    /// Returns file and block of each I/O, over three files of four blocks.
    fn order(service: Service, openfiles: Option<u32>, nr: u64) -> Vec<(u16, u64)> {
        let all = vec![workload("write", 4); 3];
        let ops = Files::new(&all, &service, openfiles, Some(nr * 4096));
        ops.map(|op| (op.file, op.offset / 4096)).collect()
    }

    #[test]
    fn files_are_served_in_the_order_of_fio() {
        let in_turn: Vec<_> = (0..4).flat_map(|block| (0..3).map(move |at| (at, block))).collect();
        assert_eq!(order(Service::default(), None, 12), in_turn);
        let one_by_one: Vec<_> =
            (0..3).flat_map(|at| (0..4).map(move |block| (at, block))).collect();
        assert_eq!(order(Service::Sequential, None, 12), one_by_one);
        assert_eq!(order(Service::default(), Some(1), 12), one_by_one);
        let by_three = order(Service::RoundRobin(3), None, 12);
        assert_eq!(by_three[..4], [(0, 0), (0, 1), (0, 2), (1, 0)]);
        assert_eq!(by_three[9..], [(0, 3), (1, 3), (2, 3)]);
        let two_open = order(Service::default(), Some(2), 12);
        assert_eq!(two_open[..4], [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(two_open[8..], [(2, 0), (2, 1), (2, 2), (2, 3)]);
    }

    #[test]
    fn each_block_is_visited_once_per_pass() {
        for service in [Service::default(), Service::Random(1), Service::Random(3)] {
            let mut seen = order(service, None, 24);
            seen.sort_unstable();
            let twice: Vec<_> =
                (0..3).flat_map(|at| (0..4).flat_map(move |block| [(at, block); 2])).collect();
            assert_eq!(seen, twice);
        }
    }

    #[test]
    fn skewed_service_prefers_some_files() {
        let all = vec![workload("randread", 4); 8];
        let service = Service::Skewed(Distribution::Zipf(1.2));
        let mut counts = [0; 8];
        for op in Files::new(&all, &service, None, Some(8000 * 4096)) {
            counts[usize::from(op.file)] += 1;
        }
        counts.sort_unstable();
        assert_eq!(counts.iter().sum::<u32>(), 8000);
        assert!(counts[7] > 4 * counts[0], "{counts:?}");
    }

    #[test]
    fn number_of_ios_is_that_of_all_files() {
        let mut all = vec![workload("randread", 4); 3];
        let sizes = [(); 3].map(|()| crate::generator::sizes::SizeRule::Fixed(4096));
        for workload in &mut all {
            workload.variety = Some(Box::new(crate::generator::varied::Variety {
                sizes: sizes.clone(),
                unaligned: false,
                align: [None; 3],
                distribution: Distribution::Random,
                percentage_random: [100; 3],
                step: 0,
                identical: false,
                number_ios: Some(7),
                zones: None,
                zoned: None,
            }));
        }
        assert_eq!(Files::new(&all, &Service::default(), None, None).count(), 7);
    }
}
