//! fio's figures of one clone of a job, from the submissions and ends of its bios.

use crate::runtime::thread::Ended;
use forebay_core::BlockStatus;
use forebay_fio::generator::Direction;
use forebay_fio::stats::{JobStats, Latency, Usage};
use std::collections::VecDeque;

/// The result of one clone.
#[derive(Clone, Debug)]
pub struct CloneFigures {
    /// The index of its job in the list of jobs.
    pub job: usize,
    /// Its number among the clones of that job.
    pub clone: u32,
    /// fio's figures, in virtual time.
    pub stats: JobStats,
    /// The status of its first bio that failed.
    pub first_error: Option<BlockStatus>,
    /// By how much the I/Os of a recorded thread were submitted after they were due; `None` if they
    /// have no times, and for a job.
    pub lateness: Option<Box<Latency>>,
}

impl CloneFigures {
    /// Returns the latencies of its successful I/Os, ns. Those of a recorded thread count from the
    /// time at which an I/O was due.
    pub fn latency(&self) -> Latency {
        let mut latency = Latency::default();
        for direction in &self.stats.directions {
            latency.moments += &direction.lat;
            latency.histogram.merge(&direction.lat_histogram);
        }
        latency
    }
}

/// A bio in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    kind: Kind,
    /// When its submission began, or was due.
    start_ns: u64,
    /// When its batch was committed; `None` before.
    committed_ns: Option<u64>,
}

/// The kind of a bio, as fio counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An I/O of this direction.
    Io(Direction),
    /// A flush for `fsync`.
    Sync,
    /// The flush at the end of the job, which fio does not count.
    LastSync,
}

/// The figures of a clone that runs.
#[derive(Debug)]
pub(crate) struct Figures {
    stats: JobStats,
    first_error: Option<BlockStatus>,
    is_device_gone: bool,
    start_ns: u64,
    flights: Flights,
}

/// The bios in flight.
#[derive(Debug, Default)]
struct Flights {
    /// In the order of their serial numbers, with `None` for a bio that has ended. The first one is
    /// in flight.
    list: VecDeque<(u64, Option<Flight>)>,
    /// The number of those in flight.
    nr: u32,
}

impl Flights {
    fn add(&mut self, serial: u64, flight: Flight) {
        self.list.push_back((serial, Some(flight)));
        self.nr += 1;
    }

    fn has(&self, serial: u64) -> bool {
        let at = self.list.binary_search_by_key(&serial, |(other, _)| *other);
        at.is_ok_and(|at| self.list[at].1.is_some())
    }

    fn remove(&mut self, serial: u64) -> Option<Flight> {
        let at = self.list.partition_point(|(other, _)| *other < serial);
        let (_, place) = self.list.get_mut(at).filter(|(other, _)| *other == serial)?;
        let flight = place.take()?;
        self.nr -= 1;
        while self.list.front().is_some_and(|(_, flight)| flight.is_none()) {
            self.list.pop_front();
        }
        Some(flight)
    }

    /// Returns the bios in flight, the newest first.
    fn newest_first(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.list.iter_mut().rev().filter_map(|(_, flight)| flight.as_mut())
    }
}

impl Figures {
    /// Returns the figures of a clone that begins now.
    pub(crate) fn new(now_ns: u64) -> Figures {
        let stats = JobStats::new(now_ns);
        Figures {
            stats,
            first_error: None,
            is_device_gone: false,
            start_ns: now_ns,
            flights: Flights::default(),
        }
    }

    /// Adds a bio whose submission began, or was due, at `start_ns`. Its latency counts from then.
    pub(crate) fn submitted(&mut self, serial: u64, start_ns: u64, kind: Kind) {
        self.flights.add(serial, Flight { kind, start_ns, committed_ns: None });
    }

    /// Records that the bios submitted since the last call are committed.
    pub(crate) fn committed(&mut self, now_ns: u64) {
        let depth = self.flights.nr;
        let mut nr = 0;
        for flight in self.flights.newest_first() {
            if flight.committed_ns.is_some() {
                break;
            }
            flight.committed_ns = Some(now_ns);
            if let Kind::Io(direction) = flight.kind {
                self.stats.record_slat(direction, now_ns - flight.start_ns);
                nr += 1;
            }
        }
        if nr > 0 {
            self.stats.record_submit(nr, depth);
        }
    }

