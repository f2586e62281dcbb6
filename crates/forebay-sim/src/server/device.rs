//! The device: a model for times and faults, a [`Store`] for the data, and a `Driver` of the core.
//!
//! A command transfers its data when it begins or when it is done, so that overlapping commands
//! meet in every order. A command that fails may have done any part of its work. A short command
//! has done exactly the part that it reports. The layer sends the rest again, whatever was written
//! there in the meantime; if the device had done a part of the rest before, stale data would come
//! back.

use super::context::{Context, Event};
use super::memory::{Memories, Memory};
use super::plant::ServerPlant;
use super::store::{SECTOR, Store};
use super::trace::Met;
use forebay_core::{
    BlockStatus, Completions, Driver, Issue, IssuedRequest, Op, QueueLimits, Reap, Segment, Tag,
};
use forebay_model::{Admission, Command, Model, Service};
use std::collections::VecDeque;
use std::time::Duration;

/// A command at the device.
#[derive(Debug)]
struct Running {
    op: Op,
    is_fua: bool,
    command: Command,
    segments: Vec<Segment>,
    ranges: Vec<(u64, u64)>,
    /// For a flush: when it began.
    began: u64,
    result: Result<u64, BlockStatus>,
    is_applied: bool,
    /// The sectors and versions that it has written.
    written: Vec<(u64, u64)>,
}

/// The commands of one hardware context.
#[derive(Debug, Default)]
struct Part {
    /// By tag.
    running: Vec<Option<Running>>,
    /// Queued, and not committed.
    queued: Vec<usize>,
    /// Done, and not reaped.
    done: VecDeque<usize>,
}

/// The device of all hardware contexts.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) store: Store,
    model: Box<dyn Model>,
    parts: Vec<Part>,
    is_flush_queueable: bool,
    /// Writes are durable at once, without a flush.
    is_durable: bool,
    /// A failed flush loses the cached writes.
    failure_loses: bool,
}

impl Device {
    pub(crate) fn new(model: Box<dyn Model>, limits: &QueueLimits, failure_loses: bool) -> Device {
        let nr_sectors = limits.capacity_bytes.unwrap_or(0) / SECTOR;
        Device {
            store: Store::new(nr_sectors),
            model,
            parts: Vec::new(),
            is_flush_queueable: limits.flush_queueable,
            is_durable: !limits.volatile_cache,
            failure_loses,
        }
    }

    /// Opens a disk on the device, with so many contexts of so many tags.
    pub(crate) fn open(&mut self, nr_hctxs: u32, depth: u32) {
        let part = || Part { running: (0..=depth).map(|_| None).collect(), ..Part::default() };
        self.parts = (0..nr_hctxs).map(|_| part()).collect();
    }

    /// Returns the number of commands at the device.
    pub(crate) fn nr_running(&self) -> usize {
        self.parts.iter().flat_map(|part| &part.running).flatten().count()
    }

    /// Drops every command under way; some of them are done before.
    pub(crate) fn abandon<M: Memory>(&mut self, memories: &mut Memories<M>, context: &mut Context) {
        for at in 0..self.parts.len() {
            for tag in 0..self.parts[at].running.len() {
                if context.random.chance(1, 2) {
                    self.apply(at, tag, memories, context);
                }
            }
        }
        self.parts.clear();
    }

    fn is_busy_with(&self, op: Op) -> bool {
        let mut running = self.parts.iter().flat_map(|part| &part.running).flatten();
        !self.is_flush_queueable && running.any(|other| op == Op::Flush || other.op == Op::Flush)
    }

    /// Completes a command.
    pub(crate) fn done<M: Memory>(
        &mut self,
        at: usize,
        tag: usize,
        memories: &mut Memories<M>,
        cx: &mut Context,
    ) {
        self.apply(at, tag, memories, cx);
        cx.note(Met::DeviceDone, at as u64, tag as u64);
        self.parts[at].done.push_back(tag);
    }

    /// Transfers the data of a command, once.
    fn apply<M: Memory>(
        &mut self,
        at: usize,
        tag: usize,
        memories: &mut Memories<M>,
        cx: &mut Context,
    ) {
        let Some(running) = &mut self.parts[at].running[tag] else { return };
        if std::mem::replace(&mut running.is_applied, true) || running.op == Op::Flush {
            return;
        }
        let sure_bytes = running.result.unwrap_or(0);
        let may_be_done = running.result.is_err() && running.op != Op::Read;
        let mut places = running.segments.iter().flat_map(|segment| {
            let sectors = (0..segment.len as usize).step_by(SECTOR as usize);
            sectors.map(|at| segment.addr + at)
        });
        let sectors = running.ranges.iter().flat_map(|(start, len)| {
            (*start..start + len).step_by(SECTOR as usize).map(|at| at / SECTOR)
        });
        for (nth, sector) in sectors.enumerate() {
            let place = places.next();
            let is_sure = (nth as u64 + 1) * SECTOR <= sure_bytes;
            let is_done = is_sure || (may_be_done && cx.random.chance(1, 2));
            if !is_done {
                continue;
            }
            if running.op == Op::Read {
                let place = place.expect("a read has memory");
                let contents = self.store.read(sector);
                memories.at(place, SECTOR as usize, |bytes| bytes.copy_from_slice(contents));
                continue;
            }
            if running.op == Op::Discard && cx.random.chance(1, 2) {
                continue;
            }
            let bytes = match place {
                Some(place) => memories.at(place, SECTOR as usize, |bytes| bytes.to_vec()),
                None => vec![0; SECTOR as usize],
            };
            running.written.push((sector, self.store.write(sector, bytes)));
        }
    }

