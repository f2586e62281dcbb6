//! Setting of a token bucket, read without a lock while it may change.
//!
//! A setting is four numbers that belong together. There are two copies. A change writes the copy
//! that is not in use, and then makes it the one in use by one store. So a reader never waits for a
//! thread that is in the middle of a change; it reads again only if the copies were exchanged
//! meanwhile.

use super::ChangeInProgress;
use crate::primitive::{AtomicU64, Ordering, fence, guess};

const NS_PER_S: u64 = 1_000_000_000;

/// The rate and burst of a bucket, and the position from which the rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Units per second. 0 if there is no limit.
    pub(super) rate: u64,
    /// The most credit, in units.
    pub(super) burst: u64,
    /// The time of the last change.
    pub(super) base_ns: u64,
    /// The position at that time.
    pub(super) base: u64,
}

impl Setting {
    /// Returns the position at `now_ns`: `base + floor(rate * elapsed)`, modulo 2^64.
    #[inline]
    pub(super) fn refilled(&self, now_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.base_ns);
        let (seconds, ns) = (elapsed / NS_PER_S, elapsed % NS_PER_S);
        // rate * ns / 10^9 in 64 bits: a quotient of the rate that is at most 2^11, and a rest
        // below 10^9.
        let (per_ns, rest) = (self.rate / NS_PER_S, self.rate % NS_PER_S);
        let of_ns = per_ns * ns + rest * ns / NS_PER_S;
        self.base.wrapping_add(self.rate.wrapping_mul(seconds)).wrapping_add(of_ns)
    }

    /// Returns the first time at which the position is `units` further than at `now_ns`.
    #[cold]
    pub(super) fn refilled_at(&self, now_ns: u64, units: u64) -> u64 {
        let from = now_ns.max(self.base_ns);
        let ns = (from - self.base_ns) % NS_PER_S;
        // Counted from the last whole second, where the position is exact. No product exceeds
        // 2^40 * 2^30 or 2^49 * 2^30.
        let (rate, second) = (u128::from(self.rate), u128::from(NS_PER_S));
        let so_far = rate * u128::from(ns) / second;
        let at = ((so_far + u128::from(units)) * second).div_ceil(rate);
        let at = u128::from(from - ns) + at;
        u64::try_from(at).unwrap_or(u64::MAX)
    }
}

/// A setting that threads read while another thread changes it.
#[derive(Debug)]
pub(super) struct SharedSetting {
    /// Twice the number of changes, plus one during a change. The number of changes, modulo 2, is
    /// the index of the copy in use.
    changes: AtomicU64,
    copies: [Copy; 2],
}

#[derive(Debug)]
struct Copy {
    rate: AtomicU64,
    burst: AtomicU64,
    base_ns: AtomicU64,
    base: AtomicU64,
}

impl Copy {
    fn new(setting: &Setting) -> Copy {
        Copy {
            rate: AtomicU64::new(setting.rate),
            burst: AtomicU64::new(setting.burst),
            base_ns: AtomicU64::new(setting.base_ns),
            base: AtomicU64::new(setting.base),
        }
    }

    #[inline]
    fn load(&self) -> Setting {
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Setting {
            rate: of(&self.rate),
            burst: of(&self.burst),
            base_ns: of(&self.base_ns),
            base: of(&self.base),
        }
    }

    fn store(&self, setting: &Setting) {
        self.rate.store(setting.rate, Ordering::Relaxed);
        self.burst.store(setting.burst, Ordering::Relaxed);
        self.base_ns.store(setting.base_ns, Ordering::Relaxed);
        self.base.store(setting.base, Ordering::Relaxed);
    }
}

impl SharedSetting {
    pub(super) fn new(setting: Setting) -> SharedSetting {
        let copies = [Copy::new(&setting), Copy::new(&setting)];
        SharedSetting { changes: AtomicU64::new(0), copies }
    }

    /// Returns the setting in use.
    #[inline]
    pub(super) fn get(&self) -> Setting {
        // Acquire: pairs with the release in `change`, so that the copy has all its numbers.
        let mut before = self.changes.load(Ordering::Acquire) / 2;
        loop {
            let setting = self.copies[before as usize % 2].load();
            // If a number is of the next but one change, this fence pairs with the one in `change`,
            // and the load below sees the change in between.
            fence(Ordering::Acquire);
            // Acquire: `before` of the next round.
            let after = self.changes.load(Ordering::Acquire) / 2;
            if after == before {
                return setting;
            }
            before = after;
        }
    }

    /// Replaces the setting.
    pub(super) fn change(
        &self,
        to: impl FnOnce(&Setting) -> Setting,
    ) -> Result<(), ChangeInProgress> {
        let before = guess!(self.changes, Ordering::Relaxed);
        // Acquire: pairs with the release below, so that this change sees the numbers of the last
        // one.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let during = before.wrapping_add(1);
        if before % 2 == 1
            || self.changes.compare_exchange(before, during, order.0, order.1).is_err()
        {
            return Err(ChangeInProgress);
        }
        let nr = before / 2;
        let setting = to(&self.copies[nr as usize % 2].load());
        // Release: a reader that sees a number below also sees that the copy was not in use.
        fence(Ordering::Release);
        self.copies[(nr + 1) as usize % 2].store(&setting);
        // Release: a reader that sees the copy in use sees its numbers.
        self.changes.store(before.wrapping_add(2), Ordering::Release);
        Ok(())
    }
}
