//! Checks before a calibration writes: the disk is not mounted, not shared, and empty.
//!
//! A disk counts as empty if its first and last megabyte contain only zeroes, where partition
//! tables and file systems have their signatures, and so do blocks at regular distances between
//! them.

use forebay::{Buf, Disk, Spec};

use crate::bench::{file_below, use_of};
use crate::failure::Failure;

/// The parts at both ends that are read completely, in bytes.
const END_BYTES: u64 = 1 << 20;
/// The number of blocks that are read between them, and their size.
const NR_SAMPLES: u64 = 1024;
const SAMPLE_BYTES: u64 = 4096;

/// Adds `exclusive=on` to the spec of a file or block device.
///
/// # Errors
/// The device is in use, the spec contradicts `exclusive=on`, or the disk is of another machine.
pub(super) fn prepare(spec: &mut Spec) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::Run(format!("--write: {why}")));
    if spec.get("read_only").is_some_and(|value| value != "off") {
        let why = format!("{spec}: remove read_only, or omit --write");
        return Err(Failure::Usage(format!("--write: {why}")));
    }
    let Some(path) = file_below(spec) else {
        return match spec.driver() {
            "ram" | "null" | "model" => Ok(()),
            driver => refused(format!(
                "{spec}: a disk of the driver {driver} cannot be opened exclusively, so other \
                 programs may use it; omit --write, or give a local file or block device"
            )),
        };
    };
    let shown = path.display();
    if let Some(use_of_it) = use_of(&path) {
        return refused(format!(
            "{shown} {use_of_it}, and writes would destroy its data; unmount it, or choose another \
             device"
        ));
    }
    if spec.get("exclusive").is_some_and(|value| value != "on") {
        let given = format!("exclusive={}", spec.get("exclusive").unwrap_or_default());
        return refused(format!("needs exclusive=on: remove {given} from {spec}"));
    }
    if spec.get("exclusive").is_none() {
        spec.set("exclusive", "on");
    }
    Ok(())
}

/// Reads parts of the disk.
///
/// # Errors
/// A part contains data, or cannot be read.
pub(super) fn check(disk: &Disk, name: &str) -> Result<(), Failure> {
    if !disk.info().facts.keeps_data {
        return Ok(());
    }
    let capacity = disk.capacity_bytes().unwrap_or(0);
    let mut end = Buf::new(END_BYTES as usize);
    let mut sample = Buf::new(SAMPLE_BYTES as usize);
    find_data(disk, name, &mut end, 0)?;
    find_data(disk, name, &mut end, aligned(capacity.saturating_sub(END_BYTES)))?;
    for nth in 0..NR_SAMPLES {
        let at = u128::from(capacity) * u128::from(nth) / u128::from(NR_SAMPLES);
        find_data(disk, name, &mut sample, aligned(at as u64))?;
    }
    Ok(())
}

/// Returns the offset, rounded down to a multiple of any block size.
fn aligned(offset: u64) -> u64 {
    offset / SAMPLE_BYTES * SAMPLE_BYTES
}

/// Reads the disk from `at` to the end of the buffer or of the disk.
fn find_data(disk: &Disk, name: &str, buf: &mut [u8], at: u64) -> Result<(), Failure> {
    let capacity = disk.capacity_bytes().unwrap_or(0);
    let len = capacity.saturating_sub(at).min(buf.len() as u64) as usize;
    let buf = &mut buf[..len];
    disk.read_at(buf, at).map_err(|error| {
        Failure::Run(format!("--write: {name}: cannot read at offset {at}: {error}"))
    })?;
    match buf.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(place) => Err(Failure::Run(format!(
            "--write: {name} is not empty: it contains data at offset {}, which writes would \
             destroy; omit --write, or erase the disk first (`blkdiscard -z` for a device; \
             overwrite a file with zeroes)",
            at + place as u64
        ))),
    }
}
