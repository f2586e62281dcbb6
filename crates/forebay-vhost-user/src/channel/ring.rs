//! State of one ring in the message channel, and checks before it starts.

use super::events::empty_if_full;
use super::refusal::{Refusal, refuse};
use super::regions::Regions;
use crate::inflight::InflightMemory;
use crate::memory::GuestMemory;
use crate::ring::Part;
use crate::setup::RingSetup;
use std::os::fd::OwnedFd;

/// Addresses of a ring in the address space of the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingAddresses {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

/// State of a ring.
#[derive(Debug, Default)]
pub(super) struct RingState {
    pub(super) size: Option<u16>,
    pub(super) addresses: Option<RingAddresses>,
    pub(super) base: u16,
    pub(super) is_enabled: bool,
    /// Whether its thread uses it.
    pub(super) is_started: bool,
    pub(super) kick: Option<OwnedFd>,
    pub(super) call: Option<OwnedFd>,
    pub(super) err: Option<OwnedFd>,
}

impl RingState {
    /// Returns whether the ring has all that it needs to start.
    pub(super) fn is_complete(&self) -> bool {
        self.size.is_some() && self.addresses.is_some() && self.kick.is_some()
    }

    /// Wakes the ring's thread if it is blocked in the write of an eventfd.
    pub(super) fn unblock(&self) {
        self.call.iter().chain(&self.err).for_each(empty_if_full);
    }

    /// Returns the guest addresses of the ring.
    ///
    /// # Errors
    /// Returns an error if a part of the ring is not inside one memory region.
    pub(super) fn guest_addresses(&self, regions: &Regions) -> Result<RingAddresses, Refusal> {
        let (Some(size), Some(addresses)) = (self.size, self.addresses) else {
            return Err(refuse("the ring has no size or no addresses"));
        };
        let place = |part: Part, what, user: u64| {
            let (len, alignment) = (part.len(size), part.alignment());
            match regions.guest_addr(user, len) {
                Some(guest) if guest.is_multiple_of(alignment) => Ok(guest),
                Some(guest) => Err(refuse(format_args!(
                    "the {what} at {guest:#x} is not aligned to {alignment} bytes"
                ))),
                None => Err(refuse(format_args!(
                    "the {what} of {len} bytes at {user:#x} is outside of the shared memory \
                     regions: share all memory of the guest (`share=on` in QEMU)"
                ))),
            }
        };
        Ok(RingAddresses {
            descriptors: place(Part::Descriptors, "descriptor table", addresses.descriptors)?,
            available: place(Part::Available, "available ring", addresses.available)?,
            used: place(Part::Used, "used ring", addresses.used)?,
        })
    }

    /// Returns the setup for the thread of the ring, which must be complete. The call and error
    /// descriptors are duplicated, because they outlive a stop.
    ///
    /// # Errors
    /// Returns an error if the ring is outside of the memory, or the process has no descriptor
    /// left.
    pub(super) fn setup(
        &self,
        (regions, memory): (&Regions, &GuestMemory),
        features: u64,
        inflight: Option<(InflightMemory, u16)>,
    ) -> Result<RingSetup, Refusal> {
        let RingAddresses { descriptors, available, used } = self.guest_addresses(regions)?;
        let duplicate = |fd: &OwnedFd| {
            fd.try_clone()
                .map_err(|error| refuse(format_args!("cannot duplicate a descriptor: {error}")))
        };
        let kick = self.kick.as_ref().map(duplicate).transpose()?;
        Ok(RingSetup {
            size: self.size.unwrap_or_default(),
            descriptors,
            available,
            used,
            base: self.base,
            features,
            memory: memory.clone(),
            kick: kick.ok_or_else(|| refuse("the ring has no kick descriptor"))?,
            call: self.call.as_ref().map(duplicate).transpose()?,
            err: self.err.as_ref().map(duplicate).transpose()?,
            inflight,
            is_enabled: self.is_enabled,
        })
    }
}
