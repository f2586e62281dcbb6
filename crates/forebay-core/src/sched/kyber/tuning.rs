//! The depths of the domains, tuned by measured latencies.
//!
//! A window of 100 ms begins with the first completion after the previous one. Its end is found by
//! the first call after it, and the depths are tuned as of the end. So no timer is needed: between
//! two calls no request can leave, and no sample arrives.

use super::domain::{Domain, NR_DOMAINS, NR_MEASURED};
use super::histogram::{Histogram, NR_GOOD};
use crate::plant::plants;

/// The length of a window, in nanoseconds.
pub(super) const WINDOW_NS: u64 = 100_000_000;

/// The latencies of a domain.
#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    /// From the dispatch to the completion.
    device: Histogram,
    /// From the insertion to the completion.
    total: Histogram,
    /// The last 99th percentile of the total, until it is used during congestion.
    latest_p99: Option<u32>,
}

/// The depths, and the measurements that change them.
#[derive(Clone, Debug)]
pub(super) struct Tuning {
    targets_ns: [u64; NR_MEASURED],
    latencies: [Latencies; NR_MEASURED],
    /// `None` before the first completion of a window.
    window_end_ns: Option<u64>,
    depths: [u32; NR_DOMAINS],
    depths_max: [u32; NR_DOMAINS],
}

impl Tuning {
    /// Creates it with depths of 1, until [`set_device_depth`](Self::set_device_depth).
    pub(super) fn new(targets_ns: [u64; NR_MEASURED]) -> Tuning {
        Tuning {
            targets_ns,
            latencies: Default::default(),
            window_end_ns: None,
            depths: [1; NR_DOMAINS],
            depths_max: [1; NR_DOMAINS],
        }
    }

    /// Returns how many requests of a domain may be at the device.
    pub(super) fn depth(&self, domain: Domain) -> u32 {
        self.depths[domain as usize]
    }

    /// Records the depth of the device. A new depth sets all depths to their greatest values.
    pub(super) fn set_device_depth(&mut self, device_depth: u32) {
        let depths_max = Domain::ALL.map(|domain| domain.depth_max(device_depth));
        if depths_max != self.depths_max {
            (self.depths, self.depths_max) = (depths_max, depths_max);
        }
    }

    /// Records a completion.
    pub(super) fn add(&mut self, domain: Domain, device_ns: u64, total_ns: u64, now: u64) {
        let (Some(latencies), Some(target_ns)) =
            (self.latencies.get_mut(domain as usize), self.targets_ns.get(domain as usize))
        else {
            return;
        };
        latencies.device.add(device_ns, *target_ns);
        latencies.total.add(total_ns, *target_ns);
        self.window_end_ns.get_or_insert(now.saturating_add(WINDOW_NS));
    }

    /// Tunes the depths if the end of the window has passed.
    pub(super) fn tune(&mut self, now: u64) {
        if let Some(end_ns) = self.window_end_ns.take_if(|end_ns| *end_ns <= now) {
            self.end_window(end_ns);
        }
    }

    fn end_window(&mut self, now: u64) {
        let mut is_congested = false;
        for latencies in &mut self.latencies {
            let p90 = match plants!(CongestedByTotal) {
                true => latencies.total.clone().take_percentile(90, now),
                false => latencies.device.take_percentile(90, now),
            };
            is_congested |= p90.is_some_and(|bucket| bucket >= NR_GOOD);
        }
        for (nth, latencies) in self.latencies.iter_mut().enumerate() {
            let p99 = latencies.total.take_percentile(99, now);
            // KY6.
            let earlier = latencies.latest_p99.take();
            if plants!(ReusePercentile) {
                latencies.latest_p99 = earlier;
            }
            if !is_congested {
                latencies.latest_p99 = p99.or(earlier);
            }
            let Some(bucket) = p99.or(earlier.filter(|_| is_congested)) else { continue };
            if is_congested || bucket >= NR_GOOD && !plants!(NeverGrow) {
                let depth = self.depths[nth] * (bucket + 1) / NR_GOOD;
                self.depths[nth] = depth.clamp(1, self.depths_max[nth]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
