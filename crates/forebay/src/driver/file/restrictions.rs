//! What a ring may do: read, write, flush, and change ranges of the one file that it was made for.
//!
//! A ring is made disabled, given its file and memory, restricted, and only then enabled. Each
//! entry must name a registered file, and there is one; the table cannot be changed any more. So an
//! entry that was overwritten, by a fault of this library or of the program around it, opens
//! nothing, connects to nothing, and touches no other file: which filters of system calls do not
//! see. (Linux 5.10; the rest of this driver needs 5.11.)

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{IoUring, opcode};
use std::io;

/// What the driver puts into a ring.
const OPCODES: [u8; 10] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::ReadFixed::CODE,
    opcode::WriteFixed::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::UringCmd16::CODE,
];

/// What is registered later, or taken back: `IORING_UNREGISTER_BUFFERS`, `IORING_UNREGISTER_FILES`,
/// `IORING_REGISTER_EVENTFD`.
const REGISTERS: [u8; 3] = [1, 3, 4];

/// Restricts and enables a ring that was made disabled. From then on it is the calling thread's, if
/// it is for one issuer.
///
/// # Errors
/// The kernel's.
pub(super) fn enable(ring: &IoUring) -> io::Result<()> {
    let file = Flags::FIXED_FILE.bits();
    let flags = [Restriction::sqe_flags_allowed(file), Restriction::sqe_flags_required(file)];
    let mut all: Vec<_> = OPCODES.map(Restriction::sqe_op).into();
    all.extend(REGISTERS.map(Restriction::register_op));
    all.extend(flags);
    ring.submitter().register_restrictions(&mut all)?;
    ring.submitter().register_enable_rings()
}
