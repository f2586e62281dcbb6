//! The RAM device and its queues.
//!
//! With `req_ns` and `io_ns` each request takes `req_ns + io_ns * bios` on the device's own clock,
//! one request after another. This is the model behind the published plug figures: a request costs
//! the same however many bios it merges, and each bio adds a little. The data moves when the
//! request is issued; it completes when the device's clock reaches its time. All queues share the
//! clock, so more queues do not make the device faster.

use crate::claim::Claim;
use crate::driver::deadline::Deadline;
use crate::driver::kick_cost::KickCost;
use crate::driver::memory::Memory;
use crate::driver::timer::{SPIN_NS, Timer};
use crate::driver::{Device, DriverQueue, Mode, Opened, ideal_limits, sized_target, take_ns};
use crate::error::OpenError;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use crate::sys::clock;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Op, QueueLimits, Reap, Tag};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
struct RamDevice {
    ram: Arc<Ram>,
    kick_cost: KickCost,
}

#[derive(Debug)]
struct RamDriver {
    ram: Arc<Ram>,
    kick_cost: KickCost,
    /// Requests in the order of completion.
    running: VecDeque<Running>,
    takes_time: bool,
    timer: Arc<Timer>,
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
    // Zeroing returns memory to the system as a discard does, so a discard is not needed for that.
    let facts = DiskFacts { zeroes_fast: true, ..DiskFacts::default() };
    let features = vec![
        Feature::present("discard", "gives memory back; up to 256 ranges in one request"),
        Feature::present("write_zeroes", "gives memory back"),
        Feature::missing("flush", "there is no cache; a flush ends at once"),
        Feature::missing("fua", "there is no cache, so FUA changes nothing"),
    ];
    let device = Arc::new(RamDevice { ram: Arc::new(ram), kick_cost });
    let defaults = Defaults { elide: true, ..Defaults::default() };
    Ok(Opened { device, facts, features, notice: None, defaults, claim: Claim::memory() })
}

impl Device for RamDevice {
    fn limits(&self) -> QueueLimits {
        self.ram.limits
    }

    fn ends_at_once(&self) -> bool {
        !self.ram.takes_time()
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<DriverQueue> {
        let takes_time = self.ram.takes_time();
        let timer = Arc::new(if takes_time { Timer::new() } else { Timer::of_ready() });
        let driver = RamDriver {
            ram: Arc::clone(&self.ram),
            kick_cost: self.kick_cost,
            running: VecDeque::with_capacity(depth as usize),
            takes_time,
            timer: Arc::clone(&timer),
        };
        Ok(DriverQueue { driver: Box::new(driver), waiter: timer })
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

impl RamDriver {
    /// Sets the waiter's timer to the first completion.
    fn set_timer(&self) {
        if self.takes_time {
            self.timer.set(self.running.front().map(|first| first.done_at_ns));
        }
    }

    /// Resets the descriptor for event loops.
    #[inline]
    fn end_reap(&self) {
        if self.takes_time {
            self.timer.reaped();
        }
    }
}

impl Driver for RamDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        match rq.op {
            Op::Read | Op::Write => self.ram.memory.move_data(rq),
            Op::Discard | Op::WriteZeroes => {
                rq.ranges().for_each(|(start, len)| self.ram.memory.zero(start, len));
            }
            Op::Flush => {}
        }
        let done_at_ns = if self.takes_time { self.ram.done_at_ns(rq.nr_bios) } else { 0 };
        self.running.push_back(Running { tag: rq.tag, len: rq.len, done_at_ns });
        if self.running.len() == 1 {
            self.set_timer();
        }
        self.kick_cost.queued();
        Issue::Queued
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
        while let Some(first) = self.running.pop_front_if(|first| first.done_at_ns <= now) {
            done.push(first.tag, Ok(first.len));
        }
        if self.running.len() < before {
            self.set_timer();
        }
        self.end_reap();
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        self.kick_cost.pay();
        let until = Deadline::after(timeout);
        let done_at_ns = match self.running.get(nr_completions as usize - 1) {
            Some(last) => last.done_at_ns,
            None if until == Deadline::NEVER => return,
            None => u64::MAX,
        };
        loop {
            let now = clock::now_ns();
            if done_at_ns.min(until.at_ns()) <= now {
                return;
            }
            if until.at_ns() < done_at_ns {
                // Less exact, because nothing completes then.
                std::thread::sleep(Duration::from_nanos(until.at_ns() - now));
                continue;
            }
            match (done_at_ns - now).checked_sub(SPIN_NS) {
                Some(sleep_ns) => std::thread::sleep(Duration::from_nanos(sleep_ns)),
                None => std::hint::spin_loop(),
            }
        }
    }

    fn kick(&mut self) {
        self.timer.kick();
    }

    #[inline]
    fn has_ready(&self) -> bool {
        !self.takes_time && !self.running.is_empty()
    }

    fn makes_syscalls(&self) -> bool {
        false
    }
}
