//! State of one connection: its features, its memory and its rings.
//!
//! `messages.rs` has the messages, which call the functions here.
//!
//! A ring starts when its size, its addresses and its kick descriptor have arrived, in any order,
//! and the features are set. It stops with GET_VRING_BASE. A message that would change the place of
//! a running ring is refused.

mod inflight;
mod messages;

use super::Rings;
use super::backend_fd::SetBackendFd;
use super::events::eventfd;
use super::refusal::{Refusal, refuse};
use super::regions::Regions;
use super::ring::{RingAddresses, RingState};
use crate::config::{Config, MIN_QUEUE_SIZE, PROTOCOL_FEATURES, WriteCache, written_cache};
use crate::inflight::InflightMemory;
use crate::memory::GuestMemory;
use crate::setup::RingCommand;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserProtocolFeatures as Protocol};

/// Wait for a ring's thread before the counters of its eventfds are checked. They are full only if
/// the front end is hostile.
const FULL_CHECK: Duration = Duration::from_millis(100);

/// State of a connection.
#[derive(Debug)]
pub(super) struct Session<'a, R> {
    config: &'a Config,
    cache: &'a WriteCache,
    threads: &'a R,
    /// Negotiated features. `None`: SET_FEATURES has not arrived.
    features: Option<u64>,
    /// Negotiated protocol features.
    protocol: Protocol,
    /// The crate has received the socket of the backend channel.
    has_lost_channel: bool,
    regions: Regions,
    /// The table of the regions, for the threads of the rings.
    memory: GuestMemory,
    /// The region that the front end has set.
    inflight: Option<InflightMemory>,
    rings: Vec<RingState>,
    /// Whether no message about a ring or the configuration has followed GET_QUEUE_NUM.
    ends_at_queue_num: bool,
}

