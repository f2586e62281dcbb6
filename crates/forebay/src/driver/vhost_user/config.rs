//! Features and configuration space of a vhost-user-blk server, checked once.
//!
//! Source: "Virtual I/O Device (VIRTIO) Version 1.2", 5.2.3 and 5.2.4. A field counts only if its
//! feature was negotiated. The server is not trusted: a value that contradicts the standard is an
//! error, with the field and the value. A 0 to which the standard gives no meaning counts as "no
//! limit", because servers send that (qemu-storage-daemon: `size_max`).

use std::mem::offset_of;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX,
    VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES, virtio_blk_config,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// The features of the device and its rings that this driver uses.
const USED: [u32; 13] = [
    VIRTIO_F_VERSION_1,
    VIRTIO_RING_F_INDIRECT_DESC,
    VIRTIO_RING_F_EVENT_IDX,
    VIRTIO_BLK_F_SIZE_MAX,
    VIRTIO_BLK_F_SEG_MAX,
    VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_BLK_SIZE,
    VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_CONFIG_WCE,
    VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_DISCARD,
    VIRTIO_BLK_F_WRITE_ZEROES,
];

/// The length of the configuration space that is read: up to the fields of later features.
pub(super) const LEN: usize = offset_of!(virtio_blk_config, max_secure_erase_sectors);

/// The largest block size, bytes.
const BLOCK_MAX: u32 = 64 << 10;

/// A set of negotiated features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features(u64);

impl Features {
    /// Returns the offered features that this driver uses.
    ///
    /// # Errors
    /// Fails if the device is older than VIRTIO 1.0.
    pub(super) fn negotiate(offered: u64) -> Result<Features, String> {
        let used = USED.iter().fold(0, |bits, bit| bits | 1 << bit);
        let features = Features(offered & used);
        match features.has(VIRTIO_F_VERSION_1) {
            true => Ok(features),
            false => Err(String::from(
                "the server does not offer VERSION_1: it is older than VIRTIO 1.0",
            )),
        }
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    pub(super) fn has_indirect(self) -> bool {
        self.has(VIRTIO_RING_F_INDIRECT_DESC)
    }

    pub(super) fn has_event_idx(self) -> bool {
        self.has(VIRTIO_RING_F_EVENT_IDX)
    }
}

/// Limits of discards or write-zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    pub(super) max_sectors: u32,
    pub(super) max_ranges: u32,
}

/// The properties of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) capacity_bytes: u64,
    /// The longest data descriptor, bytes; `u32::MAX` for no limit.
    pub(super) piece_max: u32,
    /// The maximum number of data descriptors of a request.
    pub(super) nr_pieces_max: u32,
    pub(super) block: u32,
    pub(super) physical_block: u32,
    /// The smallest efficient I/O, and the best one, in bytes; 0 for none.
    pub(super) io_min: u32,
    pub(super) io_opt: u32,
    pub(super) nr_queues: u16,
    pub(super) discard: Option<Ranges>,
    /// The unit of a discard, bytes.
    pub(super) discard_granularity: u32,
    pub(super) write_zeroes: Option<Ranges>,
    /// The server has a flush command: only a flush is sure to make writes durable.
    pub(super) has_flush: bool,
    /// The server says that its cache is write-through now. That is reported and not relied on:
    /// qemu-storage-daemon 7.2 says so of a write-back cache, and it syncs nothing before a flush.
    pub(super) says_write_through: bool,
    pub(super) is_read_only: bool,
}

