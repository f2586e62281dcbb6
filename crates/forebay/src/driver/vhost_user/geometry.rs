//! The shape of each queue, and its places in the shared memory.
//!
//! Each tag has its own descriptors, header, status byte and data area, so a request that has a tag
//! has room, and issuing one allocates nothing. With `INDIRECT_DESC` a request takes one descriptor
//! of the ring, which refers to a table of the tag. Without it, a request takes as many descriptors
//! of the ring as it needs at most, at places that depend only on its tag.
//!
//! A queue in memory: the ring; for each tag a cache line with the header and the status byte,
//! which change with each request, and the table, which seldom changes; then the data areas, each
//! on a page boundary.

use super::config::Config;
use super::ring::{DESCRIPTOR, Layout, SIZE_MAX};

/// The largest request, bytes. All data passes through the data areas, and each tag may fill its
/// own. So the memory of a queue is at most its number of tags times this.
const DATA_MAX: u32 = 512 << 10;

const PAGE: usize = 4096;

/// The descriptors of a request besides those of its data: the header and the status byte.
const NR_OTHERS: u32 = 2;

/// The offset of the status byte, and of the table, behind the header of a tag.
const STATUS: usize = 16;
const TABLE: usize = 64;

/// The shape of every queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The number of tags: the depth, and one for flushes.
    pub(super) nr_tags: u32,
    /// The number of descriptors of the ring.
    pub(super) queue_size: u16,
    /// The largest length of a request's data, bytes.
    pub(super) data_max: u32,
    /// The largest length of a data descriptor, bytes.
    pub(super) piece_max: u32,
    /// The maximum number of data descriptors of a request.
    nr_pieces: u32,
    pub(super) is_indirect: bool,
}

impl Geometry {
    /// Chooses the shape for this number of tags. `queue_size` is the size that the user chose.
    ///
    /// # Errors
    /// Returns why no shape fits, and what to do.
    pub(super) fn new(
        config: &Config,
        is_indirect: bool,
        nr_tags: u32,
        queue_size: Option<u16>,
    ) -> Result<Geometry, String> {
        let size_max = u32::from(queue_size.unwrap_or(SIZE_MAX));
        let piece_max = config.piece_max.min(DATA_MAX);
        // The longest chain: the standard allows as many descriptors as the ring has.
        let chain_max = if is_indirect { size_max } else { size_max / nr_tags };
        let nr_pieces = DATA_MAX
            .div_ceil(piece_max)
            .min(config.nr_pieces_max)
            .min(chain_max.saturating_sub(NR_OTHERS));
        if nr_tags > size_max || nr_pieces == 0 {
            return Err(no_room(is_indirect, nr_tags - 1, size_max));
        }
        let data_max = piece_max.saturating_mul(nr_pieces).min(DATA_MAX);
        let data_max = data_max - data_max % config.block;
        if data_max == 0 {
            return Err(format!(
                "a request holds at most {nr_pieces} x {piece_max} bytes, less than one block of \
                 {} bytes: the server's size_max or seg_max is too small",
                config.block
            ));
        }
        let nr_descriptors = match is_indirect {
            true => nr_tags.max(nr_pieces + NR_OTHERS),
            false => nr_tags * (nr_pieces + NR_OTHERS),
        };
        let least = nr_descriptors.next_power_of_two() as u16;
        let queue_size = queue_size.unwrap_or(least);
        Ok(Geometry { nr_tags, queue_size, data_max, piece_max, nr_pieces, is_indirect })
    }

    /// Returns the number of ring descriptors of each tag.
    pub(super) fn descriptors_per_tag(&self) -> u16 {
        if self.is_indirect { 1 } else { (self.nr_pieces + NR_OTHERS) as u16 }
    }

    /// Returns the first ring descriptor of a tag.
    #[inline]
    pub(super) fn head(&self, tag: usize) -> u16 {
        tag as u16 * self.descriptors_per_tag()
    }

    fn control_len(&self) -> usize {
        let table = if self.is_indirect { self.nr_pieces + NR_OTHERS } else { 0 };
        (TABLE + table as usize * DESCRIPTOR).next_multiple_of(64)
    }

    fn data_len(&self) -> usize {
        (self.data_max as usize).next_multiple_of(PAGE)
    }

    /// Returns the length of a queue in memory, whole pages.
    pub(super) fn queue_len(&self) -> usize {
        let area = Area::new(*self, 0);
        area.data_at + self.nr_tags as usize * self.data_len()
    }
}

fn no_room(is_indirect: bool, depth: u32, size_max: u32) -> String {
    let (needs, why) = match is_indirect {
        true => ("1 descriptor", ""),
        false => ("3 descriptors", ", because the server does not offer INDIRECT_DESC"),
    };
    format!(
        "queue_depth={depth}: each request, and one flush besides, takes at least {needs} of a \
         ring of {size_max}{why}: lower queue_depth, or raise queue_size up to {SIZE_MAX}"
    )
}

