//! Description of a claim for `forebay info`.

use super::image_lock::Access;
use super::name::Name;
use super::place::Place;
use super::{Claim, Locks};
use crate::info::{Feature, ImageLock};

impl Claim {
    /// Describes exclusive use for `forebay info`.
    pub(crate) fn feature(&self) -> Feature {
        match self.place() {
            Some(Place { name: Name::BlockDevice(_), is_sole: true, .. }) => {
                Feature::present("exclusive", "O_EXCL: nothing is mounted on it or made of it")
            }
            Some(Place { name: Name::File(..), is_sole: true, .. }) => Feature::present(
                "exclusive",
                "a lock on the whole file, which keeps out programs that lock it too (advisory)",
            ),
            // The byte locks are another feature, and may keep programs out as well.
            _ => Feature::missing(
                "exclusive",
                "off; exclusive=on keeps out mounts of a device, and programs that lock all of a \
                 file",
            ),
        }
    }

    /// Describes the byte locks for `forebay info`.
    pub(crate) fn lock_feature(&self) -> Feature {
        let Some(seat) = &self.seat else { return Feature::missing("lock", "no file") };
        match &seat.locks {
            Locks::Held(Access { shares_writes: true, .. }) => Feature::present(
                "lock",
                "QEMU's byte locks, shared: all other programs may write as well",
            ),
            Locks::Held(_) => Feature::present(
                "lock",
                "QEMU's byte locks: programs that take them, such as virtual machines, may not \
                 write; others may",
            ),
            Locks::NotAsked if seat.place.is_sole => {
                Feature::missing("lock", "exclusive=on locks the whole file")
            }
            Locks::NotAsked => Feature::missing("lock", "lock=off: all other programs may write"),
            Locks::Unsupported(why) => {
                Feature::missing("lock", format!("the file system has no byte locks: {why}"))
            }
        }
    }

    /// Returns the byte locks that the disk holds. `None` if it has no file.
    pub(crate) fn lock(&self) -> Option<ImageLock> {
        Some(match &self.seat.as_deref()?.locks {
            Locks::Held(Access { shares_writes: true, .. }) => ImageLock::Shared,
            Locks::Held(_) => ImageLock::On,
            Locks::NotAsked | Locks::Unsupported(_) => ImageLock::Off,
        })
    }

    /// Returns the longest wait for a predecessor, milliseconds. `None` if the disk does not wait.
    pub(crate) fn takeover_wait_ms(&self) -> Option<u64> {
        self.seat.as_deref()?.writer.map(|wait| wait.as_millis() as u64)
    }

    /// Returns a warning if the disk asked for byte locks, and the file system has none.
    pub(crate) fn lock_notice(&self) -> Option<String> {
        match &self.seat.as_deref()?.locks {
            Locks::Unsupported(why) => Some(format!(
                "the file system has no byte locks ({why}), so nothing keeps a virtual machine \
                 from opening the image too, and no open waits for I/O of a killed program; \
                 lock=off omits this warning"
            )),
            _ => None,
        }
    }
}
