//! Checksums of blocks, as fio 3.33 stores them behind its header.
//!
//! Source: what fio 3.33 writes, compared byte by byte. Most fields hold the sum as its standard
//! defines it. These differ:
//!
//! - `crc32c`: CRC-32C without the final inversion.
//! - `crc32`: the polynomial of CRC-32, most significant bit first, starting at 0, no inversion.
//! - `xxhash`: XXH32 with the seed 1.
//! - `sha1`: the five words of SHA-1, each little-endian.
//! - `sha256`: the low bytes of the eight words of SHA-256, computed with a little-endian length;
//!   then bytes 8 to 63 of the last padded block.
//! - `sha512`: no hash. It is the first 128 bytes of the data, and their beginning is replaced by
//!   the bytes behind the last multiple of 128.
//!
//! From version 3.39 on, fio stores a hash for `sha512`: SHA-512, then bytes 64 to 127 of the last
//! padded block. Checks accept both forms.

use crc::{Algorithm, Crc, Table};
use sha1::Digest;

use super::xxhash::xxh32;

/// The longest field of a checksum, bytes.
const FIELD_MAX: usize = 128;

/// The CRC-32 of fio: it starts at 0, and its result is not inverted.
const CRC32_PLAIN: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0,
    refin: false,
    refout: false,
    xorout: 0,
    // Only for tests of the crate.
    check: 0,
    residue: 0,
};

const CRC7: Crc<u8, Table<1>> = Crc::<u8, Table<1>>::new(&crc::CRC_7_MMC);
const CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&crc::CRC_16_ARC);
static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC32_PLAIN);
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&crc::CRC_64_REDIS);

/// The checksum behind a block's header: fio's `verify`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// None: only the header is checked (`meta`).
    Meta,
    /// MD5.
    Md5,
    /// CRC-64 of Jones, reflected, as in Redis.
    Crc64,
    /// CRC-32, most significant bit first.
    Crc32,
    /// CRC-32C.
    #[default]
    Crc32c,
    /// CRC-16 with the polynomial 0x8005.
    Crc16,
    /// CRC-7 of MMC cards.
    Crc7,
    /// 64 bits of SHA-256.
    Sha256,
    /// Bytes of the data; from fio 3.39 on, SHA-512.
    Sha512,
    /// SHA3-224.
    Sha3_224,
    /// SHA3-256.
    Sha3_256,
    /// SHA3-384.
    Sha3_384,
    /// SHA3-512.
    Sha3_512,
    /// XXH32.
    Xxhash,
    /// SHA-1.
    Sha1,
}

/// The name of each checksum, its number in headers, and the length of its field in bytes.
#[rustfmt::skip]
const TABLE: [(Checksum, &str, u16, usize); 15] = [
    (Checksum::Meta, "meta", 1, 0),
    (Checksum::Md5, "md5", 2, 16),
    (Checksum::Crc64, "crc64", 3, 8),
    (Checksum::Crc32, "crc32", 4, 4),
    (Checksum::Crc32c, "crc32c", 5, 4),
    (Checksum::Crc16, "crc16", 7, 2),
    (Checksum::Crc7, "crc7", 8, 1),
    (Checksum::Sha256, "sha256", 9, 64),
    (Checksum::Sha512, "sha512", 10, 128),
    (Checksum::Sha3_224, "sha3-224", 11, 28),
    (Checksum::Sha3_256, "sha3-256", 12, 32),
    (Checksum::Sha3_384, "sha3-384", 13, 48),
    (Checksum::Sha3_512, "sha3-512", 14, 64),
    (Checksum::Xxhash, "xxhash", 15, 4),
    (Checksum::Sha1, "sha1", 16, 20),
];

/// The field of a checksum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    bytes: [u8; FIELD_MAX],
    len: usize,
}

impl Field {
    fn new(sum: &[u8]) -> Self {
        let mut bytes = [0; FIELD_MAX];
        bytes[..sum.len()].copy_from_slice(sum);
        Self { bytes, len: sum.len() }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Checksum {
    /// Returns all of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, u16, usize) {
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }

    /// Returns fio's name for it.
    pub fn word(self) -> &'static str {
        self.row().1
    }

    /// Returns the checksum of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == word).map(|row| row.0)
    }

    /// Returns its number in headers.
    pub(super) fn code(self) -> u16 {
        self.row().2
    }

    /// Returns the checksum with this number in headers.
    pub(super) fn from_code(code: u16) -> Option<Self> {
        // 6 was CRC-32C in hardware.
        let code = if code == 6 { Self::Crc32c.code() } else { code };
        TABLE.iter().find(|row| row.2 == code).map(|row| row.0)
    }

    /// Returns the length of its field, bytes.
    pub(super) fn field_len(self) -> usize {
        self.row().3
    }

    /// Returns the field for `data`.
    pub(super) fn sum(self, data: &[u8]) -> Field {
        match self {
            Self::Meta => Field::new(&[]),
            Self::Md5 => Field::new(&md5::Md5::digest(data)),
            Self::Crc64 => Field::new(&CRC64.checksum(data).to_le_bytes()),
            Self::Crc32 => Field::new(&CRC32.checksum(data).to_le_bytes()),
            Self::Crc32c => Field::new(&(!crc32c::crc32c(data)).to_le_bytes()),
            Self::Crc16 => Field::new(&CRC16.checksum(data).to_le_bytes()),
            Self::Crc7 => Field::new(&[CRC7.checksum(data)]),
            Self::Sha256 => Field::new(&sha256(data)),
            Self::Sha512 => Field::new(&sha512_bytes(data)),
            Self::Sha3_224 => Field::new(&sha3::Sha3_224::digest(data)),
            Self::Sha3_256 => Field::new(&sha3::Sha3_256::digest(data)),
            Self::Sha3_384 => Field::new(&sha3::Sha3_384::digest(data)),
            Self::Sha3_512 => Field::new(&sha3::Sha3_512::digest(data)),
            Self::Xxhash => Field::new(&xxh32(data, 1).to_le_bytes()),
            Self::Sha1 => Field::new(&sha1(data)),
        }
    }

    /// Returns the field of later versions of fio for `data`, if it differs.
    pub(super) fn later_sum(self, data: &[u8]) -> Option<Field> {
        (self == Self::Sha512).then(|| Field::new(&sha512_hash(data)))
    }

    /// Returns whether the field of fio 3.33 is no function of all bytes of the data.
    pub fn is_partial(self) -> bool {
        matches!(self, Self::Meta | Self::Sha512)
    }
}

