//! Bad blocks in files: `verify_dump`.
//!
//! As in fio, the files are in the working directory. Their names are that of the file without its
//! folder, or that of another disk, the offset of the block, and `received` or `expected`;
//! `hdr_fail` if the header is wrong. The expected data can be written only if this program or a
//! pattern determined them.

use std::path::{Path, PathBuf};

use forebay::Spec;
use forebay_fio::generator::Op;
use forebay_fio::job::Method;
use forebay_fio::verify::Mismatch;

use super::plan::{disk_name, file_below};
use super::tally::Tally;
use crate::output;

/// Returns the start of the names for the disk with this spec.
fn prefix(spec: &str) -> PathBuf {
    let path = Spec::parse(spec).ok().and_then(|spec| file_below(&spec));
    if let Some(name) = path.as_deref().and_then(Path::file_name) {
        return PathBuf::from(name);
    }
    let disk = disk_name(spec);
    let name = disk.rsplit('/').next().unwrap_or(&disk);
    PathBuf::from(name.replace(':', "."))
}

impl Tally<'_> {
    /// Writes a block that was read wrongly by `op` to files.
    pub(super) fn dump(&self, op: Op, io: &[u8], mismatch: &Mismatch) {
        let prefix = prefix(&self.disks[usize::from(op.file)].info().spec);
        let checks = &self.job.checks;
        let has_header = checks.method.has_header();
        let step = if has_header { self.format.block_len(op.len as usize) } else { io.len() };
        let at = (mismatch.offset() - op.offset) as usize;
        let received = &io[at..io.len().min(at + step)];
        let write = |kind: &str, bytes: &[u8]| {
            let path = format!("{}.{}.{kind}", prefix.display(), mismatch.offset());
            match std::fs::write(Path::new(&path), bytes) {
                Ok(()) => output::stderr(&format!("forebay: {kind} data written to {path}\n")),
                Err(error) => {
                    output::stderr(&format!("forebay: cannot write {path}: {error}\n"));
                }
            }
        };
        if has_header && mismatch.is_of_header() {
            return write("hdr_fail", received);
        }
        write("received", received);
        let expected = match (checks.method, &checks.pattern) {
            (Method::Pattern, Some(pattern)) => {
                let mut block = vec![0; received.len()];
                pattern.fill(&mut block, op.offset);
                Some(block)
            }
            _ => self.format.rebuild(received, op.offset, at),
        };
        if let Some(expected) = expected {
            write("expected", &expected);
        }
    }
}
