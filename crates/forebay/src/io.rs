//! One I/O with the buffer it owns, and its end.

use crate::buf::Buf;
use forebay_core::{Bio, BioFlags, BlockStatus, Op, QueuedBio, Segment, Segments};

/// An I/O with the buffer it owns, to be submitted. Offsets and lengths are bytes.
#[derive(Debug)]
pub struct Io {
    bio: Bio,
    buf: Option<Buf>,
}

impl Io {
    /// Reads into all of `buf`, from byte `offset` on.
    #[inline]
    pub fn read(buf: Buf, offset: u64) -> Io {
        let len = buf.len();
        Io::with_buf(Op::Read, buf, len, offset)
    }

    /// Reads into the first `len` bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` has fewer.
    #[inline]
    pub fn read_part(buf: Buf, len: usize, offset: u64) -> Io {
        Io::with_buf(Op::Read, buf, len, offset)
    }

    /// Writes all of `buf`, at byte `offset`.
    #[inline]
    pub fn write(buf: Buf, offset: u64) -> Io {
        let len = buf.len();
        Io::with_buf(Op::Write, buf, len, offset)
    }

    /// Writes the first `len` bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` has fewer.
    #[inline]
    pub fn write_part(buf: Buf, len: usize, offset: u64) -> Io {
        Io::with_buf(Op::Write, buf, len, offset)
    }

    /// Makes every write that has ended before this is submitted durable.
    pub fn flush() -> Io {
        Io { bio: Bio::flush(), buf: None }
    }

    /// Makes every write that has ended before this is submitted durable, and all metadata of the
    /// file, as `fsync` does.
    pub fn fsync() -> Io {
        Io { bio: Bio::fsync(), buf: None }
    }

    /// Ends when everything up to a durable point is on stable storage; see
    /// [`Disk::durable`](crate::Disk::durable). Its completion says whether they are.
    pub fn flush_up_to(point: u64) -> Io {
        Io { bio: Bio::flush_up_to(point), buf: None }
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
    #[inline]
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

    /// Rather than wait for a tag, end with [`BlockStatus::Again`] and nothing of it done; or with
    /// `NotSupported`, where it takes more requests than there are tags.
    #[must_use]
    pub fn nowait(self) -> Io {
        self.flag(BioFlags::NOWAIT)
    }

    /// It may have one of the tags that are reserved (`reserved_tags=`), and goes before what may
    /// not: for the few I/Os that others depend on.
    #[must_use]
    pub fn reserved(self) -> Io {
        self.flag(BioFlags::RESERVED)
    }

    /// Nobody waits for it: all such I/Os together have at most `async_depth` tags.
    #[must_use]
    pub fn background(self) -> Io {
        self.flag(BioFlags::BACKGROUND)
    }

    #[inline]
    pub(crate) fn into_parts(self) -> (Bio, Option<Buf>) {
        (self.bio, self.buf)
    }

    pub(crate) fn of_parts(bio: Bio, buf: Option<Buf>) -> Io {
        Io { bio, buf }
    }

    fn flag(mut self, flag: BioFlags) -> Io {
        self.bio.flags = self.bio.flags.union(flag);
        self
    }

    #[inline]
    fn with_buf(op: Op, buf: Buf, len: usize, offset: u64) -> Io {
        assert!(len <= buf.len(), "an I/O of {len} bytes with a buffer of {}", buf.len());
        let bio =
            Bio { segments: segments_of(buf.addr(), len), ..Bio::range(op, offset, len as u64) };
        Io { bio, buf: Some(buf) }
    }
}

/// The end of one I/O.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The number that was given with it.
    pub user_data: u64,
    /// The bytes that were moved, fewer than asked for only at the end of a file; or why not.
    pub result: Result<u64, BlockStatus>,
    /// The buffer of an [`Io`] that had one.
    pub buf: Option<Buf>,
    /// Whether it had to wait for a tag, and for how long, ns (0 under `iostats=off`, on a disk
    /// without a volatile cache).
    pub tag_wait_ns: Option<u64>,
    /// What to wait for until this write is on stable storage
    /// ([`Disk::durable`](crate::Disk::durable)); 0 if it is there already, or there was nothing
    /// to write.
    pub durable_point: u64,
}

impl Completion {
    pub(crate) fn of(boxed: &QueuedBio, buf: Option<Buf>) -> Completion {
        Completion {
            user_data: boxed.bio().user_data,
            result: boxed.result(),
            buf,
            tag_wait_ns: boxed.tag_wait(),
            durable_point: boxed.durable_point(),
        }
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
