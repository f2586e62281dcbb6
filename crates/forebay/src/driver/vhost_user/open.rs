//! Opening the disk of a vhost-user-blk server.

use super::config::{Config, Features};
use super::connect;
use super::device::VhostUserDevice;
use super::geometry::Geometry;
use super::requests::{MAX_SEGMENTS, RANGE};
use super::{take_poll, take_queue_size};
use crate::claim::Claim;
use crate::driver::Opened;
use crate::driver::refusal::Refusal;
use crate::error::{OpenError, SpecError};
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::scheduler_below::SchedulerBelow;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::{Policy, QueueLimits};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of ranges of a discard. The layer merges no more.
const NR_RANGES_MAX: u32 = 256;

/// The longest discard or write-zeroes, sectors: 1 GiB. A server may take long for a longer one.
const RANGE_MAX_SECTORS: u32 = 1 << 21;

pub(in crate::driver) fn open(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let queue_size = take_queue_size(keys)?;
    let poll = take_poll(keys)?;
    if settings.exclusive() {
        return Err(OpenError::Spec(SpecError::BadValue {
            key: String::from("exclusive"),
            value: String::from("on"),
            expected: "off: a vhost-user server has one client, and decides who else uses the disk"
                .into(),
        }));
    }
    let path = PathBuf::from(spec.target());
    let refused = |refusal: Refusal| {
        let (why, source) = refusal.into_parts();
        OpenError::VhostUser { path: path.clone(), why, source }
    };
    let greeted = connect::greet(spec.target(), connect::TIMEOUT).map_err(refused)?;
    let (config, features) = (greeted.config, greeted.features);
    let defaults = Defaults {
        below: SchedulerBelow::Server,
        // One descriptor is for a flush, which has a tag of its own.
        queue_depth: queue_size.map(|size| Policy::default().queue_depth.min(u32::from(size) - 1)),
        hw_queues_max: Some(u32::from(config.nr_queues)),
        ..Defaults::default()
    };
    let Policy { queue_depth, nr_hw_queues, .. } = settings.policy(defaults)?;
    let nr_tags = queue_depth + 1;
    let geometry = Geometry::new(&config, features.has_indirect(), nr_tags, queue_size);
    let geometry = geometry.map_err(|why| refused(why.into()))?;
    let connected = greeted.set_up(geometry, nr_hw_queues).map_err(|why| refused(why.into()))?;
    let limits = limits(&config, &geometry);
    let device = VhostUserDevice::new(path.clone(), limits, nr_tags, poll, connected);
    Ok(Opened {
        device: Arc::new(device),
        // Whether the server's disk is cached is unknown.
        facts: DiskFacts { caches_reads: true, ..DiskFacts::default() },
        features: describe(&config, features, &geometry, nr_hw_queues, poll),
        notice: None,
        defaults,
        claim: Claim::remote(),
    })
}

/// Returns the limits that the configuration and the shape of the rings imply.
pub(super) fn limits(config: &Config, geometry: &Geometry) -> QueueLimits {
    let max_sectors = geometry.data_max >> 9;
    let most = |ranges: Option<super::config::Ranges>, unit: u32| {
        ranges.map_or(0, |ranges| {
            let max = ranges.max_sectors.min(RANGE_MAX_SECTORS);
            max - max % (unit >> 9)
        })
    };
    let max_discard = most(config.discard, config.discard_granularity);
    let nr_ranges = config.discard.map_or(1, |ranges| ranges.max_ranges);
    QueueLimits::default()
        .capacity_bytes(Some(config.capacity_bytes))
        .logical_block_size(config.block)
        .physical_block_size(config.physical_block)
        .io_min(config.io_min.max(config.block))
        .io_opt(config.io_opt)
        .max_hw_sectors(max_sectors)
        .max_sectors(max_sectors.min(QueueLimits::default().max_sectors))
        .max_segments(MAX_SEGMENTS)
        .discard_granularity(if max_discard > 0 { config.discard_granularity } else { 0 })
        .max_discard_sectors(max_discard)
        .max_discard_segments(nr_ranges.min(NR_RANGES_MAX).min(geometry.data_max / RANGE as u32))
        .max_write_zeroes_sectors(most(config.write_zeroes, config.block))
        .volatile_cache(config.has_flush && !config.is_read_only)
        .read_only(config.is_read_only)
}

fn describe(
    config: &Config,
    features: Features,
    geometry: &Geometry,
    nr_hw_queues: u32,
    poll: Duration,
) -> Vec<Feature> {
    let queues = format!(
        "{nr_hw_queues} of the server's {} queues, {} descriptors each",
        config.nr_queues, geometry.queue_size
    );
    vec![
        Feature::present("virtio", queues),
        Feature::either(
            "indirect_desc",
            features.has_indirect(),
            "one descriptor of the ring for each request",
            "the server does not have it: a request takes several descriptors of the ring",
        ),
        Feature::either(
            "event_idx",
            features.has_event_idx(),
            "kicks and interrupts only when the other side waits",
            "the server does not have it: each completion interrupts a wait",
        ),
        match poll.is_zero() {
            true => Feature::missing("polling", "poll_us=0: a wait sleeps at once"),
            false => Feature::present("polling", format!("a wait polls for {poll:?} at most")),
        },
        Feature::present(
            "bounce",
            "all data is copied through memory that the server shares; it reaches no other memory",
        ),
        match (config.has_flush, config.says_write_through, config.is_read_only) {
            (_, _, true) => Feature::missing("flush", "the disk is read-only"),
            (true, false, _) => Feature::present("flush", "the server's"),
            (true, true, _) => Feature::present(
                "flush",
                "the server's; its cache is said to be write-through, which is not relied on",
            ),
            (false, ..) => Feature::missing(
                "flush",
                "the server has none, so it is write-through: a write is durable when it ends",
            ),
        },
        Feature::missing("fua", "virtio has none: a flush follows the write"),
        Feature::either(
            "discard",
            config.discard.is_some(),
            "the server's",
            "the server does not discard",
        ),
        Feature::either(
            "write_zeroes",
            config.write_zeroes.is_some(),
            "the server's, and nothing is unmapped by it",
            "the server does not write zeroes",
        ),
        Feature::missing("block_status", "the protocol does not report where data is"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::config::LEN;
    use super::*;
    use crate::driver::testing::Numbers;

    #[test]
    fn limits_of_any_accepted_configuration_are_valid() {
        let mut numbers = Numbers(11);
        let (mut nr_accepted, mut nr_discards) = (0, 0);
        for _ in 0..20_000 {
            let mut space = [0; LEN];
            for byte in &mut space {
                *byte = if numbers.below(2) == 0 { 0 } else { numbers.below(256) as u8 };
            }
            // Most values of these two would be refused: capacity and block size.
            space[7] = 0;
            space[20..24].copy_from_slice(&(512_u32 << numbers.below(5)).to_le_bytes());
            let features = Features::negotiate(numbers.below(1 << 31) | 1 << 32).expect("modern");
            let Ok(config) = Config::parse(&space, features) else { continue };
            let nr_tags = 1 + numbers.below(1024) as u32;
            let Ok(geometry) = Geometry::new(&config, features.has_indirect(), nr_tags, None)
            else {
                continue;
            };
            let limits = limits(&config, &geometry);
            assert_eq!(limits.validate(), Ok(()), "{config:?} {geometry:?}");
            nr_accepted += 1;
            nr_discards += u32::from(limits.max_discard_sectors > 0);
        }
        assert!(nr_accepted > 1000 && nr_discards > 100, "{nr_accepted} {nr_discards}");
    }
}
