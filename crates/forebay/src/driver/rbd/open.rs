//! Opening an image.

use super::Access;
use super::api::Api;
use super::cluster::{Cluster, Refused};
use super::driver::{RbdDriver, Size};
use super::image::{FEATURE_EXCLUSIVE_LOCK, FEATURE_JOURNALING, Image};
use super::lock::LockWatch;
use super::target::Target;
use crate::claim::Claim;
use crate::driver::{DriverDevice, Facts, Opened};
use crate::error::OpenError;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::scheduler_below::SchedulerBelow;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use crate::sys::fork::Origin;
use forebay_core::{QueueLimits, parse_size};
use std::sync::{Arc, OnceLock};

/// The block of the disk, bytes. An image has none, and most users of disks need one.
const BLOCK: u32 = 512;

/// The unit in which OSDs store data, bytes.
const OSD_BLOCK: u32 = 4096;

/// The largest request, sectors: 32 MiB. librbd divides it into those of objects.
const SECTORS_MAX: u32 = 1 << 16;

/// The maximum number of segments of a request: a megabyte of pages.
const SEGMENTS_MAX: u32 = 256;

/// The longest discard or write-zeroes, sectors: 1 GiB. It takes an operation for each object.
const RANGE_MAX_SECTORS: u32 = 1 << 21;

/// The same in bytes.
const RANGE_MAX: u32 = RANGE_MAX_SECTORS << 9;

pub(in crate::driver) fn open(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let access = Access::take(keys)?;
    let target = Target::parse(spec.target())?;
    // A connection may take 30 s.
    keys.finish()?;
    let defaults = Defaults { below: SchedulerBelow::Server, ..Defaults::default() };
    let io_timeout_ns = settings.policy(defaults)?.io_timeout_ns;
    // librados takes whole seconds.
    let timeout_s = (io_timeout_ns > 0).then(|| io_timeout_ns.div_ceil(1_000_000_000));
    let read_only = settings.read_only() || target.snapshot.is_some();
    let is_locked = settings.exclusive();
    let refused = |Refused { why, errno }: Refused| OpenError::Rbd {
        image: spec.target().to_owned(),
        why,
        errno,
    };
    if is_locked && read_only {
        let why = "exclusive=on: a read-only disk does not take the lock: omit exclusive=on";
        return Err(refused(Refused::new(-libc::EINVAL, why)));
    }
    check_process().map_err(refused)?;
    let api = Api::get().map_err(|why| refused(Refused::new(-libc::ELIBACC, why)))?;
    let cluster = Cluster::connect(api, &target, &access, timeout_s).map_err(refused)?;
    let mut image = Image::open(api, cluster, &target, read_only).map_err(refused)?;
    if is_locked {
        image.lock().map_err(refused)?;
    }
    let described = Described::of(&image, read_only).map_err(refused)?;
    let image = Arc::new(image);
    let lock = is_locked.then(|| LockWatch::start(Arc::clone(&image))).transpose();
    let lock = lock.map_err(|source| OpenError::Service { source })?;
    let features = described.features(api, &image, &target, is_locked);
    let (out_of_reach_bytes, limits) = (described.out_of_reach_bytes, described.limits);
    let notice = (out_of_reach_bytes > 0).then(|| {
        format!(
            "the last {out_of_reach_bytes} bytes of the image are less than a block of {BLOCK} \
             bytes, and are not part of the disk"
        )
    });
    let disk = DiskFacts {
        // Without a unit, each byte of a discard is zeroed.
        discards_to_zeroes: described.discards_all,
        zeroes_fast: limits.max_write_zeroes_sectors > 0,
        caches_reads: true,
        uses_tcp: true,
        out_of_reach_bytes,
        ..DiskFacts::default()
    };
    let size = match (read_only, &target.snapshot) {
        (false, _) => Size::Watched,
        (true, None) => Size::Reopened,
        (true, Some(_)) => Size::Fixed,
    };
    let facts = Facts { disk, ..Facts::new("rbd", limits) };
    let driver = RbdDriver::new(image, lock, facts, size);
    let device = Arc::new(DriverDevice::new(driver));
    let claim = if is_locked { Claim::remote_exclusive() } else { Claim::remote() };
    Ok(Opened { device, facts: disk, features, notice, defaults, claim })
}

/// Refuses to use librbd in a child of a fork of a process that has used it.
fn check_process() -> Result<(), Refused> {
    static FIRST: OnceLock<Origin> = OnceLock::new();
    match FIRST.get_or_init(Origin::here).is_elsewhere() {
        true => Err(Refused::new(
            -libc::ENOTSUP,
            "this process is a forked child of one that uses librbd, and lacks librbd's threads: \
             call exec after the fork",
        )),
        false => Ok(()),
    }
}

/// Returns the unit of discards for librbd's own, in bytes.
fn discard_unit(bytes: u64) -> u32 {
    let unit = bytes.clamp(BLOCK.into(), RANGE_MAX.into()) as u32;
    unit.next_power_of_two()
}

