//! The in-flight region of a session.

use super::{Session, offer};
use crate::channel::Rings;
use crate::channel::refusal::{Refusal, refuse};
use crate::inflight::{InflightMemory, InflightShape};
use std::fs::File;
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::ByteValued;

impl<R: Rings> Session<'_, R> {
    /// Creates an in-flight region for the front end to keep.
    pub(super) fn create_inflight(
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
    pub(super) fn set_inflight(
        &mut self,
        given: &VhostUserInflight,
        file: File,
    ) -> Result<(), Refusal> {
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
        if nr_queues > most_queues {
            let offer = offer(most_queues.into());
            return Err(refuse(format_args!("the front end asks for {nr_queues} queues, {offer}")));
        }
        if queue_size > most {
            return Err(refuse(format_args!(
                "the front end asks for rings of {queue_size} descriptors, and the device has at \
                 most {most} (lower queue-size of the virtual machine, or raise --queue-size of \
                 the server)"
            )));
        }
        Ok(InflightShape { nr_queues, queue_size })
    }
}
