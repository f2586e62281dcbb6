//! Features and configuration space of a device, made from the limits of its disk.
//!
//! Source: "Virtual I/O Device (VIRTIO) Version 1.2", 5.2.3 and 5.2.4. Numbers of the configuration
//! space are little-endian. A field counts only if its feature was negotiated, so all are filled.

use crate::backend_channel::{BackendChannel, Notified};
use forebay_core::QueueLimits;
use forebay_front::blk::{RANGES_MAX, SECTOR};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX,
    VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES, virtio_blk_config,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Most rings of a device.
pub const MAX_QUEUES: u16 = 64;

/// Most descriptors of a ring.
pub const MAX_QUEUE_SIZE: u16 = 1024;

/// Fewest descriptors of a ring: a request takes a header, data, and a status.
pub const MIN_QUEUE_SIZE: u16 = 4;

/// Most data segments of a request. With a header and a status they fit a ring of 128 descriptors,
/// which is QEMU's default: a driver without indirect descriptors cannot send a longer chain.
pub const MAX_SEGMENTS: u32 = 126;

/// Longest data segment, bytes.
pub const MAX_SEGMENT_BYTES: u32 = 4 << 20;

/// Most ranges of a discard or a write-zeroes. A longer list is refused.
pub const MAX_RANGES: u32 = RANGES_MAX as u32;

/// Longest range of a discard or a write-zeroes, sectors: 1 GiB. The layer splits it.
pub const MAX_RANGE_SECTORS: u32 = 1 << 21;

/// Number of the feature that allows protocol features. It is not one of virtio's.
pub(crate) const PROTOCOL_FEATURES: u32 = 30;

/// Length of the configuration space that a front end may read.
const SPACE_LEN: usize = 256;

/// Shape of a device that its operator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of rings, 1 to [`MAX_QUEUES`].
    pub nr_queues: u16,
    /// Most descriptors of a ring: a power of two, [`MIN_QUEUE_SIZE`] to [`MAX_QUEUE_SIZE`].
    pub queue_size: u16,
}

/// Operations of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Reads only.
    pub read_only: bool,
    /// Discards.
    pub discard: bool,
    /// Writes of zeroes.
    pub write_zeroes: bool,
    /// Writes of zeroes that may unmap the range.
    pub unmap: bool,
}

/// Features and configuration space of a device. Only the capacity changes.
#[derive(Debug)]
pub struct Config {
    shape: Shape,
    features: u64,
    space: [u8; SPACE_LEN],
    /// Sectors of the disk. A thread that resizes the device stores it, and the message channel
    /// loads it. The store is Release and the load Acquire, for the rings: they accept requests up
    /// to the new size before the store. A driver that has read the new size sends such requests
    /// after the load, so each ring takes them after its own change.
    nr_sectors: AtomicU64,
    backend_channel: BackendChannel,
}