    /// Passes the completion of a command to the layer.
    fn hand_over(&mut self, at: usize, tag: usize, cx: &mut Context) -> Result<u64, BlockStatus> {
        let running = self.parts[at].running[tag].take().expect("a command that ends was taken");
        let result = running.result;
        if result.is_err() {
            cx.note(Met::DeviceFailed, at as u64, tag as u64);
        }
        if running.op.moves_data() && result.is_ok_and(|moved| moved < running.command.len) {
            cx.note(Met::DeviceShort, at as u64, tag as u64);
        }
        match (running.op, result) {
            (Op::Flush, Ok(_)) if cx.plants(ServerPlant::LieFlush) => {}
            (Op::Flush, Ok(_)) => self.store.flushed(running.began),
            (Op::Flush, Err(_)) => {
                cx.note(Met::FlushFailed, at as u64, 0);
                if self.failure_loses {
                    self.store.lose();
                }
            }
            _ => {}
        }
        let nr_sure = (result.unwrap_or(0) / SECTOR) as usize;
        for &(sector, id) in &running.written {
            // A discard is all or nothing; a command of another kind may be done in part.
            let is_sure = match running.op {
                Op::Discard => result.is_ok(),
                _ => is_within(&running.ranges, nr_sure, sector),
            };
            if is_sure {
                self.store.completed(sector, id, running.is_fua || self.is_durable);
            }
        }
        result
    }
}

/// Returns whether a sector is among the first `nr_sectors` of these ranges.
fn is_within(ranges: &[(u64, u64)], nr_sectors: usize, sector: u64) -> bool {
    let sectors = ranges.iter().flat_map(|(start, len)| start / SECTOR..(start + len) / SECTOR);
    sectors.take(nr_sectors).any(|other| other == sector)
}

/// The device as one hardware context sees it.
#[derive(Debug)]
pub(crate) struct Port<'a, M> {
    pub(crate) device: &'a mut Device,
    pub(crate) memories: &'a mut Memories<M>,
    pub(crate) context: &'a mut Context,
    pub(crate) hctx: usize,
}

impl<M: Memory> Driver for Port<'_, M> {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let Port { device, context, .. } = self;
        let command = Command { op: rq.op, start: rq.start, len: rq.len };
        let admission = match device.is_busy_with(rq.op) {
            true => Admission::Busy,
            false => device.model.admit(&command, &mut context.random),
        };
        match admission {
            Admission::Busy => {
                context.note(Met::DeviceBusy, self.hctx as u64, rq.start);
                return Issue::Busy;
            }
            Admission::Refused(status) => return Issue::Failed(status),
            Admission::Taken => {}
        }
        let part = &mut device.parts[self.hctx];
        let row = &mut part.running[rq.tag.index()];
        assert!(row.is_none(), "a tag is issued again when it was reaped (K1)");
        let ranges = if rq.op == Op::Flush { Vec::new() } else { rq.ranges().collect() };
        let began = device.store.mark();
        *row = Some(Running {
            op: rq.op,
            is_fua: rq.fua,
            command,
            segments: rq.segments().collect(),
            ranges,
            began,
            result: Ok(0),
            is_applied: false,
            written: Vec::new(),
        });
        part.queued.push(rq.tag.index());
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        for tag in std::mem::take(&mut self.device.parts[self.hctx].queued) {
            let cx = &mut *self.context;
            let running = self.device.parts[self.hctx].running[tag].as_mut();
            let running = running.expect("a queued command was taken");
            let served = self.device.model.serve(&running.command, cx.now, &mut cx.random);
            let Service { done_at_ns, result } = served;
            running.result = result;
            if cx.random.chance(1, 2) {
                self.device.apply(self.hctx, tag, self.memories, cx);
            }
            cx.after(done_at_ns - cx.now, Event::Done(self.hctx, tag));
        }
    }

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        while let Some(tag) = self.device.parts[self.hctx].done.pop_front() {
            let result = self.device.hand_over(self.hctx, tag, self.context);
            done.push(Tag::from_index(tag), result);
        }
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {
        unreachable!("commands complete outside of a turn");
    }
}
