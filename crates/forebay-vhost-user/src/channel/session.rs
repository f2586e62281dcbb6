//! Messages of one connection.
//!
//! A ring starts when its size, its addresses and its kick descriptor have arrived, in any order,
//! and the features are set. It stops with GET_VRING_BASE. A message that would change the place of
//! a running ring is refused.

use super::Rings;
use super::backend_fd::SetBackendFd;
use super::events::eventfd;
use super::refusal::{Refusal, refuse};
use super::regions::{MAX_REGIONS, Regions};
use super::ring::{Places, Ring};
use crate::config::{Config, MIN_QUEUE_SIZE, PROTOCOL_FEATURES, WriteCache, written_cache};
use crate::inflight::{InflightMemory, InflightShape};
use crate::memory::GuestMemory;
use crate::setup::RingCommand;
use std::fs::File;
use std::sync::mpsc::{Receiver, sync_channel};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures as Protocol,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Backend, Error, GpuBackend, VhostUserBackendReqHandlerMut};
use vm_memory::ByteValued;

/// Protocol features of a device. It uses BACKEND_REQ only to report a changed configuration space.
const OFFERED: Protocol = Protocol::MQ
    .union(Protocol::BACKEND_REQ)
    .union(Protocol::INFLIGHT_SHMFD)
    .union(Protocol::CONFIG)
    .union(Protocol::REPLY_ACK)
    .union(Protocol::CONFIGURE_MEM_SLOTS);

/// Result of a message, for the crate `vhost`.
type Reply<T> = Result<T, Error>;

/// Type of the base of a memory region, which only post-copy migration replies.
type Base = vhost::VhostUserMemoryRegionBase;

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
    rings: Vec<Ring>,
}

impl<'a, R: Rings> Session<'a, R> {
    pub(super) fn new(config: &'a Config, cache: &'a WriteCache, threads: &'a R) -> Session<'a, R> {
        let rings = (0..config.nr_queues()).map(|_| Ring::default()).collect();
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
        }
    }

