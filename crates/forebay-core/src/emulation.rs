//! Behaviour of earlier systems that a disk can emulate.
//!
//! Linux and QEMU once paid for work that this layer does not do, and Linux lets threads wait for
//! tags. Both can be selected to measure the difference. They are no part of the usual policy, so
//! one opaque value of it selects them, and the usual path of a bio checks none of them by itself.
//!
//! Users select them by the values of three keys, which the table of settings
//! ([`KNOBS`](crate::KNOBS)) lists with all others: `wake`, `run_queue` and `kick`.

use crate::tag::WakePolicy;

/// The behaviour of earlier systems that a queue emulates; none by default.
///
/// The table of settings reads and sets it:
///
/// ```
/// use forebay_core::{Emulation, Knob, Policy};
///
/// let mut policy = Policy::default();
/// assert_eq!(policy.emulation, Emulation::default());
/// let knob = Knob::named("run_queue").expect("a setting");
/// assert!(knob.set(&mut policy, "always"));
/// assert_ne!(policy.emulation, Emulation::default());
/// assert_eq!(knob.get(&policy), "always");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Emulation {
    wake: WakePolicy,
    queues_runs: bool,
    locks_device: bool,
}

/// Setters, named by the keys of specs.
impl Emulation {
    /// Sets the tag wait policy. All but [`WakePolicy::Fair`] emulate Linux, where threads wait.
    #[must_use]
    pub const fn wake(self, wake: WakePolicy) -> Emulation {
        Emulation { wake, ..self }
    }

    /// Emulates `run_queue=always`: each completion queues a run under a lock, even if one is
    /// queued, and a worker thread of the disk makes it. Results are the same.
    ///
    /// Source: "blk-mq: avoid repeatedly scheduling the same work to run hardware queue",
    /// linux-block, 2019, describes that state as the one before.
    #[must_use]
    pub const fn run_queue_always(self, queues_runs: bool) -> Emulation {
        Emulation { queues_runs, ..self }
    }

    /// Emulates `kick=per-device`: sections belong to the device. In each turn within a section,
    /// and when the section ends, a thread takes a lock of the device. Kicks happen at the same
    /// moments as under [`KickPolicy::Deferred`](crate::KickPolicy::Deferred), the only policy with
    /// which this has an effect.
    ///
    /// Source: "block: add blk_io_plug_call() API", qemu-devel, 2023, describes that state as the
    /// one before.
    #[must_use]
    pub const fn kick_per_device(self, locks_device: bool) -> Emulation {
        Emulation { locks_device, ..self }
    }
}

impl Emulation {
    /// Returns the tag wait policy.
    pub const fn wake_policy(self) -> WakePolicy {
        self.wake
    }

    /// Returns whether threads wait for tags, instead of their bios.
    pub const fn threads_wait_for_tags(self) -> bool {
        !matches!(self.wake, WakePolicy::Fair)
    }

    /// Returns whether completions queue runs for a worker.
    pub const fn queues_runs(self) -> bool {
        self.queues_runs
    }

    /// Returns whether sections take a lock of the device.
    pub const fn locks_device(self) -> bool {
        self.locks_device
    }
}
