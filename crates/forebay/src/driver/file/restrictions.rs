//! Restrictions of a ring: it may read, write, flush, and change ranges of the one file that it was
//! made for, and cancel its own requests.
//!
//! A ring is created disabled, gets its file and memory, is restricted, and only then enabled. Each
//! entry must name a registered file. There is only one, and the table cannot change any more. So
//! an entry that was overwritten, by a bug in this library or in the program around it, opens no
//! file, connects to no socket and touches no other file. System call filters do not see such
//! entries. (Linux 5.10; the rest of this driver needs 5.11.)

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{IoUring, opcode};
use std::io;

/// Operations that the driver uses on any kernel.
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
    opcode::AsyncCancel::CODE,
];

/// Operations that the driver uses only if the kernel knows them (Linux 5.19). Older kernels reject
/// a restriction that names them.
const NEW_OPCODES: [u8; 1] = [opcode::UringCmd16::CODE];

/// Register operations needed later: `IORING_UNREGISTER_BUFFERS`, `IORING_UNREGISTER_FILES`,
/// `IORING_REGISTER_EVENTFD`.
const REGISTERS: [u8; 3] = [1, 3, 4];

/// Restricts and enables a ring that was created disabled. If the ring is for a single issuer, the
/// calling thread becomes that issuer.
///
/// # Errors
/// Returns the kernel's error.
pub(super) fn enable(ring: &IoUring) -> io::Result<()> {
    let submitter = ring.submitter();
    submitter
        .register_restrictions(&mut list(&NEW_OPCODES))
        .or_else(|_| submitter.register_restrictions(&mut list(&[])))?;
    submitter.register_enable_rings()
}

fn list(new_opcodes: &[u8]) -> Vec<Restriction> {
    let file = Flags::FIXED_FILE.bits();
    // ASYNC is for a discard that may block: a kernel worker makes it.
    let allowed = file | Flags::ASYNC.bits();
    let flags = [Restriction::sqe_flags_allowed(allowed), Restriction::sqe_flags_required(file)];
    let opcodes = OPCODES.iter().chain(new_opcodes).map(|opcode| Restriction::sqe_op(*opcode));
    let registers = REGISTERS.iter().map(|opcode| Restriction::register_op(*opcode));
    opcodes.chain(registers).chain(flags).collect()
}
