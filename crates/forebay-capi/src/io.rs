//! I/Os of a queue as C programs write them, checked and converted to bios (J4, J5).
// Reads what pointers of the caller lead to.
#![allow(unsafe_code)]

use crate::error::Failure;
use forebay::foreign::cut;
use forebay::{Bio, BioFlags, Class, OWNER_MAX, Op, Origin, Priority, Segment, Segments};
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

/// The operation of an I/O.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum forebay_op {
    /// Read into the memory of the I/O.
    Read = 0,
    /// Write the memory of the I/O.
    Write = 1,
    /// Make every write that ended before it durable. Has no range and no memory.
    Flush = 2,
    /// The range is no longer needed.
    Discard = 3,
    /// Make the range read as zeroes.
    WriteZeroes = 4,
}

/// Returns the number of an operation in C.
pub(crate) fn number_of(op: Op) -> c_int {
    let number = match op {
        Op::Read => forebay_op::Read,
        Op::Write => forebay_op::Write,
        Op::Flush => forebay_op::Flush,
        Op::Discard => forebay_op::Discard,
        Op::WriteZeroes => forebay_op::WriteZeroes,
    };
    number as c_int
}

/// The write is durable when it ends.
pub const FOREBAY_IO_FUA: u32 = 1;
/// All writes that ended before its submission become durable before the data of this write.
pub const FOREBAY_IO_PREFLUSH: u32 = 2;
/// Do not merge this I/O with others.
pub const FOREBAY_IO_NOMERGE: u32 = 4;
/// Fail with -EAGAIN instead of waiting for a tag.
pub const FOREBAY_IO_NOWAIT: u32 = 8;
/// The I/O may use a reserved tag, and goes before I/O that may not.
pub const FOREBAY_IO_RESERVED: u32 = 16;
/// Background I/O, which uses at most async_depth tags of a hardware context.
pub const FOREBAY_IO_BACKGROUND: u32 = 32;
/// On a flush: make all metadata of the file durable too.
pub const FOREBAY_IO_FSYNC: u32 = 64;
/// On a flush: cover only what had ended at a durable point, which is the offset of the I/O.
pub const FOREBAY_IO_UP_TO: u32 = 128;

/// The I/O goes before all other I/O. Add a level from 0, the highest, to 7.
pub const FOREBAY_PRIORITY_REAL_TIME: u32 = 1 << 13;
/// The default class. Add a level; the default is 4.
pub const FOREBAY_PRIORITY_BEST_EFFORT: u32 = 2 << 13;
/// The I/O goes when there is no other I/O, or after it has waited for long. Add a level.
pub const FOREBAY_PRIORITY_IDLE: u32 = 3 << 13;

/// As in `ioprio_set(2)`.
const PRIORITY_CLASS_SHIFT: u32 = 13;

/// One I/O for forebay_queue_submit(). Set all fields; those without a use are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_io {
    /// sizeof(struct forebay_io). Later versions may append fields.
    pub size: u32,
    /// One of enum forebay_op.
    pub op: u32,
    /// Any of FOREBAY_IO_...
    pub flags: u32,
    /// The number of entries of iov; 0 if buf is the memory.
    pub iovcnt: u32,
    /// The memory of a read or write, len bytes. It belongs to the device until the completion has
    /// been reaped, or the queue closed. NULL for other operations, and with iov.
    pub buf: *mut c_void,
    /// The memory in several parts, or NULL. The list is copied; len is the sum of its parts.
    pub iov: *const iovec,
    /// The length in bytes; 0 for a flush.
    pub len: u64,
    /// The first byte on the disk.
    pub offset: u64,
    /// Returned with the completion.
    pub user_data: u64,
    /// The I/O priority: FOREBAY_PRIORITY_... plus a level, as in ioprio_set(2). 0: best effort,
    /// level 4. Only mq-deadline and bfq order by the class.
    pub priority: u32,
    /// The number of the owner whose limits the I/O counts against: see forebay_owner_number(). 0:
    /// no owner.
    pub owner: u32,
}

const IO_SIZE: usize = size_of::<forebay_io>();
const _: () = assert!(IO_SIZE == 64, "fields are only appended: accept this size for ever");

/// The size in programs that were compiled before `priority`.
const FIRST_SIZE: usize = offset_of!(forebay_io, priority);
const _: () = assert!(FIRST_SIZE == 56, "a change of the ABI");

