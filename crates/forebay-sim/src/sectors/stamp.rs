//! Contents of a sector: the same sixteen bytes repeated, the write's number and the sector's
//! number. So a read shows which write filled the sector, and a torn sector has two different
//! patterns.

use std::fmt;

/// Identifies a write: the writer, and the sequence number of the write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

/// The upper bits of a sector's number, to distinguish foreign data.
const MARK: u64 = 0x0f0b << SECTOR_BITS;
const SECTOR_BITS: u32 = 48;
const SEQUENCE_BITS: u32 = 48;
const PAIR_BYTES: usize = 16;

/// The contents of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing but zeroes.
    Zero,
    /// The whole data of one write.
    Stamp(Stamp),
    /// The data of a write to another sector.
    Misdirected(Stamp, u64),
    /// Parts of two writes, or a part of one write.
    Torn,
    /// Data that none of the writes can have left.
    Foreign,
    /// Not read, or the read proves nothing. A sector never holds this value.
    Unseen,
}

impl Stamp {
    /// Returns the stamp of a write. `writer` and `sequence` are arbitrary numbers; `sequence`
    /// counts the writes of `writer` and has 48 bits.
    ///
    /// # Panics
    /// If the sequence has more than 48 bits.
    pub fn new(writer: u16, sequence: u64) -> Stamp {
        assert!(sequence < (1 << SEQUENCE_BITS), "a sequence has 48 bits");
        Stamp(u64::from(writer) << SEQUENCE_BITS | sequence)
    }

    /// Returns the writer.
    pub fn writer(self) -> u16 {
        (self.0 >> SEQUENCE_BITS) as u16
    }

    /// Returns the sequence number among the writer's writes.
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }

    /// Fills a sector with the stamp.
    ///
    /// # Panics
    /// If the length is not a multiple of 16 bytes.
    pub fn fill(self, sector: u64, bytes: &mut [u8]) {
        assert_eq!(bytes.len() % PAIR_BYTES, 0, "stamps are 16 bytes long");
        for pair in bytes.chunks_exact_mut(PAIR_BYTES) {
            pair[..8].copy_from_slice(&self.0.to_le_bytes());
            pair[8..].copy_from_slice(&(MARK | sector).to_le_bytes());
        }
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.writer(), self.sequence())
    }
}

impl Value {
    /// Returns the value of a sector's bytes.
    ///
    /// # Panics
    /// If the length is not a multiple of 16 bytes, or is 0.
    pub fn of(sector: u64, bytes: &[u8]) -> Value {
        assert_eq!(bytes.len() % PAIR_BYTES, 0, "stamps are 16 bytes long");
        let mut pairs = bytes.chunks_exact(PAIR_BYTES);
        let first = pairs.next().expect("a sector has bytes");
        if pairs.any(|pair| pair != first) {
            return Value::Torn;
        }
        let word = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().expect("8 bytes"));
        let (stamp, place) = (word(0), word(8));
        match place >> SECTOR_BITS << SECTOR_BITS {
            0 if stamp == 0 && place == 0 => Value::Zero,
            MARK if place == MARK | sector => Value::Stamp(Stamp(stamp)),
            MARK => Value::Misdirected(Stamp(stamp), place & !MARK),
            _ => Value::Foreign,
        }
    }
}