/// The properties of an open image.
struct Described {
    limits: QueueLimits,
    object_bytes: u64,
    /// Why written data may be lost before a flush, if it may.
    cache: Option<String>,
    /// Whether a single write can be durable in spite of the cache, or why not.
    fua: Result<(), String>,
    has_lock: bool,
    out_of_reach_bytes: u64,
    /// A discard has no unit.
    discards_all: bool,
}

impl Described {
    fn of(image: &Image, read_only: bool) -> Result<Described, Refused> {
        let info = image.stat()?;
        let features = image.features()?;
        let has_lock = features & FEATURE_EXCLUSIVE_LOCK != 0;
        let out_of_reach_bytes = info.size % u64::from(BLOCK);
        let unit = image.option(c"rbd_discard_granularity_bytes");
        let unit = parse_size(unit.text()).unwrap_or(0);
        let discards_all = image.option(c"rbd_skip_partial_discard").is_false();
        let unit = discard_unit(if discards_all { 0 } else { unit });
        let options = image.cache_options();
        let cache = options.volatile();
        let fua = options.durable_writes(features & FEATURE_JOURNALING != 0);
        let zeroes = image.api.rbd_aio_write_zeroes.is_some();
        let limits = QueueLimits::default()
            .capacity_bytes(Some(info.size - out_of_reach_bytes))
            .logical_block_size(BLOCK)
            .physical_block_size(OSD_BLOCK)
            .io_min(OSD_BLOCK)
            .io_opt(info.obj_size.min(1 << 30) as u32)
            .max_hw_sectors(SECTORS_MAX)
            .max_segments(SEGMENTS_MAX)
            .discard_granularity(unit)
            .max_discard_sectors(RANGE_MAX_SECTORS)
            .max_write_zeroes_sectors(if zeroes { RANGE_MAX_SECTORS } else { 0 })
            .volatile_cache(cache.is_some() && !read_only)
            .fua(fua.is_ok())
            .read_only(read_only);
        Ok(Described {
            limits,
            object_bytes: info.obj_size,
            cache,
            fua,
            has_lock,
            out_of_reach_bytes,
            discards_all,
        })
    }

    fn fua(&self) -> Feature {
        match (&self.cache, &self.fua) {
            (None, _) => Feature::missing("fua", "rbd_cache=false: each write is durable"),
            (Some(_), Ok(())) => {
                Feature::present("fua", "a flag of the write (rbd_cache_policy=writearound)")
            }
            (Some(_), Err(why)) => Feature::missing("fua", why.clone()),
        }
    }

    fn features(&self, api: &Api, image: &Image, target: &Target, is_locked: bool) -> Vec<Feature> {
        let timeout = match image.cluster().op_timeout_s {
            0 => Feature::missing("timeout", "rados_osd_op_timeout=0: commands wait forever"),
            seconds => Feature::present(
                "timeout",
                format!("rados_osd_op_timeout={seconds}: a command fails after {seconds} s"),
            ),
        };
        let read_only = match &target.snapshot {
            Some(_) => "a snapshot is read-only",
            None => "read_only=on",
        };
        let unless_read_only = |name, feature: Feature| match self.limits.read_only {
            true => Feature::missing(name, read_only),
            false => feature,
        };
        let flush = match &self.cache {
            Some(cache) => Feature::present("flush", format!("librbd's write cache: {cache}")),
            None => Feature::missing(
                "flush",
                "rbd_cache=false: a write is durable when it ends, and a flush ends at once",
            ),
        };
        let lock = match (is_locked, self.has_lock) {
            (true, _) => Feature::present("exclusive", "keeps the lock of the image"),
            (false, true) => Feature::missing(
                "exclusive",
                "off; librbd passes the lock of the image to each client that writes, one after \
                 the other",
            ),
            (false, false) => {
                Feature::missing("exclusive", "the image lacks the feature exclusive-lock")
            }
        };
        vec![
            Feature::present(
                "librbd",
                format!("{}, objects of {} bytes", api.version(), self.object_bytes),
            ),
            unless_read_only("flush", flush),
            unless_read_only("fua", self.fua()),
            unless_read_only(
                "discard",
                Feature::present(
                    "discard",
                    match self.discards_all {
                        true => {
                            String::from("each byte is zeroed (rbd_skip_partial_discard=false)")
                        }
                        false => format!(
                            "in whole units of {} bytes (rbd_discard_granularity_bytes)",
                            self.limits.discard_granularity
                        ),
                    },
                ),
            ),
            unless_read_only(
                "write_zeroes",
                Feature::either(
                    "write_zeroes",
                    self.limits.max_write_zeroes_sectors > 0,
                    "whole objects are removed",
                    "this librbd has no rbd_aio_write_zeroes: install 16.2 or later",
                ),
            ),
            Feature::present("block_status", "the written part of each object"),
            lock,
            timeout,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_of_discards_is_a_power_of_two_up_to_the_longest_discard() {
        for (bytes, unit) in [
            (0, 512),
            (513, 1024),
            (64 << 10, 64 << 10),
            (4 << 20, 4 << 20),
            (1 << 30, 1 << 30),
            (1 << 32, 1 << 30),
        ] {
            assert_eq!(discard_unit(bytes), unit, "{bytes}");
        }
    }
}
