//! A bio in the layer's hands, from queue to end: a box that is in one place at any time.
//!
//! Whoever has the box has the bio: the plug of a thread, the backlog or the request table of a
//! hardware context, or the list of what has ended. So a bio cannot be lost, or end twice, without
//! the compiler's notice. Its owner makes the box once and uses it again, so that no I/O allocates.

use crate::bio::{Bio, Segment};
use crate::request::Header;
use crate::status::BlockStatus;
use alloc::boxed::Box;
use core::sync::atomic::AtomicPtr;

/// A bio, and what the layer notes about it.
///
/// Counterpart in Linux: the fields of `struct bio` that are the layer's.
#[derive(Debug)]
pub struct QueuedBio {
    pub(crate) bio: Bio,
    /// The next bio of the same request.
    pub(crate) next: Option<Box<QueuedBio>>,
    /// Of the first bio of a request: the request.
    pub(crate) rq: Header,
    /// It was not issued in the turn that took it in: for want of a tag, in the usual case.
    pub(crate) has_waited: bool,
    /// Why the bytes after `good_len` are not good; `None` there means end of file.
    pub(crate) status: Option<BlockStatus>,
    /// The bytes from the start that are known good; `bio.len` until something fell short.
    pub(crate) good_len: u64,
    /// Of a bio that has ended: see [`QueuedBio::durable_point`]. Of one that was issued, and may
    /// need a point: one more than the flushes that had failed then.
    pub(crate) durable_point: u64,
    pub(crate) queued_ns: u64,
    pub(crate) waited_ns: u64,
    owner: u64,
    number: u32,
    link: AtomicPtr<QueuedBio>,
}

impl QueuedBio {
    /// An empty box. `owner` says who is told of its ends, `number` which of the owner's boxes it
    /// is; the layer looks at neither.
    pub fn new(owner: u64, number: u32) -> Box<QueuedBio> {
        Box::new(QueuedBio {
            bio: Bio::flush(),
            next: None,
            rq: Header::new(),
            has_waited: false,
            status: None,
            good_len: 0,
            durable_point: 0,
            queued_ns: 0,
            waited_ns: 0,
            owner,
            number,
            link: AtomicPtr::new(core::ptr::null_mut()),
        })
    }

    /// Puts a bio into the box, in place of an earlier one, which has ended.
    #[inline]
    pub fn fill(&mut self, bio: Bio) {
        assert!(self.next.is_none(), "a box is filled when its bio has ended");
        self.status = None;
        self.good_len = bio.len;
        self.durable_point = 0;
        self.has_waited = false;
        self.waited_ns = 0;
        self.bio = bio;
    }

    /// The bio.
    #[inline]
    pub fn bio(&self) -> &Bio {
        &self.bio
    }

    /// Takes the bio out of a box that was refused.
    pub fn take_bio(&mut self) -> Bio {
        core::mem::replace(&mut self.bio, Bio::flush())
    }

    /// Who is told of its end.
    #[inline]
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Which of its owner's boxes it is.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Of a bio that has ended: the bytes from its start that were moved (its length for what moves
    /// none), fewer only at the end of a file; or why the first byte that was not moved was not.
    #[inline]
    pub fn result(&self) -> Result<u64, BlockStatus> {
        match self.status {
            Some(status) => Err(status),
            None => Ok(self.good_len),
        }
    }

    /// Of a bio that has ended: what to wait for until it is on stable storage
    /// ([`Bio::flush_up_to`](crate::Bio::flush_up_to)). 0 if it is there already, or has changed
    /// nothing.
    #[inline]
    pub fn durable_point(&self) -> u64 {
        self.durable_point
    }

    /// Of a bio that has ended: whether it had to wait for a tag, and for how long, ns (0 under
    /// `iostats=off`).
    pub fn tag_wait(&self) -> Option<u64> {
        self.has_waited.then_some(self.waited_ns)
    }

    /// A place for a pointer, for lists of whoever holds the box. The layer does not look at it.
    #[inline]
    pub fn link_mut(&mut self) -> &mut *mut QueuedBio {
        self.link.get_mut()
    }

    /// Notes that the bio is good up to `offset` only. The lowest offset decides.
    pub(crate) fn mark(&mut self, offset: u64, status: Option<BlockStatus>) {
        if offset < self.good_len || self.bio.len == 0 {
            self.good_len = offset;
            self.status = status;
        }
    }
}

/// The segments of a chain of bios, cut to a range of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct ChainSegments<'a> {
    bio: Option<&'a QueuedBio>,
    index: usize,
    skip: u64,
    left: u64,
}

impl<'a> ChainSegments<'a> {
    /// From `skip` bytes into the first bio, `len` bytes.
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
            // Empty segments go by here as well.
            if self.skip >= segment_len {
                self.skip -= segment_len;
                continue;
            }
            // Both fit: they are at most the segment's own length.
            let skip = self.skip as u32;
            let len = (segment_len - self.skip).min(self.left) as u32;
            self.skip = 0;
            self.left -= u64::from(len);
            return Some(Segment { addr: segment.addr + skip as usize, len });
        }
        None
    }
}
