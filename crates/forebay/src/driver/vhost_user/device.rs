//! Device of an open connection. All of its rings exist from the start; a queue takes a spare one.

use super::connect::{Connected, TIMEOUT};
use super::link::Link;
use super::queue::{Spare, VhostUserDriver};
use super::spin::Spin;
use super::waiter::VhostUserWaiter;
use crate::driver::{Device, DriverQueue, Mode};
use crate::error::OpenError;
use forebay_core::QueueLimits;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct VhostUserDevice {
    path: PathBuf,
    limits: QueueLimits,
    nr_tags: u32,
    link: Arc<Link>,
    spare: Spare,
    /// The longest time for which waits poll.
    poll: Duration,
}

impl VhostUserDevice {
    /// Returns the device of a connection whose rings have this number of tags.
    pub(super) fn new(
        path: PathBuf,
        limits: QueueLimits,
        nr_tags: u32,
        poll: Duration,
        connected: Connected,
    ) -> VhostUserDevice {
        let Connected { link, mut queues } = connected;
        // The first ring is taken first.
        queues.reverse();
        let (link, spare) = (Arc::new(link), Arc::new(Mutex::new(queues)));
        VhostUserDevice { path, limits, nr_tags, link, spare, poll }
    }
}

impl Device for VhostUserDevice {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn failure(&self) -> Option<String> {
        self.link.failure()
    }

    fn reread_len(&self) -> io::Result<Option<u64>> {
        self.link.reread_capacity(TIMEOUT).map(Some)
    }

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue> {
        if let Some(why) = self.link.failure() {
            return Err(io::Error::other(why));
        }
        assert!(depth <= self.nr_tags, "all queues have the depth of the policy");
        let spin = Spin::new(self.poll);
        let driver = VhostUserDriver::new(&self.link, &self.spare, mode, spin)?;
        let waiter = Arc::new(VhostUserWaiter::new(Arc::clone(driver.shared())));
        Ok(DriverQueue { driver: Box::new(driver), waiter })
    }

    fn refusal(&self, source: io::Error) -> OpenError {
        let (path, why) = (self.path.clone(), source.to_string());
        OpenError::VhostUser { path, why, source: Some(source) }
    }
}