/// The most parts of an I/O, as for `readv`.
const IOV_MAX: u32 = 1024;

/// The largest segment that memory is cut into, bytes.
const SEGMENT_MAX: u64 = forebay::foreign::SEGMENT_MAX as u64;

/// Converts a plain read or write to a bio: of this version, with one buffer, and without flags.
/// Returns `None` for all others, and for those that are wrong.
///
/// # Safety
/// As for [`read_io`].
#[inline(always)]
pub(crate) unsafe fn plain_bio(at: *const forebay_io) -> Option<Bio> {
    if !at.is_aligned() {
        return None;
    }
    // SAFETY: these two fields are there in every version, and the others in this one.
    let io = unsafe {
        if (*at).size as usize != IO_SIZE || (*at).op > forebay_op::Write as u32 {
            return None;
        }
        &*at
    };
    let has_more = (io.flags | io.iovcnt | io.priority | io.owner) != 0 || !io.iov.is_null();
    if has_more || io.buf.is_null() || io.len.wrapping_sub(1) >= SEGMENT_MAX {
        return None;
    }
    // The memory must not wrap around the end of the address space. The slow path refuses it.
    io.buf.addr().checked_add(io.len as usize)?;
    let op = if io.op == forebay_op::Read as u32 { Op::Read } else { Op::Write };
    let segment = Segment { addr: io.buf.expose_provenance(), len: io.len as u32 };
    Some(Bio { user_data: io.user_data, ..Bio::data(op, io.offset, segment) })
}

/// Returns the I/O at an address, and its size, which leads to the next one.
///
/// # Safety
/// `at` leads to a `forebay_io` with as many bytes as its field `size` says.
#[inline]
pub(crate) unsafe fn read_io(at: *const forebay_io) -> Result<(forebay_io, usize), Failure> {
    if !at.is_aligned() {
        return Err(Failure::of(libc::EINVAL, c"the I/O is not at an address for its type"));
    }
    // SAFETY: the field is there in every version.
    let size = unsafe { (&raw const (*at).size).read() } as usize;
    if size != IO_SIZE {
        // SAFETY: the caller keeps the conditions.
        unsafe { check_size(at, size) }?;
    }
    let mut io = forebay_io {
        size: 0,
        op: 0,
        flags: 0,
        iovcnt: 0,
        buf: ptr::null_mut(),
        iov: ptr::null(),
        len: 0,
        offset: 0,
        user_data: 0,
        priority: 0,
        owner: 0,
    };
    let to = (&raw mut io).cast::<u8>();
    // SAFETY: `size` bytes are there. Fields that the caller's version lacks stay 0.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), to, size.min(IO_SIZE)) };
    Ok((io, size))
}

/// Checks the size of an I/O of another version. In a later one, fields that this version lacks
/// must be 0.
///
/// # Safety
/// As for [`read_io`].
#[cold]
unsafe fn check_size(at: *const forebay_io, size: usize) -> Result<(), Failure> {
    const SIZE_MAX: usize = 4096;
    if size == FIRST_SIZE {
        return Ok(());
    }
    if !(IO_SIZE..=SIZE_MAX).contains(&size) || !size.is_multiple_of(align_of::<forebay_io>()) {
        return Err(Failure::invalid(format!(
            "the field `size` of the I/O is {size}; set it to sizeof(struct forebay_io), which is \
             {IO_SIZE} in this version"
        )));
    }
    // SAFETY: the caller passes `size` bytes.
    let rest = unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(IO_SIZE), size - IO_SIZE) };
    match rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Failure::new(
            libc::E2BIG,
            format!(
                "the I/O uses fields of a later version of libforebay; this version has {IO_SIZE} \
                 bytes of its {size}"
            ),
        )),
    }
}

