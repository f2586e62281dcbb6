//! What is written into a sector, so that a read can say whose it is: the same sixteen bytes over
//! and over, the write's number and the sector's. A sector that is torn has two of them.

use std::fmt;

/// The number of a write: who wrote, and which of its writes it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

/// What the upper bits of a sector's number hold, so that other data is told from ours.
const MARK: u64 = 0x0f0b << SECTOR_BITS;
const SECTOR_BITS: u32 = 48;
const SEQUENCE_BITS: u32 = 48;
const PAIR_BYTES: usize = 16;

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing but zeroes.
    Zero,
    /// The data of a write, whole.
    Stamp(Stamp),
    /// The data of a write to another sector.
    Misdirected(Stamp, u64),
    /// Parts of two writes, or of one and none.
    Torn,
    /// What no write of ours can have left.
    Foreign,
    /// Nobody looked, or what was seen proves nothing: never what a sector holds.
    Unseen,
}

impl Stamp {
    /// `sequence` counts the writes of `writer`; both are any numbers, of 16 and 48 bits.
    ///
    /// # Panics
    /// If the sequence has more bits.
    pub fn new(writer: u16, sequence: u64) -> Stamp {
        assert!(sequence < (1 << SEQUENCE_BITS), "a sequence has 48 bits");
        Stamp(u64::from(writer) << SEQUENCE_BITS | sequence)
    }

    /// Who wrote.
    pub fn writer(self) -> u16 {
        (self.0 >> SEQUENCE_BITS) as u16
    }

    /// Which of its writes it was.
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }

    /// Fills a sector with the stamp.
    ///
    /// # Panics
    /// If its length is no multiple of 16 bytes.
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
    /// What a sector's bytes say.
    ///
    /// # Panics
    /// If their number is not a multiple of 16, or there are none.
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
