//! Verification of blocks: a header with a checksum, and data that follows from it.
//!
//! With `verify` every written block begins with fio's header, so that a later read detects torn,
//! stale, misplaced and changed data. The layout is that of fio 3.33: each program checks the
//! blocks of the other. With a `verify_interval` a block is one interval of an I/O; without one it
//! is the whole I/O, or as much as the smallest I/O if sizes vary.
//!
//! | part of a block | content |
//! |---|---|
//! | 0..40 | the header: magic, checksum, length, seed, offset, time, thread, number, its own CRC |
//! | 40.. | the field of the checksum, which covers the rest of the block |
//! | the rest | data drawn from the seed, or the pattern |
//!
//! A check compares, in this order: the magic number, the CRC of the header, the length, the
//! offset, the checksum's number, the seed, and the checksum of the data. fio draws seeds one after
//! the other. Here the seed follows from the seed of the job, the number of the run, the file, and
//! the offset of the block. It proves that the run wrote the block, and it is compared only when a
//! run reads back its own blocks. As in fio, time, thread and number of the write are not compared.
//!
//! With `verify=pattern` blocks have no header: see [`pattern`].

pub mod digest;
mod header;
mod mismatch;
pub mod pattern;
mod xxhash;

use self::digest::Checksum;
use self::header::Header;
use self::mismatch::hex;
use self::pattern::Pattern;
use crate::random::Xoshiro256;

pub use self::header::{HEADER_LEN, MAGIC};
pub use self::mismatch::Mismatch;

/// The identity of the job and the run, from which the seeds of blocks follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The seed of the job.
    pub seed: u64,
    /// The number of the run.
    pub generation: u64,
}

impl Stamp {
    /// Returns the stamp of the blocks in file number `place` of the run, so that files with
    /// exchanged contents are detected. File 0 has the stamp itself.
    #[must_use]
    pub fn of_file(self, place: u64) -> Self {
        /// An odd number: the seeds of all files differ.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        Self { seed: self.seed ^ place.wrapping_mul(STEP), ..self }
    }

    /// Returns the seed of the block at `offset`.
    fn seed_of(self, offset: u64) -> u64 {
        Xoshiro256::new(self.seed ^ offset, self.generation).draw()
    }
}

/// The fields of a header that describe its write, and that no check compares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Write {
    /// The number of the thread, from 1 on.
    pub thread: u16,
    /// The number of the write, modulo 2^16.
    pub number: u16,
    /// The time of the write, ns.
    pub time_ns: u64,
}

/// The format of the blocks in an I/O.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Format {
    /// `verify`: the checksum.
    pub checksum: Checksum,
    /// `verify_pattern`: the data; random if there is none.
    pub pattern: Option<Pattern>,
    /// The length of a block, bytes. An I/O that is shorter is one block; 0: as every I/O.
    pub interval: u32,
    /// `verify_offset`: where the header is in the block. The bytes of that place are at its start.
    pub header_at: u32,
}