/// Converts an I/O to a bio. `lists` has lists of segments to use again.
///
/// # Safety
/// If `io.iovcnt` is not 0, `io.iov` leads to so many entries.
#[inline]
pub(crate) unsafe fn bio_of(
    io: &forebay_io,
    lists: &mut Vec<Vec<Segment>>,
) -> Result<Bio, Failure> {
    const READ: u32 = forebay_op::Read as u32;
    const WRITE: u32 = forebay_op::Write as u32;
    let op = match io.op {
        READ => Op::Read,
        WRITE => Op::Write,
        _ => return without_memory(io),
    };
    let flags = match io.flags {
        0 => BioFlags::NONE,
        _ => flags_of(op, io.flags)?,
    };
    let segments = match io.iovcnt {
        0 if io.iov.is_null() => memory_of(io.buf, io.len)?,
        // SAFETY: the caller keeps the conditions.
        _ => unsafe { listed_memory(io, lists) }?,
    };
    let origin = origin_of(io)?;
    Ok(Bio { op, flags, origin, start: io.offset, len: io.len, segments, user_data: io.user_data })
}

/// Converts an I/O that moves no data.
fn without_memory(io: &forebay_io) -> Result<Bio, Failure> {
    const FLUSH: u32 = forebay_op::Flush as u32;
    const DISCARD: u32 = forebay_op::Discard as u32;
    const WRITE_ZEROES: u32 = forebay_op::WriteZeroes as u32;
    let op = match io.op {
        FLUSH => Op::Flush,
        DISCARD => Op::Discard,
        WRITE_ZEROES => Op::WriteZeroes,
        unknown => {
            let text = format!("the operation {unknown} of the I/O is not in enum forebay_op");
            return Err(Failure::invalid(text));
        }
    };
    if !io.buf.is_null() || !io.iov.is_null() || io.iovcnt != 0 {
        let text = format!("a {} has no memory; set buf and iov to NULL, iovcnt to 0", op.name());
        return Err(Failure::invalid(text));
    }
    let flags = flags_of(op, io.flags)?;
    if op == Op::Flush && io.offset != 0 && !flags.contains(BioFlags::UP_TO) {
        return Err(Failure::invalid("a flush has an offset only with FOREBAY_IO_UP_TO"));
    }
    let origin = origin_of(io)?;
    Ok(Bio { flags, origin, user_data: io.user_data, ..Bio::range(op, io.offset, io.len) })
}

/// Returns the origin of a bio with the priority and the owner of an I/O.
#[inline]
fn origin_of(io: &forebay_io) -> Result<Origin, Failure> {
    match io.priority {
        _ if io.owner > OWNER_MAX => Err(no_owner(io.owner)),
        0 => Ok(Origin::NONE.with_owner(io.owner)),
        _ => Ok(Origin::NONE.with_owner(io.owner).with_priority(priority_of(io)?)),
    }
}

#[cold]
fn no_owner(number: u32) -> Failure {
    Failure::invalid(format!(
        "the owner {number} of the I/O does not exist; use forebay_owner_number(), or 0 for none"
    ))
}

#[cold]
fn priority_of(io: &forebay_io) -> Result<Priority, Failure> {
    let level = io.priority & ((1 << PRIORITY_CLASS_SHIFT) - 1);
    let class = match io.priority - level {
        0 if level == 0 => return Ok(Priority::default()),
        FOREBAY_PRIORITY_REAL_TIME => Some(Class::RealTime),
        FOREBAY_PRIORITY_BEST_EFFORT => Some(Class::BestEffort),
        FOREBAY_PRIORITY_IDLE => Some(Class::Idle),
        _ => None,
    };
    let level = u8::try_from(level).ok();
    class.zip(level).and_then(|(class, level)| Priority::new(class, level)).ok_or_else(|| {
        Failure::invalid(format!(
            "the priority {:#x} of the I/O is not FOREBAY_PRIORITY_... plus a level from 0 to 7",
            io.priority
        ))
    })
}

/// A flag in C, in the library, and the operations that it has a meaning for.
type Flag = (u32, BioFlags, fn(Op) -> bool);

const FLAGS: [Flag; 8] = [
    (FOREBAY_IO_FUA, BioFlags::FUA, Op::is_write),
    (FOREBAY_IO_PREFLUSH, BioFlags::PREFLUSH, Op::is_write),
    (FOREBAY_IO_NOMERGE, BioFlags::NOMERGE, is_range),
    (FOREBAY_IO_NOWAIT, BioFlags::NOWAIT, is_range),
    (FOREBAY_IO_RESERVED, BioFlags::RESERVED, is_range),
    (FOREBAY_IO_BACKGROUND, BioFlags::BACKGROUND, is_range),
    (FOREBAY_IO_FSYNC, BioFlags::FSYNC, is_flush),
    (FOREBAY_IO_UP_TO, BioFlags::UP_TO, is_flush),
];

