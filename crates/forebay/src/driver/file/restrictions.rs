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

/// What the driver puts into a ring, on any kernel.
const OPCODES: [u8; 9] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::ReadFixed::CODE,
    opcode::WriteFixed::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];

/// What it puts there only where the kernel knows it (Linux 5.19); others refuse to hear of it.
const NEW_OPCODES: [u8; 1] = [opcode::UringCmd16::CODE];

/// What is registered later, or taken back: `IORING_UNREGISTER_BUFFERS`, `IORING_UNREGISTER_FILES`,
/// `IORING_REGISTER_EVENTFD`.
const REGISTERS: [u8; 3] = [1, 3, 4];

/// Restricts and enables a ring that was made disabled. From then on it is the calling thread's, if
/// it is for one issuer.
///
/// # Errors
/// The kernel's.
pub(super) fn enable(ring: &IoUring) -> io::Result<()> {
    let submitter = ring.submitter();
    submitter
        .register_restrictions(&mut list(&NEW_OPCODES))
        .or_else(|_| submitter.register_restrictions(&mut list(&[])))?;
    submitter.register_enable_rings()
}

fn list(new_opcodes: &[u8]) -> Vec<Restriction> {
    let file = Flags::FIXED_FILE.bits();
    // ASYNC is for a discard that may have to wait: a worker of the kernel makes it.
    let allowed = file | Flags::ASYNC.bits();
    let flags = [Restriction::sqe_flags_allowed(allowed), Restriction::sqe_flags_required(file)];
    let opcodes = OPCODES.iter().chain(new_opcodes).map(|opcode| Restriction::sqe_op(*opcode));
    let registers = REGISTERS.iter().map(|opcode| Restriction::register_op(*opcode));
    opcodes.chain(registers).chain(flags).collect()
}
