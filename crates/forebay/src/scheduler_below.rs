//! The scheduler below a disk: the next part of the system that orders its requests.
//!
//! The driver of a disk reports only where its requests go. The recommendation of a scheduler
//! (`advice.rs`) follows from that.

/// The part of a system that schedules the requests of a disk after the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SchedulerBelow {
    /// None, and the disk is not a device: it is in memory.
    #[default]
    Memory,
    /// None: requests go to the device.
    Nothing,
    /// The kernel, for this device.
    Kernel {
        /// An `st_dev` or `st_rdev`.
        dev: u64,
    },
    /// That of a server or a cluster, if it has one.
    Server,
}