fn is_flush(op: Op) -> bool {
    op == Op::Flush
}

fn is_range(op: Op) -> bool {
    op != Op::Flush
}

fn flags_of(op: Op, wanted: u32) -> Result<BioFlags, Failure> {
    let (mut flags, mut rest) = (BioFlags::NONE, wanted);
    for (number, flag, fits) in FLAGS {
        if wanted & number != 0 && fits(op) {
            flags = flags.union(flag);
            rest &= !number;
        }
    }
    match rest {
        0 => Ok(flags),
        _ => Err(Failure::invalid(format!("a {} has no flags {rest:#x}", op.name()))),
    }
}

/// Returns the segments of `len` bytes at an address.
#[inline]
pub(crate) fn memory_of(buf: *const c_void, len: u64) -> Result<Segments, Failure> {
    if len == 0 {
        return Ok(Segments::None);
    }
    check_memory(buf, len)?;
    if len <= SEGMENT_MAX {
        let segment = Segment { addr: buf.expose_provenance(), len: len as u32 };
        return Ok(Segments::One(segment));
    }
    let mut list = Vec::new();
    push_memory(&mut list, buf, len)?;
    Ok(Segments::Many(list))
}

/// Appends the segments of `len` bytes at an address to a list.
pub(crate) fn push_memory(
    list: &mut Vec<Segment>,
    buf: *const c_void,
    len: u64,
) -> Result<(), Failure> {
    if len == 0 {
        return Ok(());
    }
    check_memory(buf, len)?;
    list.extend(cut(buf.expose_provenance(), len as usize));
    Ok(())
}

/// Refuses memory that cannot exist: NULL, or memory that wraps around the end of the address
/// space. `len` is not 0.
#[inline]
pub(crate) fn check_memory(buf: *const c_void, len: u64) -> Result<(), Failure> {
    let is_there =
        isize::try_from(len).is_ok_and(|_| buf.addr().checked_add(len as usize).is_some());
    match is_there && !buf.is_null() {
        true => Ok(()),
        false => Err(no_memory(buf, len)),
    }
}

#[cold]
fn no_memory(buf: *const c_void, len: u64) -> Failure {
    Failure::invalid(match buf.is_null() {
        true => format!("the memory is NULL, but {len} bytes were given"),
        false => format!("no memory at {:#x} is {len} bytes long", buf.addr()),
    })
}

/// Returns the entries of a list of the caller.
///
/// # Safety
/// `iov` leads to `nr` entries, which stay as they are while the result is used.
pub(crate) unsafe fn iovecs_of<'a>(iov: *const iovec, nr: u32) -> Result<&'a [iovec], Failure> {
    if nr > IOV_MAX {
        return Err(Failure::invalid(format!("{nr} buffers are more than {IOV_MAX}")));
    }
    if nr == 0 {
        return Ok(&[]);
    }
    if iov.is_null() || !iov.is_aligned() {
        return Err(Failure::invalid(format!("iov is NULL or misaligned, but iovcnt is {nr}")));
    }
    // SAFETY: the caller passes so many entries at an aligned address.
    Ok(unsafe { std::slice::from_raw_parts(iov, nr as usize) })
}

/// Returns the memory of an I/O in several parts.
///
/// # Safety
/// As for [`bio_of`].
#[cold]
unsafe fn listed_memory(
    io: &forebay_io,
    lists: &mut Vec<Vec<Segment>>,
) -> Result<Segments, Failure> {
    if !io.buf.is_null() || io.iovcnt == 0 {
        return Err(Failure::invalid("an I/O has either buf or iov with iovcnt"));
    }
    // SAFETY: the caller keeps the conditions.
    let parts = unsafe { iovecs_of(io.iov, io.iovcnt) }?;
    let mut list = lists.pop().unwrap_or_default();
    list.clear();
    for part in parts {
        push_memory(&mut list, part.iov_base, part.iov_len as u64)?;
    }
    let sum: u64 = list.iter().map(|segment| u64::from(segment.len)).sum();
    if sum != io.len {
        let text = format!("the parts of iov have {sum} bytes, but len is {}", io.len);
        return Err(Failure::invalid(text));
    }
    Ok(if list.is_empty() { Segments::None } else { Segments::Many(list) })
}
