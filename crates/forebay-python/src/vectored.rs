//! Blocking reads and writes over several buffers, each call as one I/O.
// Passes the addresses of exported memory to drivers.
#![allow(unsafe_code)]

use crate::error::of_io;
use crate::export::{Access, Export, segments_of};
use forebay::{Bio, BioFlags, Disk, Op, Segment, Segments};
use pyo3::prelude::*;

/// Moves data between a disk and the buffers of a list, in their order. They must be aligned as the
/// disk needs it.
pub(crate) fn transfer(
    disk: &Disk,
    (op, flags): (Op, BioFlags),
    buffers: &Bound<'_, PyAny>,
    offset: u64,
) -> PyResult<u64> {
    let py = buffers.py();
    let access = if op == Op::Read { Access::Target } else { Access::Source };
    let mut exports: Vec<Export> = Vec::new();
    let held = hold_all(&mut exports, buffers, access);
    let moved = held.and_then(|segments| {
        let len = segments.iter().map(|segment| u64::from(segment.len)).sum();
        let segments = if segments.is_empty() { Segments::None } else { Segments::Many(segments) };
        let bio = Bio { segments, flags, ..Bio::range(op, offset, len) };
        // SAFETY: the memory is exported until this returns. The program must not use it meanwhile.
        // Its address is exposed.
        py.detach(|| unsafe { disk.run_raw(bio) }).map_err(of_io)
    });
    exports.iter_mut().for_each(|export| export.release(py));
    moved
}

/// Exports all buffers. Returns their memory.
fn hold_all(
    exports: &mut Vec<Export>,
    buffers: &Bound<'_, PyAny>,
    access: Access,
) -> PyResult<Vec<Segment>> {
    let mut segments = Vec::new();
    for buffer in buffers.try_iter()? {
        let mut export = Export::new();
        let held = export.hold(&buffer?, access);
        exports.push(export);
        held?;
        let (addr, len) = exports.last().expect("just added").memory();
        match segments_of(addr, len) {
            Segments::None => {}
            Segments::One(segment) => segments.push(segment),
            Segments::Many(list) => segments.extend(list),
        }
    }
    Ok(segments)
}
