//! One I/O with the buffer that it owns, and its completion.

use crate::buf::Buf;
use forebay_core::{
    Bio, BioFlags, BlockStatus, Class, Op, Origin, Priority, QueuedBio, Segment, Segments,
};

/// An I/O with the buffer that it owns. Offsets and lengths are in bytes.
// In this order the buffer does not follow the padding of the bio. A move would copy both together,
// at an odd address, and wait for the writes.
#[derive(Debug)]
#[repr(C)]
pub struct Io {
    buf: Option<Buf>,
    bio: Bio,
}

impl Io {
    /// Creates a read into all of `buf`, starting at byte `offset`.
    #[inline]
    pub fn read(buf: Buf, offset: u64) -> Io {
        let len = buf.len();
        Io::with_buf(Op::Read, buf, len, offset)
    }

    /// Creates a read into the first `len` bytes of `buf`, starting at byte `offset`.
    ///
    /// # Panics
    /// Panics if `buf` is shorter than `len`.
    #[inline]
    pub fn read_part(buf: Buf, len: usize, offset: u64) -> Io {
        Io::with_buf(Op::Read, buf, len, offset)
    }

    /// Creates a write of all of `buf` at byte `offset`.
    #[inline]
    pub fn write(buf: Buf, offset: u64) -> Io {
        let len = buf.len();
        Io::with_buf(Op::Write, buf, len, offset)
    }

    /// Creates a write of the first `len` bytes of `buf` at byte `offset`.
    ///
    /// # Panics
    /// Panics if `buf` is shorter than `len`.
    #[inline]
    pub fn write_part(buf: Buf, len: usize, offset: u64) -> Io {
        Io::with_buf(Op::Write, buf, len, offset)
    }

    /// Creates a flush: it makes every write that ended before its submission durable.
    pub fn flush() -> Io {
        Io { bio: Bio::flush(), buf: None }
    }

    /// Creates a flush that also makes all metadata of the file durable, as `fsync` does.
    pub fn fsync() -> Io {
        Io { bio: Bio::fsync(), buf: None }
    }

    /// Creates a flush that ends once everything up to a durable point is on stable storage. Its
    /// completion reports whether that succeeded. See [`Disk::durable`](crate::Disk::durable).
    pub fn flush_up_to(point: u64) -> Io {
        Io { bio: Bio::flush_up_to(point), buf: None }
    }

    /// Creates a discard of `len` bytes at byte `offset`: the range is no longer needed.
    pub fn discard(offset: u64, len: u64) -> Io {
        Io { bio: Bio::range(Op::Discard, offset, len), buf: None }
    }

    /// Creates a write of zeroes to `len` bytes at byte `offset`, without a buffer.
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

    /// Makes this write durable when it ends (force unit access).
    ///
    /// Counterpart in Linux: `REQ_FUA`.
    #[must_use]
    pub fn fua(self) -> Io {
        self.flag(BioFlags::FUA)
    }

    /// Flushes before the data of this write: all writes that ended before its submission become
    /// durable first.
    ///
    /// Counterpart in Linux: `REQ_PREFLUSH`.
    #[must_use]
    pub fn preflush(self) -> Io {
        self.flag(BioFlags::PREFLUSH)
    }

    /// Excludes this I/O from merging.
    #[must_use]
    pub fn nomerge(self) -> Io {
        self.flag(BioFlags::NOMERGE)
    }

    /// Returns the buffer, if there is one.
    pub fn into_buf(self) -> Option<Buf> {
        self.buf
    }

    /// Fails instead of waiting for a tag: the I/O ends with [`BlockStatus::Again`] and none of it
    /// is issued. If it needs more requests than there are tags, it ends with `NotSupported`.
    #[must_use]
    pub fn nowait(self) -> Io {
        self.flag(BioFlags::NOWAIT)
    }

    /// Lets the I/O use a reserved tag (`reserved_tags=`) and go before those that may not. Meant
    /// for the few I/Os that other I/O depends on.
    #[must_use]
    pub fn reserved(self) -> Io {
        self.flag(BioFlags::RESERVED)
    }

    /// Marks background I/O. All such I/Os of a hardware context together use at most `async_depth`
    /// tags.
    #[must_use]
    pub fn background(self) -> Io {
        self.flag(BioFlags::BACKGROUND)
    }