impl Config {
    /// Returns the configuration of a disk of `size_bytes` with these limits.
    pub fn new(
        limits: &QueueLimits,
        size_bytes: u64,
        capabilities: Capabilities,
        shape: Shape,
    ) -> Config {
        let sector = SECTOR as u32;
        let block = limits.logical_block_size.max(sector);
        let most = |sectors: u32| {
            let most = sectors.min(MAX_RANGE_SECTORS);
            most - most % (block / sector)
        };
        let zeroes =
            if capabilities.write_zeroes { most(limits.max_write_zeroes_sectors) } else { 0 };
        let discard = if capabilities.discard { most(limits.max_discard_sectors) } else { 0 };
        let mut features = [
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_RING_F_EVENT_IDX,
            PROTOCOL_FEATURES,
            VIRTIO_BLK_F_SIZE_MAX,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_CONFIG_WCE,
            VIRTIO_BLK_F_MQ,
        ]
        .into_iter()
        .fold(0, |bits, bit| bits | 1 << bit);
        for (bit, is_offered) in [
            (VIRTIO_BLK_F_RO, capabilities.read_only),
            (VIRTIO_BLK_F_DISCARD, discard > 0),
            (VIRTIO_BLK_F_WRITE_ZEROES, zeroes > 0),
        ] {
            features |= u64::from(is_offered) << bit;
        }
        let mut space = Space([0; SPACE_LEN]);
        let per_block = (limits.physical_block_size / block).max(1);
        let alignment = limits.discard_granularity.max(block) / sector;
        let segments = MAX_SEGMENTS.min(u32::from(shape.queue_size) - 2);
        let in_blocks = |bytes: u32| bytes / block;
        space.set(offset_of!(virtio_blk_config, size_max), MAX_SEGMENT_BYTES.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, seg_max), segments.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, blk_size), block.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, physical_block_exp), [per_block.ilog2() as u8]);
        let io_min = u16::try_from(in_blocks(limits.io_min)).unwrap_or(0);
        space.set(offset_of!(virtio_blk_config, min_io_size), io_min.to_le_bytes());
        space.set(
            offset_of!(virtio_blk_config, opt_io_size),
            in_blocks(limits.io_opt).to_le_bytes(),
        );
        space.set(offset_of!(virtio_blk_config, num_queues), shape.nr_queues.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, max_discard_sectors), discard.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, max_discard_seg), MAX_RANGES.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, discard_sector_alignment), alignment.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, max_write_zeroes_sectors), zeroes.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, max_write_zeroes_seg), MAX_RANGES.to_le_bytes());
        space.set(
            offset_of!(virtio_blk_config, write_zeroes_may_unmap),
            [capabilities.unmap.into()],
        );
        Config {
            shape,
            features,
            space: space.0,
            nr_sectors: AtomicU64::new(nr_sectors(size_bytes)),
            backend_channel: BackendChannel::default(),
        }
    }

    /// Changes the size of the disk in the configuration space, and makes the front end that is
    /// connected read it again. The rings must already accept requests up to that size. Does not
    /// wait for the front end.
    pub fn resize(&self, size_bytes: u64) -> Notified {
        self.nr_sectors.store(nr_sectors(size_bytes), Ordering::Release);
        self.backend_channel.notify()
    }

    pub(crate) fn backend_channel(&self) -> &BackendChannel {
        &self.backend_channel
    }

    /// Returns the number of rings.
    pub fn nr_queues(&self) -> u16 {
        self.shape.nr_queues
    }

    /// Returns the most descriptors of a ring.
    pub fn queue_size(&self) -> u16 {
        self.shape.queue_size
    }

    /// Returns the features that the device offers.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns `len` bytes of the configuration space. `None`: they are not all inside of it.
    pub(crate) fn read(&self, offset: u32, len: u32, cache: &WriteCache) -> Option<Vec<u8>> {
        let mut space = Space(self.space);
        let nr_sectors = self.nr_sectors.load(Ordering::Acquire);
        space.set(offset_of!(virtio_blk_config, capacity), nr_sectors.to_le_bytes());
        space.set(offset_of!(virtio_blk_config, wce), [cache.is_on().into()]);
        let end = offset.checked_add(len)?;
        space.0.get(offset as usize..end as usize).map(<[u8]>::to_vec)
    }
}

/// Returns the setting of the write cache that a write to the configuration space makes. It is the
/// only field that a driver may write. `None`: the write is not allowed.
pub(crate) fn written_cache(offset: u32, bytes: &[u8], features: u64) -> Option<bool> {
    let is_negotiated = features & 1 << VIRTIO_BLK_F_CONFIG_WCE != 0;
    let is_field = offset as usize == offset_of!(virtio_blk_config, wce);
    match bytes {
        [wce @ (0 | 1)] if is_field && is_negotiated => Some(*wce == 1),
        _ => None,
    }
}

/// Returns the sectors of a disk. It has whole blocks, even if a device has sectors behind them.
fn nr_sectors(size_bytes: u64) -> u64 {
    size_bytes / SECTOR
}

/// Bytes of a configuration space.
struct Space([u8; SPACE_LEN]);

impl Space {
    fn set<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.0[offset..][..N].copy_from_slice(&bytes);
    }
}

/// Setting of the volatile write cache of a device. The message channel writes it, the threads of
/// the rings read it.
#[derive(Debug)]
pub struct WriteCache(AtomicBool);

impl Default for WriteCache {
    fn default() -> WriteCache {
        WriteCache(AtomicBool::new(true))
    }
}

