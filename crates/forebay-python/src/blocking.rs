//! Blocking reads and writes with memory of Python.
// Passes the addresses of exported memory to drivers.
#![allow(unsafe_code)]

use crate::error::of_io;
use crate::export::{Access, Export, segments_of};
use forebay::{Bio, BioFlags, Buf, Disk, Op};
use pyo3::exceptions::{PyMemoryError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Returns whether a device accepts memory at this address.
fn is_aligned(disk: &Disk, addr: usize) -> bool {
    addr & disk.limits().dma_alignment as usize == 0
}

/// Returns an aligned buffer for a copy.
fn bounce(disk: &Disk, len: usize) -> PyResult<Buf> {
    match isize::try_from(len) {
        Ok(_) => Ok(disk.buf(len)),
        Err(_) => Err(PyMemoryError::new_err(format!("{len} bytes do not fit into memory"))),
    }
}

/// Reads `len` bytes at `offset` into a new object. If the disk needs aligned memory (`direct=on`),
/// the bytes are read into a buffer and copied.
pub(crate) fn read_at<'py>(
    py: Python<'py>,
    disk: &Disk,
    len: usize,
    offset: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    if isize::try_from(len).is_err() {
        return Err(PyOverflowError::new_err(format!("{len} bytes do not fit into memory")));
    }
    let mut nr = 0;
    let bytes = PyBytes::new_with(py, len, |target| {
        nr = match len > 0 && !is_aligned(disk, target.as_ptr().addr()) {
            false => py.detach(|| disk.read_at(target, offset)).map_err(of_io)?,
            true => {
                let mut buf = bounce(disk, len)?;
                let nr = py.detach(|| disk.read_at(&mut buf, offset)).map_err(of_io)?;
                target.copy_from_slice(&buf);
                nr
            }
        };
        Ok(())
    })?;
    Ok(match nr {
        nr if nr < len => PyBytes::new(py, &bytes.as_bytes()[..nr]),
        _ => bytes,
    })
}

/// Reads into the memory of an object, which must be aligned as the disk needs it.
pub(crate) fn readinto(disk: &Disk, target: &Bound<'_, PyAny>, offset: u64) -> PyResult<u64> {
    let (py, mut export) = (target.py(), Export::new());
    export.hold(target, Access::Target)?;
    let (addr, len) = export.memory();
    let moved = transfer(py, disk, (Op::Read, BioFlags::NONE), (addr, len), offset);
    export.release(py);
    moved
}

/// Writes the memory of an object. If the disk needs aligned memory and this is not, it is copied.
pub(crate) fn write_at(
    disk: &Disk,
    source: &Bound<'_, PyAny>,
    offset: u64,
    is_durable: bool,
) -> PyResult<u64> {
    let (py, mut export) = (source.py(), Export::new());
    let flags = if is_durable { BioFlags::FUA } else { BioFlags::NONE };
    export.hold(source, Access::Source)?;
    let (addr, len) = export.memory();
    let moved = match len > 0 && !is_aligned(disk, addr) {
        false => transfer(py, disk, (Op::Write, flags), (addr, len), offset),
        true => bounce(disk, len).and_then(|mut buf| {
            // SAFETY: the memory is exported and `len` bytes long, and the buffer is as long. Code
            // that changes the memory meanwhile needs the GIL, which this thread has.
            unsafe {
                let source = std::ptr::with_exposed_provenance::<u8>(addr);
                source.copy_to_nonoverlapping(buf.as_mut_ptr(), len);
            }
            let addr = buf.as_ptr().expose_provenance();
            transfer(py, disk, (Op::Write, flags), (addr, len), offset)
        }),
    };
    export.release(py);
    moved
}

/// Moves data without the GIL. The memory is exported by the caller until this returns.
fn transfer(
    py: Python<'_>,
    disk: &Disk,
    (op, flags): (Op, BioFlags),
    (addr, len): (usize, usize),
    offset: u64,
) -> PyResult<u64> {
    let segments = segments_of(addr, len);
    let bio = Bio { segments, flags, ..Bio::range(op, offset, len as u64) };
    // SAFETY: the caller exports the memory until this returns. The program must not use it
    // meanwhile. Its address is exposed.
    py.detach(|| unsafe { disk.run_raw(bio) }).map_err(of_io)
}
