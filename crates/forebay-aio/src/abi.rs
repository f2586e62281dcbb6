//! Structures of Linux AIO, as programs and the kernel have them in memory.
//!
//! Source: <linux/aio_abi.h>, and `fs/aio.c` for the ring.

use std::sync::atomic::AtomicU32;

/// `struct iocb`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Iocb {
    pub(crate) data: u64,
    #[cfg(target_endian = "big")]
    pub(crate) rw_flags: i32,
    pub(crate) key: u32,
    #[cfg(target_endian = "little")]
    pub(crate) rw_flags: i32,
    pub(crate) opcode: u16,
    pub(crate) reqprio: i16,
    pub(crate) fildes: u32,
    pub(crate) buf: u64,
    pub(crate) nbytes: u64,
    pub(crate) offset: i64,
    pub(crate) reserved2: u64,
    pub(crate) flags: u32,
    pub(crate) resfd: u32,
}

/// Operations of an iocb (`IOCB_CMD_*`).
pub(crate) mod opcode {
    pub(crate) const PREAD: u16 = 0;
    pub(crate) const PWRITE: u16 = 1;
    pub(crate) const FSYNC: u16 = 2;
    pub(crate) const FDSYNC: u16 = 3;
    pub(crate) const POLL: u16 = 5;
    pub(crate) const PREADV: u16 = 7;
    pub(crate) const PWRITEV: u16 = 8;
}

/// `IOCB_FLAG_RESFD`: the end of the iocb signals an eventfd.
pub(crate) const FLAG_RESFD: u32 = 1;

/// `struct io_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IoEvent {
    /// The field `data` of the iocb.
    pub data: u64,
    /// The address of the iocb.
    pub obj: u64,
    /// A number of bytes, or a negative errno.
    pub res: i64,
    /// 0 for all operations of files.
    pub res2: i64,
}

/// The head of `struct aio_ring`. The events follow.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RingHead {
    pub(crate) id: u32,
    /// The number of places for events. One of them stays free.
    pub(crate) nr: u32,
    pub(crate) head: AtomicU32,
    pub(crate) tail: AtomicU32,
    pub(crate) magic: u32,
    pub(crate) compat_features: u32,
    pub(crate) incompat_features: u32,
    pub(crate) header_len: u32,
}

/// The magic number of a ring.
pub(crate) const RING_MAGIC: u32 = 0xa10a_10a1;

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32);
const _: () = assert!(size_of::<RingHead>() == 32);