impl Config {
    /// Parses the configuration space.
    ///
    /// # Errors
    /// Names the first field whose value cannot be.
    pub(super) fn parse(space: &[u8; LEN], features: Features) -> Result<Config, String> {
        let field = |offset: usize, bit| Field { space, offset, is_there: features.has(bit) };
        let block = match field(offset_of!(virtio_blk_config, blk_size), VIRTIO_BLK_F_BLK_SIZE)
            .u32()
        {
            None | Some(0) => 512,
            Some(block) if block.is_power_of_two() && (512..=BLOCK_MAX).contains(&block) => block,
            Some(block) => return Err(wrong("blk_size", block, "a power of two, 512 to 65536")),
        };
        let capacity = u64::from_le_bytes(space[..8].try_into().expect("eight bytes"));
        let Some(bytes) = capacity.checked_mul(512).filter(|bytes| *bytes <= i64::MAX as u64)
        else {
            return Err(wrong("capacity", capacity, "fewer sectors"));
        };
        let piece_max =
            match field(offset_of!(virtio_blk_config, size_max), VIRTIO_BLK_F_SIZE_MAX).u32() {
                None | Some(0) => u32::MAX,
                Some(len) if len >= 512 => len,
                Some(len) => return Err(wrong("size_max", len, "512 or more")),
            };
        let nr_pieces = field(offset_of!(virtio_blk_config, seg_max), VIRTIO_BLK_F_SEG_MAX).u32();
        // The topology: one exponent, then the numbers of blocks.
        let exponent = offset_of!(virtio_blk_config, physical_block_exp);
        let exponent = field(exponent, VIRTIO_BLK_F_TOPOLOGY).u8().unwrap_or(0);
        let Some(physical_block) = block.checked_shl(exponent.into()).filter(|_| exponent <= 15)
        else {
            return Err(wrong("physical_block_exp", exponent, "15 or less"));
        };
        let io_min = field(offset_of!(virtio_blk_config, min_io_size), VIRTIO_BLK_F_TOPOLOGY).u16();
        let io_opt = field(offset_of!(virtio_blk_config, opt_io_size), VIRTIO_BLK_F_TOPOLOGY).u32();
        let queues = field(offset_of!(virtio_blk_config, num_queues), VIRTIO_BLK_F_MQ).u16();
        let nr_queues = match queues.unwrap_or(1) {
            0 => return Err(wrong("num_queues", 0u16, "1 or more")),
            nr => nr,
        };
        let wce = field(offset_of!(virtio_blk_config, wce), VIRTIO_BLK_F_CONFIG_WCE).u8();
        let discard = ranges(
            field(offset_of!(virtio_blk_config, max_discard_sectors), VIRTIO_BLK_F_DISCARD),
            field(offset_of!(virtio_blk_config, max_discard_seg), VIRTIO_BLK_F_DISCARD),
        );
        let granularity =
            field(offset_of!(virtio_blk_config, discard_sector_alignment), VIRTIO_BLK_F_DISCARD);
        Ok(Config {
            // A device may have sectors that make no whole block.
            capacity_bytes: bytes - bytes % u64::from(block),
            piece_max,
            nr_pieces_max: nr_pieces.unwrap_or(1).max(1),
            block,
            physical_block,
            io_min: u32::from(io_min.unwrap_or(0)).saturating_mul(block),
            io_opt: io_opt.unwrap_or(0).saturating_mul(block),
            nr_queues,
            discard,
            discard_granularity: discard_granularity(granularity.u32(), block),
            write_zeroes: ranges(
                field(
                    offset_of!(virtio_blk_config, max_write_zeroes_sectors),
                    VIRTIO_BLK_F_WRITE_ZEROES,
                ),
                field(
                    offset_of!(virtio_blk_config, max_write_zeroes_seg),
                    VIRTIO_BLK_F_WRITE_ZEROES,
                ),
            ),
            has_flush: features.has(VIRTIO_BLK_F_FLUSH),
            says_write_through: wce == Some(0),
            is_read_only: features.has(VIRTIO_BLK_F_RO),
        })
    }
}

/// Returns the unit of discards in bytes. A value that is no multiple of the block is no unit: then
/// it is the block.
fn discard_granularity(sectors: Option<u32>, block: u32) -> u32 {
    let bytes = sectors.and_then(|sectors| sectors.checked_mul(512));
    bytes.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(block)).unwrap_or(block)
}

fn ranges(sectors: Field<'_>, nr: Field<'_>) -> Option<Ranges> {
    let (max_sectors, max_ranges) = (sectors.u32()?, nr.u32()?);
    (max_sectors > 0).then(|| Ranges { max_sectors, max_ranges: max_ranges.max(1) })
}

fn wrong(field: &str, value: impl Into<u64>, expected: &str) -> String {
    let value: u64 = value.into();
    format!("the server's configuration is wrong: {field} is {value}, expected {expected}")
}

/// A field of the configuration space, which may not be negotiated.
#[derive(Clone, Copy, Debug)]
struct Field<'a> {
    space: &'a [u8; LEN],
    offset: usize,
    is_there: bool,
}

