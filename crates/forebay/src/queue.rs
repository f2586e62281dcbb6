//! The submit-and-reap interface: a queue of completions on a disk.
// It vouches for owned memory, and passes on what its callers vouch for.
#![allow(unsafe_code)]

use crate::buf::Buf;
use crate::error::SubmitError;
use crate::runtime::mailbox::Completion;
use crate::runtime::shared::Shared;
use forebay_core::{Bio, BioFlags, Commit, Op, Refusal, Segment, Segments};
use std::rc::Rc;

/// An I/O with the buffer it owns, to be submitted. Offsets and lengths are bytes.
#[derive(Debug)]
pub struct Io {
    bio: Bio,
    buf: Option<Buf>,
}

impl Io {
    /// Reads into all of `buf`, from byte `offset` on.
    pub fn read(buf: Buf, offset: u64) -> Io {
        Io::with_buf(Op::Read, buf, offset)
    }

    /// Writes all of `buf`, at byte `offset`.
    pub fn write(buf: Buf, offset: u64) -> Io {
        Io::with_buf(Op::Write, buf, offset)
    }

    /// Makes every write that has ended before this is submitted durable.
    pub fn flush() -> Io {
        Io { bio: Bio::flush(), buf: None }
    }

    /// Says that a range is not needed any more.
    pub fn discard(offset: u64, len: u64) -> Io {
        Io { bio: Bio::range(Op::Discard, offset, len), buf: None }
    }

    /// Makes a range read as zeroes.
    pub fn write_zeroes(offset: u64, len: u64) -> Io {
        Io { bio: Bio::range(Op::WriteZeroes, offset, len), buf: None }
    }

    /// Sets the number that the completion carries.
    #[must_use]
    pub fn user_data(mut self, user_data: u64) -> Io {
        self.bio.user_data = user_data;
        self
    }

    /// This write is durable when it ends.
    #[must_use]
    pub fn fua(self) -> Io {
        self.flag(BioFlags::FUA)
    }

    /// A flush goes before the data of this write.
    #[must_use]
    pub fn preflush(self) -> Io {
        self.flag(BioFlags::PREFLUSH)
    }

    /// Never merge this I/O with another.
    #[must_use]
    pub fn nomerge(self) -> Io {
        self.flag(BioFlags::NOMERGE)
    }

    /// The buffer, if there is one.
    pub fn into_buf(self) -> Option<Buf> {
        self.buf
    }

    fn flag(mut self, flag: BioFlags) -> Io {
        self.bio.flags = self.bio.flags.union(flag);
        self
    }

    fn with_buf(op: Op, buf: Buf, offset: u64) -> Io {
        let bio = Bio {
            segments: segments_of(buf.addr(), buf.len()),
            ..Bio::range(op, offset, buf.len() as u64)
        };
        Io { bio, buf: Some(buf) }
    }
}

/// A queue of completions on a disk: I/O is submitted to it, and its ends are reaped from it, in
/// the order in which they happened. Made by [`Disk::queue`](crate::Disk::queue).
///
/// Dropping it waits for its I/O in flight.
///
/// ```
/// use forebay::{Buf, Disk, Io};
///
/// let disk = Disk::open("ram:1M")?;
/// let mut queue = disk.queue();
/// queue.submit(Io::write(Buf::from(&[7; 4096][..]), 8192).user_data(1))?;
/// let mut done = Vec::new();
/// queue.reap(1, 1, &mut done);
/// assert_eq!((done[0].user_data, done[0].result), (1, Ok(4096)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BioQueue {
    shared: Rc<Shared>,
    mailbox: u32,
}

impl BioQueue {
    pub(crate) fn new(shared: Rc<Shared>) -> BioQueue {
        let mailbox = shared.open_mailbox();
        BioQueue { shared, mailbox }
    }

    /// Submits an I/O. Never waits. Within a plug of this thread it stays there, so that its
    /// neighbours can join it; otherwise it is issued before this returns, if there is a tag.
    ///
    /// # Errors
    /// Why the I/O was refused, and the I/O back. After [`Refusal::WouldBlock`], reap and try
    /// again: there are `nr_bios` in the layer, or in this queue and not reaped.
    #[inline]
    pub fn submit(&mut self, io: Io) -> Result<(), SubmitError> {
        let Io { bio, buf } = io;
        // SAFETY: the bio's memory, if it has any, is all of `buf`, which is owned and given along.
        let submitted = unsafe { self.shared.submit(bio, buf, self.mailbox, Commit::Now) };
        submitted.map_err(|(refusal, bio, buf)| SubmitError { refusal, io: Io { bio, buf } })
    }

    /// Submits a bio whose memory belongs to the caller.
    ///
    /// # Errors
    /// Why the bio was refused, and the bio back.
    ///
    /// # Safety
    /// Every segment of `bio` must be memory that is valid for reads (of a write) or for writes
    /// (of a read), and that nobody else writes to (or, for a read, looks at), until the bio's
    /// completion has been reaped from this queue, or this queue has been dropped. Its address
    /// must come from a pointer whose provenance is exposed.
    #[inline]
    pub unsafe fn submit_raw(&mut self, bio: Bio) -> Result<(), (Refusal, Bio)> {
        // SAFETY: the caller's obligations are passed on; dropping the queue closes its mailbox.
        let submitted = unsafe { self.shared.submit(bio, None, self.mailbox, Commit::Now) };
        submitted.map_err(|(refusal, bio, _)| (refusal, bio))
    }

    /// Adds at most `max` completions to `out`, oldest first, and says how many. Waits until there
    /// are `min`, or nothing of this queue is left in the layer. Everything that this thread has
    /// plugged is unplugged first, unless enough has completed already.
    ///
    /// # Panics
    /// If `min` is over `max`.
    #[inline]
    pub fn reap(&mut self, min: usize, max: usize, out: &mut Vec<Completion>) -> usize {
        self.shared.reap(self.mailbox, min, max, out)
    }

    /// How many I/Os were submitted and not reaped yet.
    pub fn len(&self) -> usize {
        self.shared.nr_unreaped(self.mailbox)
    }

    /// Whether everything that was submitted has been reaped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for BioQueue {
    fn drop(&mut self) {
        self.shared.close_mailbox(self.mailbox);
    }
}

/// The largest segment that memory is cut into, bytes.
const SEGMENT_MAX: usize = 1 << 30;

/// The segments of `len` bytes of memory at `addr`.
#[inline]
pub(crate) fn segments_of(addr: usize, len: usize) -> Segments {
    if len == 0 {
        return Segments::None;
    }
    if len <= SEGMENT_MAX {
        return Segments::One(Segment { addr, len: len as u32 });
    }
    let cut = |at: usize| Segment { addr: addr + at, len: SEGMENT_MAX.min(len - at) as u32 };
    Segments::Many((0..len).step_by(SEGMENT_MAX).map(cut).collect())
}
