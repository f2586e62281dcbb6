//! Tree of owners: an I/O counts against its owner and against all owners above it.
//!
//! An [`Owner`] is shared by all threads, as an `Arc`. A charge reads and changes only atomics: it
//! follows the references from the owner to its parents, and takes no lock. [`Owners`] is the list
//! of them by number. It is a plain value under a lock of its caller. A context that finds owners
//! by number keeps a clone, and replaces it when [`Owners::generation`] has changed.
//!
//! The rules:
//!
//! - OL4 An I/O is charged to all buckets that apply: those of its owner first, then those of the
//!   parent, those of the root last. Or it is charged to none.
//! - OL5 If a bucket refuses, the buckets that were charged before it get a refund.
//!
//! # Charges that are refunded
//! Until its refund, such a charge lowers the level of a bucket for others. A thread has at most
//! one such charge in a bucket, for the duration of a call. So another I/O that is refused because
//! of it waits too long by at most `cost / rate` for each thread that is in a call at that moment.
//! It loses nothing else: the level is exact after the refunds. The root is charged last, so only
//! another rate of the same owner can cause a refund there. Starvation would need such a charge at
//! each try. A thread causes one only if a bucket further up refuses it, and it tries again only
//! when that bucket is no longer negative. So each such charge needs an I/O of another owner that
//! has passed that bucket in between.
//!
//! A large I/O waits no longer than a small one: it may start as soon as the bucket is not
//! negative, and the debt holds up the I/O after it.

use super::activity::{Activity, OwnerActivity};
use super::bucket::{Bucket, ChangeInProgress, Charged, RetryAt};
use super::counters::{OwnerCounters, OwnerStats};
use super::limits::{Limits, NR_RATES, Which};
use super::peers::{OwnerGoal, Peers};
use crate::bio::Op;
use crate::primitive::{AtomicU32, Ordering};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The number of an owner, as in [`Origin::owner`](crate::Origin::owner). Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub(super) u32);

impl OwnerId {
    /// Returns the number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The largest number of levels in a tree of owners.
pub const OWNER_LEVELS_MAX: usize = 8;

/// The smallest weight of an owner, as in Linux (`io.weight`).
pub const WEIGHT_MIN: u32 = 1;
/// The largest weight of an owner, as in Linux.
pub const WEIGHT_MAX: u32 = 10_000;
/// The weight of an owner that has none of its own, as in Linux (`CGROUP_WEIGHT_DFL`).
pub const WEIGHT_DEFAULT: u32 = 100;

/// An owner of I/O: its limits, its weight, and its parent.
#[derive(Debug)]
pub struct Owner {
    id: OwnerId,
    name: Box<str>,
    parent: Option<Arc<Owner>>,
    /// The number of owners above this one.
    level: usize,
    weight: AtomicU32,
    /// The rates that are limited, as a set of [`Which::bit`].
    limited: AtomicU32,
    buckets: [Bucket; NR_RATES],
    /// 1 while a thread changes the limits.
    is_changing: AtomicU32,
    counters: OwnerCounters,
    activity: Activity,
    goal: Arc<OwnerGoal>,
    /// The owners below the same parent, this one among them.
    peers: Arc<Peers>,
    /// The owners below this one.
    below: Arc<Peers>,
}

/// The charges of an I/O, for [`Owner::refund`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerCharge {
    bytes: u64,
    nr_ios: u32,
    /// The rates that were charged, as a set of [`Which::bit`], for the owner and each one above.
    rates: [u8; OWNER_LEVELS_MAX],
}

impl OwnerCharge {
    pub(crate) const NONE: OwnerCharge =
        OwnerCharge { bytes: 0, nr_ios: 0, rates: [0; OWNER_LEVELS_MAX] };

    /// Returns whether nothing was charged, because no limit applies.
    pub fn is_none(&self) -> bool {
        self.rates == OwnerCharge::NONE.rates
    }

