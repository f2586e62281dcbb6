//! Recommendation of a scheduler for a disk, with the reason.
//!
//! A scheduler pays where the order of requests changes how long the device takes: on one that
//! turns, and only if no scheduler below sees the requests next. The default of a disk follows the
//! same rule, except that it reads nothing about the kernel.

use crate::driver::scheduler_of;
use crate::info::DiskInfo;
use crate::scheduler_below::SchedulerBelow;
use forebay_core::SchedulerPolicy;

/// A recommended scheduler: see [`DiskInfo::scheduler_advice`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerAdvice {
    /// The scheduler.
    pub scheduler: SchedulerPolicy,
    /// The reason, for people.
    pub why: String,
}

impl DiskInfo {
    /// Returns the scheduler that suits the disk, as far as the library can see, with the reason.
    /// For a file or block device it reads which scheduler the kernel uses now.
    ///
    /// ```
    /// let disk = forebay::Disk::open("model:hdd?size=1M")?;
    /// let advice = disk.info().scheduler_advice();
    /// assert_eq!(advice.scheduler, forebay::SchedulerPolicy::MqDeadline);
    /// assert_eq!(advice.why, "the disk is rotational, and nothing below it orders requests");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scheduler_advice(&self) -> SchedulerAdvice {
        let below = self.opened_with.below;
        let kernel = match below {
            SchedulerBelow::Kernel { dev } => scheduler_of(dev),
            _ => None,
        };
        let (is_wanted, why) = reason(below, self.limits.rotational, kernel);
        let scheduler = match is_wanted {
            true => SchedulerPolicy::MqDeadline,
            false => SchedulerPolicy::None,
        };
        SchedulerAdvice { scheduler, why }
    }
}

/// Returns whether a disk needs a scheduler that orders requests, and why. `kernel` are the names
/// of the device below and of its scheduler.
fn reason(
    below: SchedulerBelow,
    is_rotational: bool,
    kernel: Option<(String, String)>,
) -> (bool, String) {
    match (below, kernel) {
        (SchedulerBelow::Memory, _) => (false, "the disk is in memory".to_owned()),
        (SchedulerBelow::Server, _) => {
            (false, "the server may order the requests of its clients".to_owned())
        }
        (SchedulerBelow::Kernel { .. }, Some((device, name))) if name == "none" => {
            let why = match is_rotational {
                true => "is rotational, and the kernel does not order its requests",
                false => "is not rotational, so the order matters little",
            };
            (is_rotational, format!("{device} {why}"))
        }
        (SchedulerBelow::Kernel { .. }, Some((device, name))) => {
            (false, format!("the kernel orders the requests of {device} with {name}"))
        }
        (SchedulerBelow::Kernel { .. }, None) => {
            (false, "the kernel, or a server, orders the requests below".to_owned())
        }
        (SchedulerBelow::Nothing, _) if is_rotational => {
            (true, "the disk is rotational, and nothing below it orders requests".to_owned())
        }
        (SchedulerBelow::Nothing, _) => {
            (false, "the disk is not rotational, so the order matters little".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rotational_disks_without_a_scheduler_below_need_one() {
        let kernel = |name: &str| Some(("sda".to_owned(), name.to_owned()));
        let below = SchedulerBelow::Kernel { dev: 0 };
        for (below, is_rotational, kernel, is_wanted, why) in [
            (SchedulerBelow::Memory, true, None, false, "in memory"),
            (SchedulerBelow::Server, true, None, false, "the server may order"),
            (SchedulerBelow::Nothing, true, None, true, "is rotational"),
            (SchedulerBelow::Nothing, false, None, false, "is not rotational"),
            (below, true, kernel("bfq"), false, "requests of sda with bfq"),
            (below, false, kernel("mq-deadline"), false, "requests of sda with mq-deadline"),
            (below, true, kernel("none"), true, "sda is rotational"),
            (below, false, kernel("none"), false, "sda is not rotational"),
            (below, true, None, false, "below"),
        ] {
            let (wanted, text) = reason(below, is_rotational, kernel);
            assert_eq!(wanted, is_wanted, "{text}");
            assert!(text.contains(why), "{text}");
        }
    }
}