    /// Records a batch of bios that were reaped now.
    pub(crate) fn reaped(&mut self, now_ns: u64, ended: &[Ended]) {
        let mut nr = 0;
        for ended in ended {
            let depth = self.flights.nr;
            let flight = self.flights.remove(ended.serial).expect("a reaped bio was submitted");
            nr += u32::from(flight.kind != Kind::LastSync);
            self.end(flight, depth, now_ns, ended);
        }
        if nr > 0 {
            self.stats.record_reap(nr);
        }
        self.stats.tick(now_ns);
    }

    fn end(&mut self, flight: Flight, depth: u32, now_ns: u64, ended: &Ended) {
        let lat_ns = now_ns - flight.start_ns;
        match (flight.kind, ended.moved()) {
            (_, Err(status)) => {
                self.first_error.get_or_insert(status);
                self.is_device_gone |= status == BlockStatus::Offline;
            }
            (Kind::Io(direction), Ok(moved)) => {
                let clat_ns = now_ns - flight.committed_ns.unwrap_or(flight.start_ns);
                self.stats.record_complete(direction, moved, clat_ns, lat_ns);
                let of_direction = &mut self.stats.directions[direction.index()];
                of_direction.lat_histogram.record(lat_ns);
                of_direction.short_ios += u64::from(moved < ended.len);
            }
            (Kind::Sync, Ok(_)) => self.stats.record_sync(depth, lat_ns),
            (Kind::LastSync, Ok(_)) => {}
        }
    }

    /// Returns whether the bio with this serial number is in flight.
    pub(crate) fn is_in_flight(&self, serial: u64) -> bool {
        self.flights.has(serial)
    }

    /// Returns whether a bio found the device gone, after which no other bio can succeed.
    pub(crate) fn is_device_gone(&self) -> bool {
        self.is_device_gone
    }

    /// Returns the result of the clone, which ends now. It slept `nr_sleeps` times.
    pub(crate) fn finish(
        mut self,
        (job, clone): (usize, u32),
        now_ns: u64,
        nr_sleeps: u64,
    ) -> CloneFigures {
        let runtime_ms = (now_ns - self.start_ns).div_ceil(1_000_000).max(1);
        for direction in self.stats.directions.iter_mut().filter(|it| it.total_ios > 0) {
            direction.runtime_ms = runtime_ms;
        }
        self.stats.job_runtime_ms = runtime_ms;
        self.stats.usage = Usage { voluntary_switches: nr_sleeps, ..Usage::default() };
        let (stats, first_error) = (self.stats, self.first_error);
        CloneFigures { job, clone, stats, first_error, lateness: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(serial: u64, len: u64, result: Result<u64, BlockStatus>) -> Ended {
        Ended { slot: 0, serial, len, ended_ns: 0, waited_ns: 0, latency_ns: 0, result }
    }

    #[test]
    fn bios_that_end_out_of_order_have_the_times_of_their_own_submissions() {
        let mut figures = Figures::new(0);
        figures.submitted(7, 100, Kind::Io(Direction::Read));
        figures.submitted(9, 200, Kind::Io(Direction::Write));
        figures.committed(300);
        figures.reaped(1_250, &[ended(9, 4096, Ok(4096))]);
        let write = &figures.stats.directions[Direction::Write.index()];
        assert_eq!(
            (write.slat.max(), write.clat.moments.max(), write.lat.max()),
            (100, 950, 1_050)
        );
        figures.reaped(2_120, &[ended(7, 4096, Ok(512))]);
        let read = &figures.stats.directions[Direction::Read.index()];
        assert_eq!((read.slat.max(), read.lat.max()), (200, 2_020));
        assert_eq!((read.io_bytes, read.short_ios), (512, 1));
    }

    #[test]
    fn failed_bios_and_the_last_flush_are_no_ios() {
        let mut figures = Figures::new(0);
        for (serial, kind) in [(1, Kind::Io(Direction::Read)), (2, Kind::Sync), (3, Kind::LastSync)]
        {
            figures.submitted(serial, 10 * serial, kind);
        }
        figures.committed(40);
        let failed = ended(1, 4096, Err(BlockStatus::Medium));
        figures.reaped(200, &[failed, ended(2, 0, Ok(0)), ended(3, 0, Ok(0))]);
        let result = figures.finish((1, 2), 3_000_000, 7);
        assert_eq!(result.first_error, Some(BlockStatus::Medium));
        assert_eq!((result.stats.total_ios(), result.stats.sync.moments.count()), (0, 1));
        assert_eq!((result.stats.job_runtime_ms, result.stats.usage.voluntary_switches), (3, 7));
    }
}