impl<'a, R: Rings> Session<'a, R> {
    pub(super) fn new(config: &'a Config, cache: &'a WriteCache, threads: &'a R) -> Session<'a, R> {
        let rings = (0..config.nr_queues()).map(|_| RingState::default()).collect();
        Session {
            config,
            cache,
            threads,
            features: None,
            protocol: Protocol::empty(),
            has_lost_channel: false,
            regions: Regions::default(),
            memory: GuestMemory::empty(),
            inflight: None,
            rings,
            ends_at_queue_num: false,
        }
    }

    /// Stops all rings, and waits until the last request of each is answered.
    pub(super) fn stop_all(&mut self) {
        let stops: Vec<_> =
            (0..self.rings.len()).filter_map(|ring| self.begin_stop(ring)).collect();
        for (ring, stop) in stops {
            // A thread that has panicked answers nothing, and the server ends.
            self.rings[ring].base = self.answer(&stop).unwrap_or_default();
        }
    }

    /// Sends the stop command to a ring that runs.
    fn begin_stop(&mut self, ring: usize) -> Option<(usize, Receiver<u16>)> {
        let is_started = std::mem::take(&mut self.rings[ring].is_started);
        let (sender, answer) = sync_channel(1);
        let is_sent = is_started && self.send(ring, RingCommand::Stop(sender)).is_ok();
        is_sent.then_some((ring, answer))
    }

    /// Stops a ring, and waits until its last request is answered.
    fn stop(&mut self, ring: usize) -> Result<(), Refusal> {
        if !self.rings[ring].is_started {
            return Ok(());
        }
        let (_, answer) = self.begin_stop(ring).ok_or_else(thread_gone)?;
        self.rings[ring].base = self.answer(&answer)?;
        self.threads.stopped(ring as u16);
        Ok(())
    }

    /// Starts a ring if it has all that it needs.
    fn start_if_complete(&mut self, ring: usize) -> Result<(), Refusal> {
        let Some(features) = self.features else { return Ok(()) };
        let state = &mut self.rings[ring];
        if state.is_started || !state.is_complete() {
            return Ok(());
        }
        // Without protocol features there is no message that enables a ring.
        state.is_enabled |= features & 1 << PROTOCOL_FEATURES == 0;
        let inflight = self.inflight.clone().map(|region| (region, ring as u16));
        let setup = Box::new(state.setup((&self.regions, &self.memory), features, inflight)?);
        self.send(ring, RingCommand::Start(setup))?;
        self.rings[ring].is_started = true;
        Ok(())
    }

    fn send(&self, ring: usize, command: RingCommand) -> Result<(), Refusal> {
        let is_sent = self.threads.send(ring as u16, command);
        is_sent.then_some(()).ok_or_else(thread_gone)
    }

    /// Waits for the answer of a ring's thread.
    ///
    /// That thread may be blocked by a front end that has made an eventfd block and has filled its
    /// counter. So full counters are emptied here after a while, until the thread answers.
    fn answer<T>(&self, answers: &Receiver<T>) -> Result<T, Refusal> {
        loop {
            match answers.recv_timeout(FULL_CHECK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => self.rings.iter().for_each(RingState::unblock),
                Err(RecvTimeoutError::Disconnected) => return Err(thread_gone()),
            }
        }
    }

    /// Returns the index of a ring that exists.
    fn ring(&mut self, index: u32) -> Result<usize, Refusal> {
        self.ends_at_queue_num = false;
        let nr = self.rings.len();
        let known = |index: &usize| *index < nr;
        usize::try_from(index).ok().filter(known).ok_or_else(|| {
            let asked = u64::from(index) + 1;
            refuse(format_args!("the front end asks for {asked} queues or more, {}", offer(nr)))
        })
    }

    /// Returns the number of queues.
    fn nr_queues(&mut self) -> u64 {
        self.ends_at_queue_num = true;
        self.rings.len() as u64
    }

    /// Returns whether the front end has a reason of its own to close the connection now: QEMU does
    /// so if the device has fewer queues than it needs, and the protocol has no message for that.
    pub(super) fn close(&self) -> Result<(), String> {
        match self.ends_at_queue_num {
            false => Ok(()),
            true => Err(format!(
                "closed by the front end when it had read the number of queues: it may ask for \
                 more, {}",
                offer(self.rings.len())
            )),
        }
    }

    /// Returns the index of a ring that exists and does not run.
    fn idle_ring(&mut self, index: u32) -> Result<usize, Refusal> {
        let ring = self.ring(index)?;
        match self.rings[ring].is_started {
            true => Err(refuse(format_args!("ring {ring} runs: GET_VRING_BASE stops it"))),
            false => Ok(ring),
        }
    }

    /// Replaces the memory regions. Rings that run must stay where they are.
    fn set_regions(&mut self, regions: Regions) -> Result<(), Refusal> {
        let running = |ring: &usize| self.rings[*ring].is_started;
        let running: Vec<_> = (0..self.rings.len()).filter(running).collect();
        for ring in &running {
            let state = &self.rings[*ring];
            let moved = |_| refuse(format_args!("ring {ring} runs in memory that goes away"));
            let after = state.guest_addresses(&regions).map_err(moved)?;
            if after != state.guest_addresses(&self.regions)? {
                return Err(refuse(format_args!("ring {ring} runs in memory that moves")));
            }
        }
        let memory = regions.table();
        if !memory.is_watched() {
            return Err(refuse("too many memory regions are in use, of all front ends together"));
        }
        (self.regions, self.memory) = (regions, memory);
        let (sender, answers) = sync_channel(running.len());
        for ring in &running {
            self.send(*ring, RingCommand::Memory(self.memory.clone(), sender.clone()))?;
        }
        drop(sender);
        // The answer to the message allows the guest to use new memory: a ring that looked for it
        // in the former table would stop.
        for _ in running {
            self.answer(&answers)?;
        }
        Ok(())
    }

    fn set_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<(), Refusal> {
        let regions = Regions::of_table(table, files)?;
        self.set_regions(regions)
    }

    fn set_size(&mut self, index: u32, size: u32) -> Result<(), Refusal> {
        let ring = self.idle_ring(index)?;
        let most = self.config.queue_size();
        let size = u16::try_from(size)
            .ok()
            .filter(|size| size.is_power_of_two() && (MIN_QUEUE_SIZE..=most).contains(size))
            .ok_or_else(|| {
                refuse(format_args!(
                    "a ring of {size} descriptors: expected a power of two, {MIN_QUEUE_SIZE} to \
                     {most}"
                ))
            })?;
        self.rings[ring].size = Some(size);
        self.start_if_complete(ring)
    }

    fn set_addresses(&mut self, index: u32, addresses: RingAddresses) -> Result<(), Refusal> {
        let ring = self.idle_ring(index)?;
        self.rings[ring].addresses = Some(addresses);
        self.start_if_complete(ring)
    }

    fn set_base(&mut self, index: u32, base: u32) -> Result<(), Refusal> {
        let ring = self.idle_ring(index)?;
        let base =
            u16::try_from(base).map_err(|_| refuse(format_args!("index {base} is above 65535")))?;
        self.rings[ring].base = base;
        Ok(())
    }

    fn take_base(&mut self, index: u32) -> Result<u16, Refusal> {
        let ring = self.ring(index)?;
        self.stop(ring)?;
        // A ring that has stopped starts again with the next kick descriptor.
        self.rings[ring].kick = None;
        Ok(self.rings[ring].base)
    }

    fn set_kick(&mut self, index: u8, file: Option<File>) -> Result<(), Refusal> {
        let ring = self.ring(index.into())?;
        let file = file
            .ok_or_else(|| refuse("a ring without a kick descriptor (polling) is not supported"))?;
        let kick = eventfd(file)?;
        self.stop(ring)?;
        self.rings[ring].kick = Some(kick);
        self.start_if_complete(ring)
    }

    /// Replaces the call or the error descriptor of a ring.
    fn set_event(
        &mut self,
        index: u8,
        file: Option<File>,
        place: fn(&mut RingState) -> &mut Option<OwnedFd>,
        command: fn(Option<OwnedFd>, SyncSender<()>) -> RingCommand,
    ) -> Result<(), Refusal> {
        let ring = self.ring(index.into())?;
        let event = file.map(eventfd).transpose()?;
        if self.rings[ring].is_started {
            let copy = event.as_ref().map(OwnedFd::try_clone).transpose();
            let copy =
                copy.map_err(|why| refuse(format_args!("cannot duplicate a descriptor: {why}")))?;
            let (sender, answer) = sync_channel(1);
            self.send(ring, command(copy, sender))?;
            // The former one is kept until then, because the thread may be blocked by it. So a
            // front end cannot queue descriptors for a thread without limit either.
            self.answer(&answer)?;
        }
        *place(&mut self.rings[ring]) = event;
        Ok(())
    }

    fn enable(&mut self, index: u32, enable: bool) -> Result<(), Refusal> {
        let ring = self.ring(index)?;
        self.rings[ring].is_enabled = enable;
        if !self.rings[ring].is_started {
            return Ok(());
        }
        let (sender, answer) = sync_channel(1);
        self.send(ring, RingCommand::Enable(enable, sender))?;
        // The front end may rely on the answer: a disabled ring takes no more requests.
        self.answer(&answer)
    }

    fn negotiate(&mut self, features: u64) -> Result<(), Refusal> {
        let unknown = features & !self.config.features();
        if unknown != 0 {
            return Err(refuse(format_args!(
                "the front end sets features {unknown:#x}, which are not offered"
            )));
        }
        let is_change = self.features.is_some_and(|before| before != features);
        if is_change && self.rings.iter().any(|ring| ring.is_started) {
            return Err(refuse("the features cannot change while a ring runs"));
        }
        self.features = Some(features);
        (0..self.rings.len()).try_for_each(|ring| self.start_if_complete(ring))
    }

    /// Returns whether messages may demand replies.
    pub(super) fn replies(&self) -> bool {
        self.protocol.contains(Protocol::REPLY_ACK)
    }

    /// Returns whether a message with the socket of the backend channel was received where its
    /// socket is lost.
    pub(super) fn has_lost_channel(&self) -> bool {
        self.has_lost_channel
    }

    /// Sets the socket of the backend channel.
    pub(super) fn set_backend_fd(&mut self, message: &mut SetBackendFd) -> Result<(), Refusal> {
        if !self.protocol.contains(Protocol::BACKEND_REQ) {
            return Err(refuse("BACKEND_REQ was not negotiated"));
        }
        self.config.backend_channel().set(message.socket()?);
        Ok(())
    }

    fn write_config(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Refusal> {
        let features = self.features.unwrap_or_default();
        let is_on = written_cache(offset, bytes, features).ok_or_else(|| {
            let len = bytes.len();
            refuse(format_args!("{len} bytes at {offset}: only wce, 0 or 1, can be written"))
        })?;
        if let Some(region) = &self.inflight {
            region.set_write_through(!is_on);
        }
        self.cache.set(is_on);
        Ok(())
    }
}

/// Returns how many queues the device has, and the remedy if that is too few.
fn offer(nr_queues: usize) -> String {
    format!(
        "and the device has {nr_queues} (lower num-queues of the virtual machine, or raise \
         --num-queues of the server)"
    )
}

fn thread_gone() -> Refusal {
    refuse("the thread of the ring has ended")
}
