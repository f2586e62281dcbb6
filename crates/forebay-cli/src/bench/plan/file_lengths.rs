//! The parts of regular files, where they depend on the lengths of the files.
//!
//! fio sets up one clone after another before the first job starts, and lays out the files of each
//! immediately. So a percentage in `offset` is a part of the length that the file has then. Its
//! rules were found by experiments with fio 3.33:
//!
//! - A new file has 0 bytes, so a percentage of it is 0, also beside `size`.
//! - The first clone of a job is set up first, and then the others from the last to the second.
//! - A clone extends its file if it reads, or if `fallocate` sets the length (`native`, `posix` and
//!   `truncate`, but not `keep` and `none`). Otherwise a job that only writes leaves a file that is
//!   too short empty until it runs.
//! - `create_on_open` leaves the file as it is.
//!
//! The files themselves are laid out later (`layout.rs`), those of all clones together.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use forebay_fio::units::Size;

use super::Target;

/// Files by the numbers of their places.
type Files = HashMap<u64, Length>;

/// The length of a regular file.
#[derive(Debug, Clone, Copy)]
struct Length {
    bytes: u64,
    /// Whether a job fills the file until there is no space left, so that its length is unknown.
    is_filled: bool,
}

/// Determines the parts of regular files. Parts of devices depend on the capacity of the device,
/// which only the open disk has.
pub(super) fn set_extents(jobs: &[Job], targets: &mut [Target]) {
    let mut files = Files::new();
    for of_job in targets.chunk_by_mut(|a, b| a.job == b.job) {
        let job = &jobs[of_job[0].job];
        let mut clones: Vec<_> = of_job.chunk_by_mut(|a, b| a.clone == b.clone).collect();
        // fio's order of the clones.
        clones[1..].reverse();
        for clone in clones {
            let nr_files = clone.len() as u32;
            clone.iter_mut().for_each(|target| set_extent(job, nr_files, target, &mut files));
        }
    }
}

fn set_extent(job: &Job, nr_files: u32, target: &mut Target, files: &mut Files) {
    let file = match files.get(&target.place) {
        Some(&file) => file,
        None => match target.path().and_then(|path| length_of(&path)) {
            Some(bytes) => Length { bytes, is_filled: false },
            None => return,
        },
    };
    let extent = job.extent(target.clone, target.file.into(), nr_files, Some(file.bytes));
    let is_filled = file.is_filled || job.control.on_error.fill_device;
    target.extent = if is_filled { extent } else { extent.with_fixed_size(file.bytes) };
    let bytes = length_after(job, target, file.bytes);
    files.insert(target.place, Length { bytes, is_filled });
}

/// Returns the length of a file of `bytes` bytes after the layout of a target.
fn length_after(job: &Job, target: &Target, bytes: u64) -> u64 {
    let has_size = target.extent.size.is_some_and(|size| size != Size::Bytes(0));
    let end = target.extent.fixed_end().filter(|&end| has_size && end > bytes);
    let files = &job.files;
    match end {
        Some(end) if !files.create_on_open => {
            if job.rw.has(Direction::Read) || files.fallocate.sets_length() {
                end
            } else if job.rw.has(Direction::Write) && !files.append {
                0
            } else {
                bytes
            }
        }
        _ => bytes,
    }
}

/// Returns the length of a regular file, 0 if there is no file; `None` for anything else.
fn length_of(path: &Path) -> Option<u64> {
    match fs::metadata(path) {
        Ok(metadata) => metadata.is_file().then_some(metadata.len()),
        Err(error) => (error.kind() == ErrorKind::NotFound).then_some(0),
    }
}
