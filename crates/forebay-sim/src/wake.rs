//! Wake policies of simulated disks: those of real disks, and one that can hang.

use forebay_core::WakePolicy;

/// A tag wait policy of a simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A policy that every disk supports.
    OfDisk(WakePolicy),
    /// The first version of stash-and-wake
    /// ([`TagWaits::stash_v1`](forebay_core::TagWaits::stash_v1)). It can hang, so real disks do
    /// not support it.
    StashV1,
}

/// The name of [`Wake::StashV1`].
const STASH_V1: &str = "stash-v1";

impl Wake {
    /// Returns the names of all policies.
    pub fn names() -> impl Iterator<Item = &'static str> {
        WakePolicy::ALL.into_iter().map(WakePolicy::name).chain([STASH_V1])
    }

    /// Returns the policy with this name.
    pub fn named(name: &str) -> Option<Wake> {
        let of_disk = WakePolicy::ALL.into_iter().find(|policy| policy.name() == name);
        of_disk.map(Wake::OfDisk).or((name == STASH_V1).then_some(Wake::StashV1))
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Wake::OfDisk(policy) => policy.name(),
            Wake::StashV1 => STASH_V1,
        }
    }

    /// Returns the nearest policy of a disk.
    pub const fn policy(self) -> WakePolicy {
        match self {
            Wake::OfDisk(policy) => policy,
            Wake::StashV1 => WakePolicy::Stash,
        }
    }
}
