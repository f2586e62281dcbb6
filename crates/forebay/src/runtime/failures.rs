//! Failures of a disk that its turns have found, until they are emitted as events of `tracing`.
//!
//! A turn must not run a subscriber: that is foreign code, which may wait, or do I/O on the same
//! disk. So a turn only records the failure. Its thread emits the event once it has released the
//! token, and after it has woken others.
//!
//! A broken disk may fail each I/O, so events are limited:
//!
//! - a disk is reported as gone once, until it is revived;
//! - lost writes are reported once, until the loss is acknowledged. Disks on one file share losses:
//!   the disk that finds the loss reports it;
//! - at most [`BURST`] overdue requests are reported in [`INTERVAL_NS`]. The next event has the
//!   number of those that were left out. (Linux: `printk_ratelimited`.)
//!
//! Without the feature `tracing` nothing is recorded, and [`Failures`] has no size.

#[cfg(feature = "tracing")]
mod limit;
#[cfg(feature = "tracing")]
mod list;

#[cfg(feature = "tracing")]
pub(crate) use list::Failures;
#[cfg(not(feature = "tracing"))]
pub(crate) use without::Failures;

#[cfg(not(feature = "tracing"))]
mod without {
    use crate::driver::Device;
    use crate::info::DiskInfo;
    use forebay_core::{DeviceState, LateRequest};
    use std::sync::Arc;

    /// Nothing: without the feature, failures are not recorded.
    #[derive(Clone, Debug)]
    pub(crate) struct Failures;

    impl Failures {
        pub(crate) fn new(_info: &DiskInfo, _device: &Arc<dyn Device>) -> Failures {
            Failures
        }

        pub(crate) fn listen_to(&self, _state: &mut DeviceState) {}

        pub(crate) fn overdue(&self, _late: &LateRequest) {}

        #[inline(always)]
        pub(crate) fn are_pending(&self) -> bool {
            false
        }

        pub(crate) fn emit(&self) {}
    }
}
