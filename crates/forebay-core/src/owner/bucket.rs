//! Token bucket: a rate in units per second with a burst, as one atomic word.
//!
//! Units are bytes, or small parts of an I/O. All hardware contexts share a bucket and charge it
//! without a lock. The idea is that of the generic cell rate algorithm (ITU-T I.371, "virtual
//! scheduling"): the state is one position, which the cost of each I/O advances.
//!
//! # Units, not times
//! The usual form of the algorithm keeps a time, and each I/O adds `cost / rate` to it. That
//! quotient is rounded, always to the same side for I/Os of one size: a byte at 100 GB/s is
//! 0.01 ns. Here the positions are in units, so a cost is added as it is:
//!
//! - `spent` is the word. It is the sum of all costs, and of all credit beyond the burst that was
//!   lost.
//! - `refilled(now)` is computed from the time: `base + floor(rate * elapsed)`, in exact integers
//!   ([`setting`]).
//! - The level is `refilled(now) - spent`, and at most the burst.
//!
//! So the only rounding is the `floor`. It is computed from the whole time since the last change of
//! the rate, so it is less than one unit at any time and nothing accumulates. 300,000 IOPS for a
//! day are 25,920,000,000 I/Os, and not one more or fewer. A bucket of whole I/Os would be up to
//! one I/O off in each window, which shows at 100 IOPS. So the unit of such a bucket is smaller:
//! [`UNITS_PER_IO`](Bucket::UNITS_PER_IO).
//!
//! A charge does not depend on the rate. So a refund takes back exactly what was charged, even if
//! the rate changed in between.
//!
//! # Positions wrap
//! Positions count modulo 2^64. A difference of up to [`DEBT_MAX`] ahead is a debt, any other is
//! credit. A debt is at most one cost, at most 2^44, plus what the rate refills between the
//! clocks of two threads. Only a bucket that is idle for 2^64 units at its rate can be
//! misread: 194 days at 1 TiB/s, 5.8 years at 100 GB/s. Then, with a probability of 2^-16, an I/O
//! waits for up to 2^48 units: four minutes at 1 TiB/s.
//!
//! # Orderings
//! Every access to `spent` is relaxed. The word publishes no other data. The exchanges on one word
//! have one order in all threads, and each charge is decided by the exchange that makes it. So the
//! bounds hold for all threads together. A refusal may come from a value that a refund is just
//! replacing; then the I/O waits until the time that the older value allows.

mod setting;

use crate::primitive::{AtomicU64, Ordering, guess};
use setting::{Setting, SharedSetting};

/// The largest debt in units. A position further ahead counts as credit.
const DEBT_MAX: u64 = 1 << 48;

/// The time at which a refused I/O may start, in nanoseconds of the caller's clock.
///
/// Another I/O may be charged before, so the I/O can be refused again. `u64::MAX` if the time
/// cannot be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAt(
    /// The time in nanoseconds.
    pub u64,
);

/// The units that an I/O was charged, for [`Bucket::refund`]. 0 if there was no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged(u64);

impl Charged {
    pub(super) const NOTHING: Charged = Charged(0);

    /// Returns the charge of an I/O with this cost.
    pub(super) const fn new(cost: u64) -> Charged {
        Charged(if cost < Bucket::COST_MAX { cost } else { Bucket::COST_MAX })
    }
}

/// Another thread is changing the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeInProgress;

impl core::fmt::Display for ChangeInProgress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("limits not changed, because another thread is changing them: try again")
    }
}

impl core::error::Error for ChangeInProgress {}

/// A token bucket that threads share.
///
/// Times are nanoseconds of any monotonic clock. The clocks of two threads may differ: a time
/// before the last change of the rate counts as the time of that change, and a thread whose clock
/// is behind sees less credit, never more.
///
/// ```
/// use forebay_core::{Bucket, RetryAt};
///
/// // 100 I/Os per second, no burst.
/// let bucket = Bucket::new(100, 0, 0);
/// assert!(bucket.try_start(1, 0).is_ok());
/// assert_eq!(bucket.try_start(1, 0), Err(RetryAt(10_000_000)));
/// assert!(bucket.try_start(1, 10_000_000).is_ok());
/// ```
#[derive(Debug)]
pub struct Bucket {
    /// The position up to which units are spent.
    spent: AtomicU64,
    setting: SharedSetting,
}

impl Bucket {
    /// The cost of an I/O in a bucket that counts I/Os.
    pub const UNITS_PER_IO: u64 = 1 << 12;
    /// The highest rate in units per second: 1 TiB/s. A higher rate counts as this one.
    pub const RATE_MAX: u64 = 1 << 40;
    /// The largest burst in units. A larger burst counts as this one.
    pub const BURST_MAX: u64 = 1 << 48;
    /// The largest cost of an I/O in units: 16 TiB. A higher cost counts as this one.
    pub const COST_MAX: u64 = 1 << 44;