impl WriteCache {
    /// Returns whether a write may end before it is durable, if the driver has negotiated FLUSH.
    #[inline]
    pub fn is_on(&self) -> bool {
        // Acquire, with the Release of `set`: a request that the driver makes available after its
        // write to the configuration space has returned is taken after the store. The driver's
        // kick, or its available index, orders the two threads further.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { nr_queues: 3, queue_size: 128 };

    const ALL: Capabilities =
        Capabilities { read_only: false, discard: true, write_zeroes: true, unmap: true };

    fn limits() -> QueueLimits {
        QueueLimits::default()
            .logical_block_size(4096)
            .physical_block_size(16384)
            .io_min(16384)
            .io_opt(1 << 20)
            .discard_granularity(8192)
            .max_discard_sectors(u32::MAX)
            .max_write_zeroes_sectors(100)
    }

    fn read(config: &Config, offset: usize, len: u32) -> Vec<u8> {
        config.read(offset as u32, len, &WriteCache::default()).expect("inside")
    }

    fn u32_at(config: &Config, offset: usize) -> u32 {
        u32::from_le_bytes(read(config, offset, 4).try_into().expect("four bytes"))
    }

    #[test]
    fn configuration_space_has_the_limits_of_the_disk() {
        let config = Config::new(&limits(), 1 << 30, ALL, SHAPE);
        let at = |offset| u32_at(&config, offset);
        assert_eq!(read(&config, 0, 8), (1_u64 << 21).to_le_bytes());
        assert_eq!(at(offset_of!(virtio_blk_config, blk_size)), 4096);
        assert_eq!(read(&config, offset_of!(virtio_blk_config, physical_block_exp), 1), [2]);
        assert_eq!(read(&config, offset_of!(virtio_blk_config, min_io_size), 2), [4, 0]);
        assert_eq!(at(offset_of!(virtio_blk_config, opt_io_size)), 256);
        assert_eq!(at(offset_of!(virtio_blk_config, seg_max)), 126);
        assert_eq!(read(&config, offset_of!(virtio_blk_config, num_queues), 2), [3, 0]);
        assert_eq!(at(offset_of!(virtio_blk_config, max_discard_sectors)), 1 << 21);
        assert_eq!(at(offset_of!(virtio_blk_config, discard_sector_alignment)), 16);
        // Whole blocks.
        assert_eq!(at(offset_of!(virtio_blk_config, max_write_zeroes_sectors)), 96);
    }

    #[test]
    fn small_ring_has_requests_that_fit_it() {
        let shape = Shape { queue_size: 16, ..SHAPE };
        let config = Config::new(&limits(), 1 << 30, ALL, shape);
        assert_eq!(u32_at(&config, offset_of!(virtio_blk_config, seg_max)), 14);
    }

    #[test]
    fn features_follow_the_abilities_of_the_disk() {
        let has = |config: &Config, bit: u32| config.features() & 1 << bit != 0;
        let can_all = Config::new(&limits(), 1 << 30, ALL, SHAPE);
        assert!(!has(&can_all, VIRTIO_BLK_F_RO));
        assert!(has(&can_all, VIRTIO_BLK_F_DISCARD) && has(&can_all, VIRTIO_BLK_F_WRITE_ZEROES));
        let capabilities =
            Capabilities { read_only: true, discard: false, write_zeroes: false, unmap: false };
        let read_only = Config::new(&limits(), 1 << 30, capabilities, SHAPE);
        assert!(has(&read_only, VIRTIO_BLK_F_RO) && has(&read_only, VIRTIO_BLK_F_FLUSH));
        assert!(!has(&read_only, VIRTIO_BLK_F_DISCARD));
        assert!(!has(&read_only, VIRTIO_BLK_F_WRITE_ZEROES));
        let plain = Config::new(&QueueLimits::default(), 1 << 30, ALL, SHAPE);
        assert!(!has(&plain, VIRTIO_BLK_F_DISCARD) && !has(&plain, VIRTIO_BLK_F_WRITE_ZEROES));
    }

    #[test]
    fn reads_beyond_the_space_return_nothing() {
        let config = Config::new(&limits(), 1 << 30, ALL, SHAPE);
        let cache = WriteCache::default();
        assert_eq!(config.read(0, 256, &cache).map(|bytes| bytes.len()), Some(256));
        for (offset, len) in [(0, 257), (256, 1), (255, 2), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
            assert_eq!(config.read(offset, len, &cache), None, "{offset} {len}");
        }
    }

    #[test]
    fn write_cache_is_the_only_field_that_a_driver_writes() {
        let wce = offset_of!(virtio_blk_config, wce) as u32;
        let negotiated = 1 << VIRTIO_BLK_F_CONFIG_WCE;
        assert_eq!(written_cache(wce, &[0], negotiated), Some(false));
        assert_eq!(written_cache(wce, &[1], negotiated), Some(true));
        for (offset, bytes, features) in [
            (wce, &[0][..], 0),
            (wce, &[2], negotiated),
            (wce, &[], negotiated),
            (wce, &[0, 0], negotiated),
            (wce + 1, &[0], negotiated),
            (0, &[0], negotiated),
        ] {
            assert_eq!(written_cache(offset, bytes, features), None, "{offset} {bytes:?}");
        }
        let config = Config::new(&limits(), 1 << 30, ALL, SHAPE);
        let cache = WriteCache::default();
        assert_eq!(config.read(wce, 1, &cache), Some(vec![1]));
        cache.set(false);
        assert_eq!(config.read(wce, 1, &cache), Some(vec![0]));
    }
}