/// Returns SHA-1 with each word little-endian.
fn sha1(data: &[u8]) -> [u8; 20] {
    let mut sum: [u8; 20] = sha1::Sha1::digest(data).into();
    sum.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    sum
}

/// Returns the padded end of `data`: the last block, and the one before it if the padding takes
/// two. `length` is the length field.
fn padded<const LEN: usize>(rest: &[u8], length: &[u8]) -> (Option<[u8; LEN]>, [u8; LEN]) {
    let mut last = [0; LEN];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let mut before = None;
    if rest.len() + 1 + length.len() > LEN {
        before = Some(last);
        last = [0; LEN];
    }
    last[LEN - length.len()..].copy_from_slice(length);
    (before, last)
}

/// Returns what fio stores for SHA-256.
fn sha256(data: &[u8]) -> [u8; 64] {
    /// The initial state of FIPS 180-4.
    const START: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let bits = (data.len() as u64) * 8;
    let (whole, rest) = data.as_chunks::<64>();
    let (before, mut last) = padded::<64>(rest, &bits.to_le_bytes());
    let mut state = START;
    sha2::block_api::compress256(&mut state, whole);
    sha2::block_api::compress256(&mut state, before.as_slice());
    sha2::block_api::compress256(&mut state, &[last]);
    for (byte, word) in last.iter_mut().zip(state) {
        *byte = word as u8;
    }
    last
}

/// Returns what fio 3.33 stores for SHA-512: bytes of the data.
fn sha512_bytes(data: &[u8]) -> [u8; 128] {
    let (whole, rest) = data.as_chunks::<128>();
    let mut bytes = whole.first().copied().unwrap_or([0; 128]);
    bytes[..rest.len()].copy_from_slice(rest);
    bytes
}

/// Returns what fio stores for SHA-512 from version 3.39 on.
fn sha512_hash(data: &[u8]) -> [u8; 128] {
    let bits = (data.len() as u128) * 8;
    let (_, mut last) = padded::<128>(data.as_chunks::<128>().1, &bits.to_be_bytes());
    last[..64].copy_from_slice(&sha2::Sha512::digest(data));
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(checksum: Checksum, hex: &str) {
        let field = checksum.sum(b"123456789");
        let found: String = field.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, hex, "{checksum:?}");
    }

    #[test]
    fn fields_of_the_check_string_are_those_of_the_standards() {
        check(Checksum::Meta, "");
        check(Checksum::Crc7, "75");
        check(Checksum::Crc16, "3dbb");
        // The check value of CRC-32C is 0xe3069283.
        check(Checksum::Crc32c, &format!("{:08x}", (!0xe306_9283_u32).swap_bytes()));
        // The check value of the POSIX sum without its inversion is 0x765e7680.
        check(Checksum::Crc32, &format!("{:08x}", (!0x765e_7680_u32).swap_bytes()));
        check(Checksum::Crc64, "cad9b8c414d9c6e9");
        check(Checksum::Md5, "25f9e794323b453885f5181f1b624d0b");
        check(Checksum::Sha3_224, "5795c3d628fd638c9835a4c79a55809f265068c88729a1a3fcdf8522");
    }

    #[test]
    fn names_and_numbers_are_unique() {
        for checksum in Checksum::all() {
            assert_eq!(Checksum::from_word(checksum.word()), Some(checksum));
            assert_eq!(Checksum::from_code(checksum.code()), Some(checksum));
            assert_eq!(checksum.sum(&[7; 300]).as_bytes().len(), checksum.field_len());
        }
        assert_eq!(Checksum::from_code(6), Some(Checksum::Crc32c));
        assert_eq!(Checksum::from_code(0), None);
    }

    #[test]
    fn padding_that_does_not_fit_takes_another_block() {
        for (len, is_two) in [(0, false), (55, false), (56, true), (63, true)] {
            let (before, last) = padded::<64>(&vec![1; len], &[2; 8]);
            assert_eq!((before.is_some(), last[56..].to_vec()), (is_two, vec![2; 8]), "{len}");
            let end = before.unwrap_or(last);
            assert_eq!((end[..len].to_vec(), end[len]), (vec![1; len], 0x80), "{len}");
        }
    }
}