    /// Stops all rings, and waits until the last request of each is answered.
    pub(super) fn stop_all(&mut self) {
        let stops: Vec<_> =
            (0..self.rings.len()).filter_map(|ring| self.begin_stop(ring)).collect();
        for (ring, stop) in stops {
            // A thread that has panicked answers nothing, and the server ends.
            self.rings[ring].base = stop.recv().unwrap_or_default();
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
        let answer = self.begin_stop(ring).and_then(|(_, answer)| answer.recv().ok());
        self.rings[ring].base = answer.ok_or_else(thread_gone)?;
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

    /// Returns the index of a ring that exists.
    fn ring(&self, index: u32) -> Result<usize, Refusal> {
        let nr = self.rings.len();
        let known = |index: &usize| *index < nr;
        usize::try_from(index)
            .ok()
            .filter(known)
            .ok_or_else(|| refuse(format_args!("ring {index} of {nr} does not exist")))
    }

    /// Returns the index of a ring that exists and does not run.
    fn idle_ring(&self, index: u32) -> Result<usize, Refusal> {
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
            let after = state.guest_places(&regions).map_err(moved)?;
            if after != state.guest_places(&self.regions)? {
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
            answers.recv().map_err(|_| thread_gone())?;
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

    fn set_places(&mut self, index: u32, places: Places) -> Result<(), Refusal> {
        let ring = self.idle_ring(index)?;
        self.rings[ring].places = Some(places);
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
        place: fn(&mut Ring) -> &mut Option<std::os::fd::OwnedFd>,
        command: fn(Option<std::os::fd::OwnedFd>) -> RingCommand,
    ) -> Result<(), Refusal> {
        let ring = self.ring(index.into())?;
        let event = file.map(eventfd).transpose()?;
        if self.rings[ring].is_started {
            let copy = event.as_ref().map(std::os::fd::OwnedFd::try_clone).transpose();
            let copy = copy.map_err(|why| refuse(format_args!("no descriptor left: {why}")))?;
            self.send(ring, command(copy))?;
        }
        *place(&mut self.rings[ring]) = event;
        Ok(())
    }

    fn enable(&mut self, index: u32, enable: bool) -> Result<(), Refusal> {
        let ring = self.ring(index)?;
        self.rings[ring].is_enabled = enable;
        match self.rings[ring].is_started {
            true => self.send(ring, RingCommand::Enable(enable)),
            false => Ok(()),
        }
    }

    fn negotiate(&mut self, features: u64) -> Result<(), Refusal> {
        let unknown = features & !self.config.features();
        if unknown != 0 {
            return Err(refuse(format_args!("features {unknown:#x}, which are not offered")));
        }
        let is_change = self.features.is_some_and(|before| before != features);
        if is_change && self.rings.iter().any(|ring| ring.is_started) {
            return Err(refuse("the features cannot change while a ring runs"));
        }
        self.features = Some(features);
        (0..self.rings.len()).try_for_each(|ring| self.start_if_complete(ring))
    }

    /// Creates an in-flight region for the front end to keep.
    fn create_inflight(
        &self,
        asked: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File), Refusal> {
        let shape = self.inflight_shape(asked)?;
        let (_, file) = InflightMemory::create(shape)
            .map_err(|error| refuse(format_args!("cannot create a region: {error}")))?;
        let mut given = VhostUserInflight::default();
        // The crate sends four bytes of padding too, which would be from this process's stack. They
        // are cleared, as far as the compiler keeps padding.
        given.as_mut_slice().fill(0);
        given.mmap_size = shape.len_bytes();
        given.num_queues = shape.nr_queues;
        given.queue_size = shape.queue_size;
        Ok((given, file))
    }

    /// Uses a region that was created before, by this process or its predecessor, for the rings
    /// that start from now on.
    fn set_inflight(&mut self, given: &VhostUserInflight, file: File) -> Result<(), Refusal> {
        if self.rings.iter().any(|ring| ring.is_started) {
            return Err(refuse("the in-flight region cannot change while a ring runs"));
        }
        let shape = self.inflight_shape(given)?;
        let region = InflightMemory::open(file, given.mmap_offset, given.mmap_size, shape);
        let region = region.map_err(refuse)?;
        // The first region of a connection has the driver's setting from before it.
        if self.inflight.is_none() && region.is_write_through() {
            self.cache.set(false);
        }
        region.set_write_through(!self.cache.is_on());
        self.inflight = Some(region);
        Ok(())
    }

    /// Returns the shape of a region.
    fn inflight_shape(&self, region: &VhostUserInflight) -> Result<InflightShape, Refusal> {
        let VhostUserInflight { num_queues: nr_queues, queue_size, .. } = *region;
        let (most_queues, most) = (self.config.nr_queues(), self.config.queue_size());
        if usize::from(nr_queues) > usize::from(most_queues) || queue_size > most {
            return Err(refuse(format_args!(
                "a region for {nr_queues} rings of {queue_size} descriptors: the device has \
                 {most_queues} of at most {most}"
            )));
        }
        Ok(InflightShape { nr_queues, queue_size })
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

fn thread_gone() -> Refusal {
    refuse("the thread of the ring has ended")
}

/// Returns the reply to a message that the device does not support.
fn not_offered<T>(message: &str) -> Reply<T> {
    Err(refuse("not supported").of(message).into())
}

/// Returns the result of a message, with its name in the error.
fn named<T>(message: &str, result: Result<T, Refusal>) -> Reply<T> {
    result.map_err(|refusal| Error::from(refusal.of(message)))
}

impl<R: Rings> VhostUserBackendReqHandlerMut for Session<'_, R> {
    fn set_owner(&mut self) -> Reply<()> {
        Ok(())
    }

    /// Disables all rings. The protocol deprecates this message, and recommends that.
    fn reset_owner(&mut self) -> Reply<()> {
        let mut rings = 0..self.rings.len() as u32;
        named("RESET_OWNER", rings.try_for_each(|ring| self.enable(ring, false)))
    }

    fn reset_device(&mut self) -> Reply<()> {
        not_offered("RESET_DEVICE")
    }

    fn get_features(&mut self) -> Reply<u64> {
        Ok(self.config.features())
    }

    fn set_features(&mut self, features: u64) -> Reply<()> {
        named("SET_FEATURES", self.negotiate(features))
    }

    fn set_mem_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Reply<Option<Vec<Base>>> {
        named("SET_MEM_TABLE", self.set_table(table, files).map(|()| None))
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Reply<()> {
        named("SET_VRING_NUM", self.set_size(index, num))
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Reply<()> {
        if !flags.is_empty() {
            return not_offered("SET_VRING_ADDR: the log of a migration");
        }
        named("SET_VRING_ADDR", self.set_places(index, Places { descriptors, available, used }))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Reply<()> {
        named("SET_VRING_BASE", self.set_base(index, base))
    }

    fn get_vring_base(&mut self, index: u32) -> Reply<VhostUserVringState> {
        let base = named("GET_VRING_BASE", self.take_base(index))?;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Reply<()> {
        named("SET_VRING_KICK", self.set_kick(index, file))
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Reply<()> {
        let set = self.set_event(index, file, |ring| &mut ring.call, RingCommand::Call);
        named("SET_VRING_CALL", set)
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Reply<()> {
        let set = self.set_event(index, file, |ring| &mut ring.err, RingCommand::Err);
        named("SET_VRING_ERR", set)
    }

    fn get_protocol_features(&mut self) -> Reply<Protocol> {
        Ok(OFFERED)
    }

    fn set_protocol_features(&mut self, features: u64) -> Reply<()> {
        let unknown = features & !OFFERED.bits();
        let why = || refuse(format_args!("features {unknown:#x}, which are not offered"));
        named("SET_PROTOCOL_FEATURES", (unknown == 0).then_some(()).ok_or_else(why))?;
        self.protocol = Protocol::from_bits_truncate(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Reply<u64> {
        Ok(self.rings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Reply<()> {
        named("SET_VRING_ENABLE", self.enable(index, enable))
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Reply<Vec<u8>> {
        let read = self.config.read(offset, size, self.cache);
        let why =
            || refuse(format_args!("{size} bytes at {offset} are not in the configuration space"));
        named("GET_CONFIG", read.ok_or_else(why))
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Reply<()> {
        named("SET_CONFIG", self.write_config(offset, bytes))
    }

    /// Receives a message that [`super::backend_fd`] has not recognised.
    fn set_backend_req_fd(&mut self, _: Backend) {
        self.has_lost_channel = true;
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Reply<()> {
        not_offered("GPU_SET_SOCKET")
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Reply<File> {
        not_offered("GET_SHARED_OBJECT")
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Reply<(VhostUserInflight, File)> {
        named("GET_INFLIGHT_FD", self.create_inflight(asked))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Reply<()> {
        named("SET_INFLIGHT_FD", self.set_inflight(given, file))
    }

    fn get_max_mem_slots(&mut self) -> Reply<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Reply<Option<Base>> {
        let mut regions = self.regions.clone();
        let added = regions.add(region, file).and_then(|()| self.set_regions(regions));
        named("ADD_MEM_REG", added.map(|()| None))
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Reply<()> {
        let mut regions = self.regions.clone();
        let removed = regions.remove(region).and_then(|()| self.set_regions(regions));
        named("REM_MEM_REG", removed)
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Reply<Option<File>> {
        not_offered("SET_DEVICE_STATE_FD")
    }

    fn check_device_state(&mut self) -> Reply<()> {
        not_offered("CHECK_DEVICE_STATE")
    }

    fn get_shmem_config(&mut self) -> Reply<VhostUserShMemConfig> {
        not_offered("GET_SHMEM_CONFIG")
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Reply<()> {
        not_offered("SET_LOG_BASE")
    }
}
