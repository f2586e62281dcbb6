//! Messages of the protocol. Each calls one function of the session, and names itself in its error.

use super::Session;
use crate::channel::Rings;
use crate::channel::refusal::{Refusal, refuse};
use crate::channel::regions::MAX_REGIONS;
use crate::channel::ring::RingAddresses;
use crate::setup::RingCommand;
use std::fs::File;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures as Protocol,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Backend, Error, GpuBackend, VhostUserBackendReqHandlerMut};

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
        named(
            "SET_VRING_ADDR",
            self.set_addresses(index, RingAddresses { descriptors, available, used }),
        )
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
        let why = || {
            refuse(format_args!("the front end sets features {unknown:#x}, which are not offered"))
        };
        named("SET_PROTOCOL_FEATURES", (unknown == 0).then_some(()).ok_or_else(why))?;
        self.protocol = Protocol::from_bits_truncate(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Reply<u64> {
        Ok(self.nr_queues())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Reply<()> {
        named("SET_VRING_ENABLE", self.enable(index, enable))
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Reply<Vec<u8>> {
        self.ends_at_queue_num = false;
        let read = self.config.read(offset, size, self.cache);
        let why =
            || refuse(format_args!("{size} bytes at {offset} are not in the configuration space"));
        named("GET_CONFIG", read.ok_or_else(why))
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Reply<()> {
        named("SET_CONFIG", self.write_config(offset, bytes))
    }

    /// Receives a message that [`backend_fd`](crate::channel::backend_fd) has not recognised.
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