    /// Returns the units that the request costs in the bucket of a rate, given by its bit.
    const fn cost(&self, rate: u8) -> u64 {
        match rate & Which::OF_IOS != 0 {
            true => self.nr_ios as u64 * Bucket::UNITS_PER_IO,
            false => self.bytes,
        }
    }
}

impl Owner {
    /// Creates an owner without limits, of the usual weight.
    pub(super) fn new(
        id: OwnerId,
        name: &str,
        parent: Option<Arc<Owner>>,
        peers: Arc<Peers>,
        now_ns: u64,
    ) -> Owner {
        let level = parent.as_ref().map_or(0, |parent| parent.level + 1);
        Owner {
            id,
            name: name.into(),
            parent,
            level,
            weight: AtomicU32::new(WEIGHT_DEFAULT),
            limited: AtomicU32::new(0),
            buckets: core::array::from_fn(|_| Bucket::new(0, 0, now_ns)),
            is_changing: AtomicU32::new(0),
            counters: OwnerCounters::default(),
            activity: Activity::default(),
            goal: Arc::default(),
            below: Arc::new(peers.same()),
            peers,
        }
    }

    /// Returns the number.
    pub fn id(&self) -> OwnerId {
        self.id
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters of its own I/O, without that of its children.
    pub(crate) fn counters(&self) -> &OwnerCounters {
        &self.counters
    }

    /// Returns how much I/O the owner has started, without that of its children, and the state of
    /// its latency goal.
    pub fn stats(&self) -> OwnerStats {
        OwnerStats {
            missed_windows: self.goal.nr_missed(),
            depth: self.goal.depth(),
            ..self.counters.stats()
        }
    }

    /// Counts I/O of the owner that starts before `until_ns`, from its start to its end, without
    /// that of its children. An earlier time than that of another call changes nothing.
    ///
    /// A counted I/O needs more instructions (decision 0121). So an observer passes a time
    /// in the near future, and a later one while it goes on.
    pub fn watch(&self, until_ns: u64) {
        self.activity.watch(until_ns);
    }

    /// Returns what was counted because of [`watch`](Owner::watch).
    pub fn activity(&self) -> OwnerActivity {
        self.activity.get()
    }

    /// Returns the counts of I/O that is watched.
    #[inline(always)]
    pub(crate) fn watched(&self) -> &Activity {
        &self.activity
    }

    /// Returns the latency goal, and the depth that the goals of the peers leave.
    pub(crate) fn goal(&self) -> &Arc<OwnerGoal> {
        &self.goal
    }

    /// Returns the group of owners below the same parent.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Returns the group of owners below this one.
    pub(super) fn below(&self) -> &Arc<Peers> {
        &self.below
    }

    /// Returns the owner above this one. `None` for a root.
    pub fn parent(&self) -> Option<&Arc<Owner>> {
        self.parent.as_ref()
    }

    /// Returns the number of owners above this one.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Returns the weight.
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Changes the weight. A weight outside of [`WEIGHT_MIN`] to [`WEIGHT_MAX`] counts as the
    /// nearest one.
    pub fn set_weight(&self, weight: u32) {
        // Relaxed: the weight publishes nothing else, and applies from some later I/O on.
        self.weight.store(weight.clamp(WEIGHT_MIN, WEIGHT_MAX), Ordering::Relaxed);
    }

    /// Returns the limits. During a change, some may be those before it.
    ///
    /// Each burst is a number, also where it was the default. To change a rate and keep the default
    /// burst, begin with the [`Limits`] that were set.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for (which, bucket) in Which::ALL.into_iter().zip(&self.buckets) {
            *which.of_mut(&mut limits) = Which::rate_of(bucket.rate(), which);
        }
        limits.latency_target_us = self.goal.target_us();
        limits
    }

    /// Changes the limits as of `now_ns`. See [`Bucket::set_rate`] for what happens to I/O at the
    /// same time; it applies to each rate by itself.
    ///
    /// # Errors
    /// Returns an error if another thread is changing them. Nothing is changed then.
    pub fn set_limits(&self, limits: &Limits, now_ns: u64) -> Result<(), ChangeInProgress> {
        // Acquire: pairs with the release below, so that each change begins after the one before.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if self.is_changing.compare_exchange(0, 1, order.0, order.1).is_err() {
            return Err(ChangeInProgress);
        }
        let mut limited = 0;
        for (which, bucket) in Which::ALL.into_iter().zip(&self.buckets) {
            let (rate, burst) = which.bucket_of(limits);
            // No other thread changes a bucket, because this one has marked the change.
            _ = bucket.set_rate(rate, burst, now_ns);
            limited |= if rate > 0 { which.bit().into() } else { 0 };
        }
        self.goal.set_target_us(limits.latency_target_us);
        // Relaxed: a thread that sees the bit first finds a bucket without a limit.
        self.limited.store(limited, Ordering::Relaxed);
        self.is_changing.store(0, Ordering::Release);
        Ok(())
    }

    /// Returns whether each of its own limits has its whole burst, as for a new owner.
    pub fn has_full_burst(&self, now_ns: u64) -> bool {
        self.buckets.iter().all(|bucket| bucket.is_full(now_ns))
    }

    /// Charges a request that starts now to this owner and all owners above it, if no bucket is
    /// negative (OL1, OL4). `nr_ios` is the number of I/Os that it joins, `bytes` the length of its
    /// range.
    ///
    /// # Errors
    /// Returns the time when the bucket that refuses may start an I/O. Nothing is charged then.
    #[inline]
    pub fn charge(
        &self,
        op: Op,
        nr_ios: u32,
        bytes: u64,
        now_ns: u64,
    ) -> Result<OwnerCharge, RetryAt> {
        let mut charge = OwnerCharge { bytes, nr_ios, ..OwnerCharge::NONE };
        let (that_apply, mut nth) = (Which::that_apply(op), 0);
        let mut refused = self.charge_rates(that_apply, now_ns, &mut charge, nth);
        let mut level = &self.parent;
        while let (None, Some(owner)) = (refused, level) {
            nth += 1;
            refused = owner.charge_rates(that_apply, now_ns, &mut charge, nth);
            level = &owner.parent;
        }
        match refused {
            None => Ok(charge),
            Some(at) => {
                self.refund(charge);
                Err(at)
            }
        }
    }

    /// Charges the buckets of `that_apply` that have a limit, and adds them to `charge` as those of
    /// the `nth` owner from below. Returns when to try again if one refuses.
    #[inline]
    fn charge_rates(
        &self,
        that_apply: u8,
        now_ns: u64,
        charge: &mut OwnerCharge,
        nth: usize,
    ) -> Option<RetryAt> {
        let mut left = self.limited.load(Ordering::Relaxed) as u8 & that_apply;
        while let Some(bucket) = self.buckets.get(left.trailing_zeros() as usize) {
            // The lowest one.
            let rate = left & left.wrapping_neg();
            left ^= rate;
            match bucket.try_start(charge.cost(rate), now_ns) {
                Ok(Charged::NOTHING) => {}
                Ok(_) => charge.rates[nth] |= rate,
                Err(at) => return Some(at),
            }
        }
        None
    }

    /// Takes back the charges of an I/O that has not started (see [`Bucket::refund`]).
    #[cold]
    pub fn refund(&self, charge: OwnerCharge) {
        let mut level = Some(self);
        for rates in charge.rates {
            let Some(owner) = level else { return };
            for which in Which::of_set(rates) {
                let charged = Charged::new(charge.cost(which.bit()));
                owner.buckets[which as usize].refund(charged);
            }
            level = owner.parent.as_deref();
        }
    }

    #[cfg(test)]
    pub(super) fn bucket(&self, which: Which) -> &Bucket {
        &self.buckets[which as usize]
    }
}

#[cfg(all(test, blk_loom))]
mod models;
#[cfg(all(test, not(blk_loom)))]
mod tests;
