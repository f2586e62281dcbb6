//! Blocking calls that move the whole buffer or fail.

use super::Disk;
use crate::error::IoError;
use forebay_core::Op;

impl Disk {
    /// Reads exactly `buf.len()` bytes at byte `offset`, and waits until they are read. Any thread
    /// may call it at any time.
    ///
    /// # Errors
    /// [`IoError::Short`] if the file ends before the end of the range. It reports how many bytes
    /// are missing. Otherwise as [`read_at`](Disk::read_at). After a failure the contents of `buf`
    /// are unspecified.
    ///
    /// ```
    /// let disk = forebay::Disk::open("ram:1M")?;
    /// let mut block = [1; 4096];
    /// disk.read_exact_at(&mut block, 8192)?;
    /// assert_eq!(block, [0; 4096]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), IoError> {
        let len = buf.len();
        check_all(Op::Read, offset, len, self.read_at(buf, offset)?)
    }

    /// Writes all of `buf` at byte `offset`, and waits until it is written. The data is durable
    /// after the next [`flush`](Disk::flush) that succeeds. Any thread may call it at any time.
    ///
    /// # Errors
    /// [`IoError::Short`] if the device accepts only a part of `buf`. Otherwise as
    /// [`write_at`](Disk::write_at). After a failure the contents of the range are unspecified.
    ///
    /// ```
    /// let disk = forebay::Disk::open("ram:1M")?;
    /// disk.write_all_at(&[7; 4096], 8192)?;
    /// let outside = disk.write_all_at(&[7; 4096], 1 << 20).unwrap_err();
    /// assert!(matches!(outside, forebay::IoError::Refused(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<(), IoError> {
        check_all(Op::Write, offset, buf.len(), self.write_at(buf, offset)?)
    }
}

/// Fails if an I/O moved less than all of its `len` bytes. The layer has continued it as far as
/// that is possible (E1), so the rest is not tried again here.
pub(super) fn check_all(op: Op, offset: u64, len: usize, moved: usize) -> Result<(), IoError> {
    match len - moved {
        0 => Ok(()),
        missing => Err(IoError::Short { op, offset, len, missing }),
    }
}
