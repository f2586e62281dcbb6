//! Restrictions of a ring: it may read, write, flush, and change ranges of the one file that it was
//! made for, and cancel its own requests.
//!
//! A ring is created disabled, gets its file and memory, is restricted, and only then enabled. Each
//! entry must name a registered file. There is only one, and the table cannot change any more. So
//! an entry that was overwritten, by a bug in this library or in the program around it, opens no
//! file, connects to no socket and touches no other file. System call filters do not see such
//! entries. (Linux 5.10; the rest of this driver needs 5.11.)

use super::registered;
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

/// Operations that the driver uses only if the kernel knows them, in the order of their versions:
/// Linux 5.19, and 6.15 for the others. Older kernels reject a restriction that names them.
const NEW_OPCODES: [u8; 3] =
    [opcode::UringCmd16::CODE, opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE];

/// Register operations needed later: `IORING_UNREGISTER_BUFFERS`, `IORING_UNREGISTER_FILES`,
/// `IORING_REGISTER_EVENTFD`.
const REGISTERS: [u8; 3] = [1, 3, 4];

/// Those for memory of callers, if the kernel knows them: Linux 5.13, and 6.12 for the last.
const NEW_REGISTERS: [u8; 3] = [
    registered::REGISTER_BUFFERS2,
    registered::REGISTER_BUFFERS_UPDATE,
    registered::REGISTER_CLONE_BUFFERS,
];

/// Numbers of the new operations, and of the new register operations, that versions of the kernel
/// know. The newest comes first.
const VERSIONS: [(usize, usize); 5] = [(3, 3), (1, 3), (1, 2), (0, 2), (0, 0)];

/// Restricts and enables a ring that was created disabled. If the ring is for a single issuer, the
/// calling thread becomes that issuer. Returns whether reads and writes of several segments may use
/// registered memory.
///
/// # Errors
/// Returns the kernel's error.
pub(super) fn enable(ring: &IoUring) -> io::Result<bool> {
    let submitter = ring.submitter();
    let mut result = Ok(false);
    for (nr_opcodes, nr_registers) in VERSIONS {
        let (opcodes, registers) = (&NEW_OPCODES[..nr_opcodes], &NEW_REGISTERS[..nr_registers]);
        result = submitter
            .register_restrictions(&mut list(opcodes, registers))
            .map(|()| nr_opcodes == NEW_OPCODES.len());
        if result.is_ok() {
            break;
        }
    }
    let has_vectored = result?;
    submitter.register_enable_rings()?;
    Ok(has_vectored)
}

fn list(new_opcodes: &[u8], new_registers: &[u8]) -> Vec<Restriction> {
    let file = Flags::FIXED_FILE.bits();
    // ASYNC is for a discard that may block: a kernel worker makes it.
    let allowed = file | Flags::ASYNC.bits();
    let flags = [Restriction::sqe_flags_allowed(allowed), Restriction::sqe_flags_required(file)];
    let opcodes = OPCODES.iter().chain(new_opcodes).map(|opcode| Restriction::sqe_op(*opcode));
    let registers = REGISTERS.iter().chain(new_registers);
    let registers = registers.map(|opcode| Restriction::register_op(*opcode));
    opcodes.chain(registers).chain(flags).collect()
}