impl Format {
    /// Returns the length of the header with the field of its checksum, bytes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.checksum.field_len()
    }

    /// Returns the length of a block in an I/O of `len` bytes.
    pub fn block_len(&self, len: usize) -> usize {
        match self.interval as usize {
            0 => len,
            interval => interval.min(len),
        }
    }

    /// Fills an I/O that will be written at `offset`.
    ///
    /// # Panics
    ///
    /// If a block is not longer than its header, or longer than 4 GiB.
    pub fn fill(&self, io: &mut [u8], offset: u64, stamp: Stamp, write: Write) {
        if let Some(pattern) = &self.pattern {
            pattern.fill(io, offset);
        }
        let step = self.block_len(io.len());
        for (block, offset) in io.chunks_mut(step).zip((offset..).step_by(step)) {
            let header = Header {
                code: self.checksum.code(),
                len: u32::try_from(block.len()).expect("a block is at most 4 GiB"),
                seed: stamp.seed_of(offset),
                offset,
                time_ns: write.time_ns,
                thread: write.thread,
                number: write.number,
            };
            self.fill_block(block, &header);
        }
    }

    /// Fills one block, of which the data are there if they are a pattern.
    fn fill_block(&self, block: &mut [u8], header: &Header) {
        assert!(block.len() > self.header_len(), "a block is longer than its header");
        let (front, data) = block.split_at_mut(self.header_len());
        if self.pattern.is_none() {
            Xoshiro256::new(header.seed, 0).fill(data);
        }
        header.write(front);
        front[HEADER_LEN..].copy_from_slice(self.checksum.sum(data).as_bytes());
        self.swap(block);
    }

    /// Exchanges the header and the bytes at its place.
    fn swap(&self, block: &mut [u8]) {
        if self.header_at > 0 {
            let (front, rest) = block.split_at_mut(self.header_at as usize);
            let len = self.header_len();
            front[..len].swap_with_slice(&mut rest[..len]);
        }
    }

    /// Checks the whole blocks of an I/O that was read at `offset`: header, data, and, if
    /// `expected` is given, the run that wrote them. Returns the first error. Bytes after the last
    /// whole block are not checked.
    ///
    /// # Errors
    ///
    /// The [`Mismatch`]: the offset, the expected value, and the value found.
    ///
    /// # Panics
    ///
    /// If a block is not longer than its header.
    pub fn check(
        &self,
        io: &[u8],
        len: usize,
        offset: u64,
        expected: Option<Stamp>,
    ) -> Result<(), Mismatch> {
        let step = self.block_len(len);
        for (block, at) in io.chunks_exact(step).zip((0_usize..).step_by(step)) {
            if self.header_at == 0 {
                self.check_block(block, offset, at, expected)?;
            } else {
                let mut block = block.to_vec();
                self.swap(&mut block);
                self.check_block(&block, offset, at, expected)?;
            }
        }
        Ok(())
    }

    /// Checks the block `at` bytes after the start of an I/O at `io_offset`.
    fn check_block(
        &self,
        block: &[u8],
        io_offset: u64,
        at: usize,
        expected: Option<Stamp>,
    ) -> Result<(), Mismatch> {
        let offset = io_offset + at as u64;
        let header = self.check_header(block, offset)?;
        if let Some(stamp) = expected {
            let (expected, found) = (stamp.seed_of(offset), header.seed);
            if expected != found {
                let Header { thread, number, .. } = header;
                return Err(Mismatch::Stale { offset, expected, found, thread, number });
            }
        }
        let (front, data) = block.split_at(self.header_len());
        if self.checksum == Checksum::Meta
            && let Some(pattern) = &self.pattern
        {
            let start = at + front.len();
            return check_pattern_from(data, start, io_offset, offset, front.len(), pattern);
        }
        let (field, sum) = (&front[HEADER_LEN..], self.checksum.sum(data));
        if self.checksum.later_sum(data).is_some_and(|later| later.as_bytes() == field) {
            return Ok(());
        }
        if sum.as_bytes() != field {
            let checksum = self.checksum.word();
            let (expected, found) = (hex(field), hex(sum.as_bytes()));
            return Err(Mismatch::Data { offset, checksum, expected, found });
        }
        if self.checksum.is_partial() && self.pattern.is_none() {
            check_drawn(data, header.seed, offset, front.len())?;
        }
        Ok(())
    }

    fn check_header(&self, block: &[u8], offset: u64) -> Result<Header, Mismatch> {
        assert!(block.len() > self.header_len(), "a block is longer than its header");
        let found = header::magic(block);
        if found != MAGIC {
            return Err(Mismatch::Magic { offset, expected: MAGIC, found });
        }
        let header = Header::read(block);
        if header.code & 0x80 != 0 {
            return Err(Mismatch::Layout { offset, layout: header.code as u8 });
        }
        let (expected, found) = header::crcs(block);
        if expected != found {
            return Err(Mismatch::Header { offset, expected, found });
        }
        let (expected, found) = (block.len() as u64, u64::from(header.len));
        if expected != found {
            return Err(Mismatch::Length { offset, expected, found });
        }
        if header.offset != offset {
            return Err(Mismatch::Offset { offset, found: header.offset });
        }
        let found = Checksum::from_code(header.code);
        // As in fio, `meta` checks the headers of every checksum.
        if self.checksum != Checksum::Meta && found != Some(self.checksum) {
            let found =
                found.map_or_else(|| format!("number {}", header.code), |sum| sum.word().into());
            return Err(Mismatch::Checksum { offset, expected: self.checksum.word(), found });
        }
        Ok(header)
    }

    /// Returns the block as it was written, from the header of the damaged block `at` bytes after
    /// the start of an I/O at `io_offset`; `None` if fio drew its data.
    pub fn rebuild(&self, damaged: &[u8], io_offset: u64, at: usize) -> Option<Vec<u8>> {
        let mut front = damaged.to_vec();
        self.swap(&mut front);
        let header = Header::read(&front);
        let mut block = vec![0; at + damaged.len()];
        if let Some(pattern) = &self.pattern {
            pattern.fill(&mut block, io_offset);
        }
        let mut block = block.split_off(at);
        self.fill_block(&mut block, &header);
        let mut check = block.clone();
        self.swap(&mut check);
        let fields = HEADER_LEN..self.header_len();
        (check[fields.clone()] == front[fields]).then_some(block)
    }
}

/// Compares data with the random data that this program draws from the seed. fio draws other data,
/// of which only by chance a byte is the same.
fn check_drawn(data: &[u8], seed: u64, offset: u64, front: usize) -> Result<(), Mismatch> {
    let mut drawn = vec![0; data.len()];
    Xoshiro256::new(seed, 0).fill(&mut drawn);
    let differs = |&at: &usize| drawn[at] != data[at];
    let bad = (0..data.len()).filter(differs).count();
    match (0..data.len()).find(differs) {
        Some(at) if bad < data.len() / 2 => {
            Err(Mismatch::Byte { offset, at: front + at, expected: drawn[at], found: data[at] })
        }
        _ => Ok(()),
    }
}

/// Checks an I/O that was read at `offset` against a pattern that fills all of it.
///
/// # Errors
///
/// [`Mismatch::Pattern`] with the first byte that differs.
pub fn check_pattern(io: &[u8], offset: u64, pattern: &Pattern) -> Result<(), Mismatch> {
    check_pattern_from(io, 0, offset, offset, 0, pattern)
}

/// Checks data that begin `start` bytes after the start of an I/O at `io_offset`, and `front` bytes
/// after the start of the block at `offset`.
fn check_pattern_from(
    data: &[u8],
    start: usize,
    io_offset: u64,
    offset: u64,
    front: usize,
    pattern: &Pattern,
) -> Result<(), Mismatch> {
    match pattern.first_difference(data, start, io_offset) {
        None => Ok(()),
        Some(pattern::Difference { at, expected, found }) => {
            Err(Mismatch::Pattern { offset, at: front + at, expected, found })
        }
    }
}

#[cfg(test)]
mod tests;
