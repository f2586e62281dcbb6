//! Bounce buffers: copies of data whose memory the disk does not accept.
//!
//! A disk that bypasses the page cache accepts only aligned memory. The file systems of guests send
//! whole pages. Firmware, and programs that read the disk directly, may not.

use forebay::{Buf, QueueLimits, Segment, SubmitErrorKind};

/// Most bytes of copies in flight, of one ring. A longer request is copied in parts of this
/// length.
pub(super) const BOUNCE_MAX: u64 = 16 << 20;
/// Most bytes that are kept for the next copies.
const KEPT_MAX: usize = 1 << 20;

/// The buffers of one ring.
#[derive(Debug)]
pub(super) struct Bounce {
    limits: QueueLimits,
    /// Buffers for the next copies, and their sum.
    kept: Vec<Buf>,
    kept_bytes: usize,
    /// Bytes of buffers in flight. A buffer that the disk keeps (`io_timeout_ms`) does not count:
    /// if it did, requests that are held back would wait for an answer that was given.
    lent_bytes: u64,
}

impl Bounce {
    pub(super) fn new(limits: &QueueLimits) -> Bounce {
        Bounce { limits: *limits, kept: Vec::new(), kept_bytes: 0, lent_bytes: 0 }
    }

    /// Returns whether the data must be copied, because the disk does not accept these segments.
    #[inline]
    pub(super) fn is_needed(&self, segments: &[Segment]) -> bool {
        let dma = self.limits.dma_alignment as usize;
        if dma == 0 {
            return false;
        }
        let unit = dma | (self.limits.logical_block_size as usize - 1);
        segments.iter().any(|one| one.addr & dma != 0 || one.len as usize & unit != 0)
    }

    /// Takes a buffer of at least `len` bytes, at most [`BOUNCE_MAX`].
    ///
    /// # Errors
    /// Returns `WouldBlock` if too many bytes are in flight.
    pub(super) fn take(&mut self, len: u64) -> Result<Buf, SubmitErrorKind> {
        assert!(len <= BOUNCE_MAX, "{len} bytes at once");
        if self.lent_bytes > 0 && self.lent_bytes + len > BOUNCE_MAX {
            return Err(SubmitErrorKind::WouldBlock);
        }
        let len = buf_len(len);
        let buf = match self.kept.iter().position(|buf| buf.len() == len) {
            Some(index) => {
                self.kept_bytes -= len;
                self.kept.swap_remove(index)
            }
            None => Buf::new(len),
        };
        self.lent_bytes += len as u64;
        Ok(buf)
    }

    /// Records that the disk keeps the buffer of a request of `len` bytes that has ended, and frees
    /// it when its device is done with it. The request keeps its tag, so there are not many.
    pub(super) fn leave(&mut self, len: u64) {
        self.lent_bytes -= buf_len(len) as u64;
    }

    /// Forgets buffers in flight that were lost in a panic.
    pub(super) fn forget_lost(&mut self) {
        self.lent_bytes = 0;
    }

    /// Takes back a buffer.
    pub(super) fn give(&mut self, buf: Buf) {
        self.lent_bytes -= buf.len() as u64;
        if self.kept_bytes + buf.len() <= KEPT_MAX {
            self.kept_bytes += buf.len();
            self.kept.push(buf);
        }
    }
}

/// Returns the length of the buffer of a request of `len` bytes.
fn buf_len(len: u64) -> usize {
    (len as usize).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounce(dma_alignment: u32) -> Bounce {
        Bounce::new(&QueueLimits::default().dma_alignment(dma_alignment))
    }

    #[test]
    fn only_memory_that_the_disk_refuses_is_copied() {
        let one = |addr, len| Segment { addr, len };
        assert!(!bounce(0).is_needed(&[one(1, 3)]));
        let bounce = bounce(3);
        assert!(!bounce.is_needed(&[one(4096, 512), one(8196, 1024)]));
        assert!(bounce.is_needed(&[one(4096, 512), one(8194, 512)]));
        assert!(bounce.is_needed(&[one(4096, 256), one(8192, 256)]));
    }

    #[test]
    fn copies_in_flight_are_bounded() {
        let mut bounce = bounce(511);
        let mut bufs: Vec<_> = (0..16).map(|_| bounce.take(1 << 20).unwrap()).collect();
        assert!(matches!(bounce.take(512), Err(SubmitErrorKind::WouldBlock)));
        bounce.give(bufs.pop().unwrap());
        assert_eq!(bounce.take(512).unwrap().len(), 512);
        bufs.into_iter().for_each(|buf| bounce.give(buf));
        assert_eq!((bounce.lent_bytes, bounce.kept_bytes), (512, 1 << 20));
    }

    #[test]
    fn copies_that_the_disk_keeps_do_not_hold_requests_back() {
        let mut bounce = bounce(511);
        // Its request ends early, and the disk frees it later.
        let _kept = bounce.take(BOUNCE_MAX - 1000).unwrap();
        assert!(matches!(bounce.take(2000), Err(SubmitErrorKind::WouldBlock)));
        bounce.leave(BOUNCE_MAX - 1000);
        assert_eq!(bounce.take(2000).unwrap().len(), 2048);
        assert_eq!(bounce.lent_bytes, 2048);
    }
}
