//! Iterators over the chain of bios of a request: the segments of memory, and the ranges on the
//! device.

use crate::bio::Segment;
use crate::request::QueuedBio;

/// Iterator over the segments of a chain of bios, limited to a range of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct ChainSegments<'a> {
    bio: Option<&'a QueuedBio>,
    index: usize,
    skip: u64,
    left: u64,
}

impl<'a> ChainSegments<'a> {
    /// Starts `skip` bytes into the first bio and covers `len` bytes.
    #[inline]
    pub(crate) fn new(first: &'a QueuedBio, skip: u64, len: u64) -> ChainSegments<'a> {
        ChainSegments { bio: Some(first), index: 0, skip, left: len }
    }
}

impl Iterator for ChainSegments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        while self.left > 0 {
            let queued = self.bio?;
            let Some(segment) = queued.bio.segments.as_slice().get(self.index) else {
                self.bio = queued.next.as_deref();
                self.index = 0;
                continue;
            };
            self.index += 1;
            let segment_len = u64::from(segment.len);
            // Skips empty segments as well.
            if self.skip >= segment_len {
                self.skip -= segment_len;
                continue;
            }
            // Neither cast truncates: both values are at most the segment's own length.
            let skip = self.skip as u32;
            let len = (segment_len - self.skip).min(self.left) as u32;
            self.skip = 0;
            self.left -= u64::from(len);
            return Some(Segment { addr: segment.addr + skip as usize, len });
        }
        None
    }
}

/// Iterator over the ranges of a request on its device.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    bio: Option<&'a QueuedBio>,
    skip: u64,
    left: u64,
}

impl<'a> Ranges<'a> {
    pub(crate) fn new(head: &'a QueuedBio, skip: u64, len: u64) -> Ranges<'a> {
        Ranges { bio: Some(head), skip, left: len }
    }
}

impl Iterator for Ranges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left == 0 {
            return None;
        }
        let queued = self.bio?;
        let bio = &queued.bio;
        let range = (bio.start + self.skip, (bio.len - self.skip).min(self.left));
        self.left -= range.1;
        self.skip = 0;
        self.bio = queued.next.as_deref();
        Some(range)
    }
}