impl Field<'_> {
    fn bytes<const N: usize>(self) -> Option<[u8; N]> {
        let bytes = self.space[self.offset..][..N].try_into().expect("a field has its length");
        self.is_there.then_some(bytes)
    }

    fn u8(self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    fn u16(self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = u64::MAX;

    fn space(fields: &[(usize, &[u8])]) -> [u8; LEN] {
        let mut space = [0; LEN];
        space[..8].copy_from_slice(&2048u64.to_le_bytes());
        space[offset_of!(virtio_blk_config, num_queues)] = 1;
        for (offset, bytes) in fields {
            space[*offset..][..bytes.len()].copy_from_slice(bytes);
        }
        space
    }

    fn parse(fields: &[(usize, &[u8])], offered: u64) -> Result<Config, String> {
        Config::parse(&space(fields), Features::negotiate(offered).expect("a modern device"))
    }

    #[test]
    fn fields_without_their_feature_do_not_count() {
        let mut space = [0xff; LEN];
        space[..8].copy_from_slice(&2048u64.to_le_bytes());
        let features = Features::negotiate(1 << VIRTIO_F_VERSION_1).expect("a modern device");
        let config = Config::parse(&space, features).expect("a good configuration");
        let plain = Config {
            capacity_bytes: 1 << 20,
            piece_max: u32::MAX,
            nr_pieces_max: 1,
            block: 512,
            physical_block: 512,
            io_min: 0,
            io_opt: 0,
            nr_queues: 1,
            discard: None,
            discard_granularity: 512,
            write_zeroes: None,
            has_flush: false,
            says_write_through: false,
            is_read_only: false,
        };
        assert_eq!(config, plain);
    }

    #[test]
    fn flushes_are_due_even_if_the_cache_is_said_to_be_write_through() {
        let wce = offset_of!(virtio_blk_config, wce);
        let (flush, switch) = (1 << VIRTIO_BLK_F_FLUSH, 1 << VIRTIO_BLK_F_CONFIG_WCE);
        for (offered, value, expected) in [
            (flush, 0, (true, false)),
            (flush | switch, 0, (true, true)),
            (flush | switch, 1, (true, false)),
            (switch, 1, (false, false)),
        ] {
            let config = parse(&[(wce, &[value])], offered | 1 << VIRTIO_F_VERSION_1);
            let config = config.expect("a good configuration");
            assert_eq!((config.has_flush, config.says_write_through), expected, "{offered:#x}");
        }
    }

    #[test]
    fn impossible_values_are_refused_with_their_field() {
        let cases: [(&str, usize, &[u8]); 6] = [
            ("capacity is 72057594037927936", 0, &(1u64 << 56).to_le_bytes()),
            ("blk_size is 513", offset_of!(virtio_blk_config, blk_size), &513u32.to_le_bytes()),
            ("blk_size is 256", offset_of!(virtio_blk_config, blk_size), &256u32.to_le_bytes()),
            ("size_max is 1", offset_of!(virtio_blk_config, size_max), &1u32.to_le_bytes()),
            ("physical_block_exp is 32", offset_of!(virtio_blk_config, physical_block_exp), &[32]),
            ("num_queues is 0", offset_of!(virtio_blk_config, num_queues), &[0, 0]),
        ];
        for (expected, offset, bytes) in cases {
            let error = parse(&[(offset, bytes)], ALL).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn any_configuration_space_is_parsed_or_refused() {
        let mut random = 1_u64;
        for _ in 0..20_000 {
            let mut space = [0; LEN];
            for byte in &mut space {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = if random >> 63 == 0 { 0 } else { (random >> 40) as u8 };
            }
            // Most capacities would be too large.
            space[7] = 0;
            let features = Features::negotiate(random | 1 << VIRTIO_F_VERSION_1).expect("modern");
            if let Ok(config) = Config::parse(&space, features) {
                assert!(config.block >= 512 && config.physical_block >= config.block);
                assert!(config.discard_granularity.is_multiple_of(config.block));
                assert!(config.piece_max >= 512 && config.nr_pieces_max > 0);
            }
        }
    }

    #[test]
    fn device_before_virtio_1_is_refused() {
        assert!(Features::negotiate(1 << VIRTIO_BLK_F_FLUSH).is_err());
    }
}