/// The places of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) geometry: Geometry,
    pub(super) layout: Layout,
    control_at: usize,
    data_at: usize,
}

impl Area {
    /// Returns the places of a queue whose memory begins at `offset`, a multiple of a page.
    pub(super) fn new(geometry: Geometry, offset: usize) -> Area {
        let layout = Layout::new(offset, geometry.queue_size);
        let control_at = layout.end().next_multiple_of(64);
        let control_len = geometry.nr_tags as usize * geometry.control_len();
        let data_at = (control_at + control_len).next_multiple_of(PAGE);
        Area { geometry, layout, control_at, data_at }
    }

    /// Returns the offset of a tag's header, 16 bytes.
    #[inline]
    pub(super) fn header(&self, tag: usize) -> usize {
        self.control_at + tag * self.geometry.control_len()
    }

    /// Returns the offset of a tag's status byte.
    #[inline]
    pub(super) fn status(&self, tag: usize) -> usize {
        self.header(tag) + STATUS
    }

    /// Returns the offset of a tag's descriptor table.
    #[inline]
    pub(super) fn table(&self, tag: usize) -> usize {
        self.header(tag) + TABLE
    }

    /// Returns the offset of a tag's data.
    #[inline]
    pub(super) fn data(&self, tag: usize) -> usize {
        self.data_at + tag * self.geometry.data_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(piece_max: u32, nr_pieces_max: u32) -> Config {
        Config {
            capacity_bytes: 1 << 30,
            piece_max,
            nr_pieces_max,
            block: 512,
            physical_block: 512,
            io_min: 512,
            io_opt: 0,
            nr_queues: 1,
            discard: None,
            discard_granularity: 512,
            write_zeroes: None,
            has_flush: true,
            says_write_through: false,
            is_read_only: false,
        }
    }

    fn shape(config: &Config, is_indirect: bool, nr_tags: u32) -> (u16, u32) {
        let geometry = Geometry::new(config, is_indirect, nr_tags, None).expect("a shape");
        (geometry.queue_size, geometry.data_max)
    }

    #[test]
    fn ring_holds_every_request() {
        let whole = config(u32::MAX, 126);
        assert_eq!(shape(&whole, true, 256), (256, DATA_MAX));
        assert_eq!(shape(&whole, true, 1), (4, DATA_MAX));
        assert_eq!(shape(&whole, false, 256), (1024, DATA_MAX));
        assert_eq!(shape(&whole, false, 341), (1024, DATA_MAX));
        assert_eq!(shape(&config(65536, 126), true, 4), (16, DATA_MAX));
        // Without indirect descriptors, a deep queue has room for four pieces of each request.
        assert_eq!(shape(&config(65536, 126), false, 170), (1024, 4 * 65536));
        assert_eq!(shape(&config(4096, 2), true, 64), (64, 8192));
        assert_eq!(shape(&config(700, 1), true, 64), (64, 512));
    }

    #[test]
    fn depth_beyond_the_ring_is_refused_with_the_remedy() {
        let whole = config(u32::MAX, 126);
        let error = Geometry::new(&whole, false, 342, None).expect_err("too deep");
        assert!(error.starts_with("queue_depth=341: each request, and one flush"), "{error}");
        let error = Geometry::new(&whole, true, 2000, None).expect_err("too deep");
        assert!(error.ends_with("lower queue_depth, or raise queue_size up to 1024"), "{error}");
        assert!(Geometry::new(&whole, true, 64, Some(32)).is_err());
        assert!(Geometry::new(&whole, true, 2, Some(2)).is_err());
        let small = Config { block: 4096, ..config(512, 2) };
        let error = Geometry::new(&small, true, 4, None).expect_err("small requests");
        assert!(error.contains("less than one block of 4096 bytes"), "{error}");
    }

    #[test]
    fn parts_of_a_queue_do_not_overlap() {
        for is_indirect in [true, false] {
            let geometry = Geometry::new(&config(4096, 8), is_indirect, 5, None).expect("a shape");
            let area = Area::new(geometry, 3 * PAGE);
            let mut ends = vec![(3 * PAGE, area.layout.end())];
            for tag in 0..5 {
                ends.push((area.header(tag), area.header(tag) + 16));
                ends.push((area.status(tag), area.status(tag) + 1));
                let table = if is_indirect { 10 * DESCRIPTOR } else { 0 };
                ends.push((area.table(tag), area.table(tag) + table));
            }
            ends.extend((0..5).map(|tag| (area.data(tag), area.data(tag) + 32768)));
            assert!(ends.windows(2).all(|two| two[0].1 <= two[1].0), "{ends:?}");
            assert_eq!(ends.last().expect("some").1, 3 * PAGE + geometry.queue_len());
        }
    }
}
