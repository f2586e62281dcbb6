//! The RAM device and its queues.
//!
//! With `req_ns` and `io_ns` each request takes `req_ns + io_ns * bios` on the device's own clock,
//! one request after another. This is the model behind the published plug figures: a request costs
//! the same however many bios it merges, and each bio adds a little. The data moves when the
//! request is issued; it completes when the device's clock reaches its time. All queues share the
//! clock, so more queues do not make the device faster.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use crate::claim::Claim;
use crate::driver::contract::{Answer, BlockingWait, Driver, DriverDevice, Facts, Queue, Wait};
use crate::driver::kick_cost::KickCost;
use crate::driver::memory::Memory;
use crate::driver::timer::Timer;
use crate::driver::{Mode, Opened, ideal_limits, sized_target, take_ns};
use crate::error::OpenError;
use crate::extent::Extents;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use crate::sys::clock;
use forebay_core::{BlockStatus, Completions, IssuedRequest, Op, QueueLimits, Reap, Tag};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// State that the queues of a device share.
#[derive(Debug)]
struct Ram {
    limits: QueueLimits,
    memory: Memory,
    req_ns: u64,
    io_ns: u64,
    /// The time by which the device has done all issued requests.
    free_at_ns: AtomicU64,
}

#[derive(Debug)]
struct RamDriver {
    ram: Arc<Ram>,
    kick_cost: KickCost,
}

#[derive(Debug)]
struct RamQueue {
    ram: Arc<Ram>,
    kick_cost: KickCost,
    /// Requests in the order of completion.
    running: VecDeque<Running>,
    /// `None`: every request completes at once.
    timer: Option<Arc<Timer>>,
}

#[derive(Debug)]
struct Running {
    tag: Tag,
    len: u64,
    done_at_ns: u64,
}

pub(in crate::driver) fn open(
    spec: &Spec,
    keys: &mut Keys,
    _: &Settings,
) -> Result<Opened, OpenError> {
    let (capacity, block) = sized_target(spec, keys)?;
    let (req_ns, io_ns) = (take_ns(keys, "req_ns")?, take_ns(keys, "io_ns")?);
    let kick_cost = KickCost::take(keys)?;
    let memory = Memory::new(capacity).map_err(|source| OpenError::NoMemory {
        driver: "ram",
        len: capacity,
        source,
        hint: "",
    })?;
    let limits = ideal_limits(capacity, block);
    let ram = Ram { limits, memory, req_ns, io_ns, free_at_ns: AtomicU64::new(0) };
    let features = vec![
        Feature::present("discard", "gives memory back; up to 256 ranges in one request"),
        Feature::present("write_zeroes", "gives memory back"),
        Feature::missing("flush", "there is no cache; a flush ends at once"),
        Feature::missing("fua", "there is no cache, so FUA changes nothing"),
    ];
    let device = DriverDevice::new(RamDriver { ram: Arc::new(ram), kick_cost });
    let (facts, device) = (device.facts().disk, Arc::new(device));
    let defaults = Defaults { elide: true, ..Defaults::default() };
    Ok(Opened { device, facts, features, notice: None, defaults, claim: Claim::memory() })
}

// SAFETY: a request moves all of its bytes when it is queued (K6). It is in `running` from then on
// until it is reaped, once (K5).
unsafe impl Driver for RamDriver {
    type Queue = RamQueue;

    fn facts(&self) -> Facts {
        // Zeroing returns memory to the system as a discard does, so a discard is not needed for
        // that.
        let disk = DiskFacts { zeroes_fast: true, ..DiskFacts::default() };
        Facts { disk, ..Facts::new("ram", self.ram.limits) }
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(RamQueue, Wait)> {
        let timer = self.ram.takes_time().then(|| Arc::new(Timer::new()));
        let wait = match &timer {
            Some(timer) => Wait::Blocking(Arc::clone(timer) as Arc<dyn BlockingWait>),
            None => Wait::AtOnce,
        };
        let (ram, running) = (Arc::clone(&self.ram), VecDeque::with_capacity(depth as usize));
        Ok((RamQueue { ram, kick_cost: self.kick_cost, running, timer }, wait))
    }

    fn block_status(&self, _: u64, _: &mut Extents<'_>) -> Result<(), BlockStatus> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

impl Ram {
    fn takes_time(&self) -> bool {
        self.req_ns > 0 || self.io_ns > 0
    }

    /// Returns when a request issued now will be done, by the device's clock. It is later than for
    /// all requests issued before.
    fn done_at_ns(&self, nr_bios: u32) -> u64 {
        let (now, cost) = (clock::now_ns(), self.req_ns + self.io_ns * u64::from(nr_bios));
        let moved = self.free_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_at| {
            Some(free_at.max(now) + cost)
        });
        moved.expect("it always moves").max(now) + cost
    }
}

impl RamQueue {
    /// Sets the waiter's timer to the first completion.
    fn set_timer(&self) {
        if let Some(timer) = &self.timer {
            timer.set(self.running.front().map(|first| first.done_at_ns));
        }
    }

    /// Resets the descriptor for event loops.
    #[inline]
    fn end_reap(&self) {
        if let Some(timer) = &self.timer {
            timer.reaped();
        }
    }
}

// SAFETY: as above.
unsafe impl Queue for RamQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        match rq.op {
            Op::Read | Op::Write => self.ram.memory.move_data(rq),
            Op::Discard | Op::WriteZeroes => {
                rq.ranges().for_each(|(start, len)| self.ram.memory.zero(start, len));
            }
            Op::Flush => {}
        }
        let done_at_ns = self.timer.as_ref().map_or(0, |_| self.ram.done_at_ns(rq.nr_bios));
        self.running.push_back(Running { tag: rq.tag, len: rq.len, done_at_ns });
        if self.running.len() == 1 {
            self.set_timer();
        }
        self.kick_cost.queued();
        Answer::Queued
    }

    fn commit_rqs(&mut self) {
        self.kick_cost.pay();
    }

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        let Some(first) = self.running.front() else {
            return self.end_reap();
        };
        let now = if first.done_at_ns == 0 { 0 } else { clock::now_ns() };
        let before = self.running.len();
        while let Some(first) = self.running.front()
            && first.done_at_ns <= now
        {
            done.push(first.tag, Ok(first.len));
            self.running.pop_front();
        }
        if self.running.len() < before {
            self.set_timer();
        }
        self.end_reap();
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    #[inline]
    fn has_ready(&self) -> bool {
        self.timer.is_none() && !self.running.is_empty()
    }

    fn nr_syscalls(&self) -> Option<u64> {
        self.timer.as_ref().map(|timer| timer.nr_syscalls())
    }
}