    /// Sets the I/O priority: a class, and a level in it from 0, the highest, to 7. Without this
    /// call it is best effort, level 4. I/Os of different priorities do not merge.
    ///
    /// Only schedulers look at it: `mq-deadline` and `bfq` at the class, as in Linux. With
    /// `scheduler=none` a priority changes no order.
    ///
    /// ```
    /// use forebay::{Buf, Class, Disk, Io};
    ///
    /// let disk = Disk::open("ram:1M?scheduler=mq-deadline&device_depth=1")?;
    /// let mut queue = disk.queue();
    /// queue.submit(Io::read(Buf::new(4096), 0).priority(Class::RealTime, 0))?;
    /// let mut done = Vec::new();
    /// assert_eq!(queue.reap(1, 1, &mut done), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics if `level` is greater than 7.
    #[must_use]
    pub fn priority(mut self, class: Class, level: u8) -> Io {
        let priority = Priority::new(class, level).expect("a priority has a level from 0 to 7");
        self.bio.origin = self.bio.origin.with_priority(priority);
        self
    }

    /// Sets the origin: the priority and the owner ([`Owner::origin`](crate::Owner::origin)).
    ///
    /// An owner is known by a number, which is valid on its own disk. On another one the I/O counts
    /// against the owner that has the same number there, or has none.
    /// [`BioQueue::submit_for`](crate::BioQueue::submit_for) checks that.
    #[must_use]
    #[inline]
    pub fn origin(mut self, origin: Origin) -> Io {
        self.bio.origin = origin;
        self
    }

    /// Returns the I/O with the owner of `origin`, and its own priority.
    #[inline]
    pub(crate) fn of_owner(mut self, origin: Origin) -> Io {
        self.bio.origin = origin.with_priority(self.bio.origin.priority());
        self
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

    // Always inlined: otherwise the I/O is passed through memory.
    #[inline(always)]
    fn with_buf(op: Op, buf: Buf, len: usize, offset: u64) -> Io {
        assert!(len <= buf.len(), "an I/O of {len} bytes exceeds its buffer of {}", buf.len());
        let bio = Bio {
            segments: segments_of(buf.addr(), len),
            // Each holder of the buffer keeps it until the driver is done
            // (`runtime/quarantine.rs`).
            flags: BioFlags::OWNED,
            ..Bio::range(op, offset, len as u64)
        };
        Io { bio, buf: Some(buf) }
    }
}

/// The completion of an I/O.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The number that was set with [`Io::user_data`].
    pub user_data: u64,
    /// The number of bytes moved, fewer than requested only at the end of a file, or the failure.
    pub result: Result<u64, BlockStatus>,
    /// The buffer of the [`Io`], if it had one. Also `None` if the I/O ended with
    /// [`Timeout`](BlockStatus::Timeout) before the device was done with the buffer
    /// (`io_timeout_ms`). The layer then frees the buffer later.
    pub buf: Option<Buf>,
    /// Time that the I/O waited for a tag, in nanoseconds, or `None` if it did not wait. 0 with
    /// `iostats=off` on a disk without a volatile cache.
    pub tag_wait_ns: Option<u64>,
    /// The point to wait for until this write is on stable storage
    /// ([`Disk::durable`](crate::Disk::durable)). 0 if it is durable already or nothing was
    /// written.
    pub durable_point: u64,
}

impl Completion {
    /// Returns the completion of a bio, without its buffer.
    #[inline]
    pub(crate) fn of(boxed: &QueuedBio) -> Completion {
        Completion {
            user_data: boxed.bio().user_data,
            result: boxed.result(),
            buf: None,
            tag_wait_ns: boxed.tag_wait(),
            durable_point: boxed.durable_point(),
        }
    }
}

/// The largest segment that memory is cut into, in bytes.
const SEGMENT_MAX: usize = 1 << 30;

/// Returns the segments of `len` bytes of memory at `addr`.
#[inline]
pub(crate) fn segments_of(addr: usize, len: usize) -> Segments {
    if len == 0 {
        return Segments::None;
    }
    if len <= SEGMENT_MAX {
        return Segments::One(Segment { addr, len: len as u32 });
    }
    Segments::Many(several_segments(addr, len))
}

// Returns only the list. A function that returned `Segments` would write it to memory, and each
// I/O would then be read back from there.
#[cold]
fn several_segments(addr: usize, len: usize) -> Vec<Segment> {
    let cut = |at: usize| Segment { addr: addr + at, len: SEGMENT_MAX.min(len - at) as u32 };
    (0..len).step_by(SEGMENT_MAX).map(cut).collect()
}