    /// Creates a bucket of `rate` units per second that is full at `now_ns`. Rate 0 means that
    /// there is no limit.
    pub fn new(rate: u64, burst: u64, now_ns: u64) -> Bucket {
        let (rate, burst) = (rate.min(Bucket::RATE_MAX), burst.min(Bucket::BURST_MAX));
        let setting = Setting { rate, burst, base_ns: now_ns, base: burst };
        Bucket { spent: AtomicU64::new(0), setting: SharedSetting::new(setting) }
    }

    /// Charges an I/O that starts now, if the bucket is not negative (OL1).
    ///
    /// The cost may exceed the burst. Then a full bucket becomes negative, and the next I/O waits.
    ///
    /// # Errors
    /// Returns when the I/O may start. Nothing is charged then.
    #[inline]
    pub fn try_start(&self, cost: u64, now_ns: u64) -> Result<Charged, RetryAt> {
        let setting = self.setting.get();
        if setting.rate == 0 {
            return Ok(Charged::NOTHING);
        }
        let charged = Charged::new(cost);
        let refilled = setting.refilled(now_ns);
        let mut spent = guess!(self.spent, Ordering::Relaxed);
        loop {
            let debt = spent.wrapping_sub(refilled);
            if (1..=DEBT_MAX).contains(&debt) {
                return Err(RetryAt(setting.refilled_at(now_ns, debt)));
            }
            let level = refilled.wrapping_sub(spent).min(setting.burst);
            let next = refilled.wrapping_sub(level).wrapping_add(charged.0);
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            match self.spent.compare_exchange_weak(spent, next, order.0, order.1) {
                Ok(_) => return Ok(charged),
                Err(now) => spent = now,
            }
        }
    }

    /// Takes back the charge of an I/O that has not started.
    ///
    /// Afterwards the bucket is as if the I/O had never been charged. There is one exception: if
    /// the bucket would have been full again before the refund, later I/O has already got that
    /// credit. So OL2 allows for the I/Os whose refunds take longer than the bucket takes to fill.
    #[inline]
    pub fn refund(&self, charged: Charged) {
        if charged.0 != 0 {
            self.spent.fetch_sub(charged.0, Ordering::Relaxed);
        }
    }

    /// Changes rate and burst as of `now_ns`. The level stays, and a debt is paid at the new rate.
    /// A bucket that had no limit is full.
    ///
    /// A call of [`try_start`](Self::try_start) that overlaps the change is decided by either
    /// setting, never by a mixture. A unit that started by the old setting after `now_ns` is a debt
    /// at the new rate. So OL2 and OL3 hold for each side of `now_ns` by its own setting, with one
    /// I/O more for each thread that overlaps the change.
    ///
    /// # Errors
    /// Returns an error if another thread is changing them. Nothing is changed then.
    pub fn set_rate(&self, rate: u64, burst: u64, now_ns: u64) -> Result<(), ChangeInProgress> {
        let (rate, burst) = (rate.min(Bucket::RATE_MAX), burst.min(Bucket::BURST_MAX));
        self.setting.change(|old| {
            let base = match old.rate {
                // While there is no limit, no charge changes the position.
                0 => self.spent.load(Ordering::Relaxed).wrapping_add(burst),
                _ => old.refilled(now_ns),
            };
            Setting { rate, burst, base_ns: now_ns.max(old.base_ns), base }
        })
    }

    /// Returns the rate and the burst.
    pub fn rate(&self) -> (u64, u64) {
        let Setting { rate, burst, .. } = self.setting.get();
        (rate, burst)
    }

    /// Returns whether the bucket has its whole burst, or no limit.
    pub fn is_full(&self, now_ns: u64) -> bool {
        let burst = self.setting.get().burst as i64;
        self.level(now_ns).is_none_or(|level| level >= burst)
    }

    /// Returns the level in units: negative if there is a debt. `None` if there is no limit.
    pub fn level(&self, now_ns: u64) -> Option<i64> {
        let setting = self.setting.get();
        let refilled = setting.refilled(now_ns);
        let spent = self.spent.load(Ordering::Relaxed);
        let debt = spent.wrapping_sub(refilled);
        let level = match debt {
            1..=DEBT_MAX => -(debt as i64),
            _ => refilled.wrapping_sub(spent).min(setting.burst) as i64,
        };
        (setting.rate > 0).then_some(level)
    }
}

#[cfg(all(test, blk_loom))]
mod models;
#[cfg(all(test, not(blk_loom)))]
mod tests;
