//! Files that a job with `fill_device` fills to the end of their file system.
//!
//! Source: fio's HOWTO and fio 3.33. A disk has a length from its start, so the file first gets the
//! length of all free space, as a hole. After the stage that fills it, the file is cut behind its
//! last data. Later stages use what is left.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use forebay_fio::generator::Region;
use forebay_fio::job::Job;
use rustix::fs::{SeekFrom, seek, statvfs};
use rustix::io::Errno;

use super::plan::Target;
use crate::file_id::FileId;
use crate::output;

/// The files to fill. Dropping it cuts them.
#[derive(Debug, Default)]
pub(super) struct Filling {
    files: Vec<Filled>,
}

/// A file to fill.
#[derive(Debug)]
struct Filled {
    path: PathBuf,
    id: FileId,
    /// The number of the stage that fills it.
    stage: u32,
    /// The length that it keeps in any case: that before the run.
    earlier: u64,
}

impl Filling {
    /// Adds a file that a stage fills, and whose length was `earlier` before the run.
    pub(super) fn add(&mut self, path: &Path, stage: u32, earlier: u64) {
        let id = FileId::of(path);
        self.files.push(Filled { path: path.to_owned(), id, stage, earlier });
    }

    /// Cuts the files that were filled behind their last data. `stage` is the last one that has
    /// run.
    pub(super) fn cut(&self, stage: u32) {
        for file in self.files.iter().filter(|file| file.stage <= stage) {
            if let Err(error) = file.cut() {
                let path = file.path.display();
                output::stderr(&format!(
                    "forebay: --fill_device: cannot truncate {path} to its data: {error}; its end \
                     is a hole\n"
                ));
            }
        }
    }

    /// Returns the part of a target that an earlier stage has filled: whole blocks up to the end of
    /// its file.
    pub(super) fn part(&self, job: &Job, target: &Target, region: Region) -> Region {
        let Some(path) = target.path() else { return region };
        let id = FileId::of(&path);
        if !self.files.iter().any(|file| file.stage < job.stage && file.id == id) {
            return region;
        }
        let end = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let len = end.saturating_sub(region.offset).min(region.len);
        match len - len % u64::from(job.bs) {
            // The I/O fails, and its error names the file.
            0 => region,
            len => Region { len, ..region },
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.cut(u32::MAX);
    }
}

impl Filled {
    fn cut(&self) -> io::Result<()> {
        // A run with `unlink` has removed it.
        if !self.path.exists() {
            return Ok(());
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let end = end_of_data(&file)?.max(self.earlier);
        if end < file.metadata()?.len() { file.set_len(end) } else { Ok(()) }
    }
}

/// Returns the end of the last data in a file.
fn end_of_data(file: &File) -> io::Result<u64> {
    let mut end = 0;
    loop {
        let data = match seek(file, SeekFrom::Data(end)) {
            Ok(data) => data,
            // No data follow.
            Err(Errno::NXIO) => return Ok(end),
            Err(error) => return Err(error.into()),
        };
        end = seek(file, SeekFrom::Hole(data))?;
    }
}

/// Returns the nearest folder above a file that exists: those below it are not created yet.
pub(super) fn existing_folder(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(".".as_ref())
}

/// Returns more bytes than a file at `path` may still take, in whole blocks of `block` bytes.
pub(super) fn free_bytes(path: &Path, block: u32) -> io::Result<u64> {
    let stat = statvfs(existing_folder(path))?;
    // Including the blocks that are reserved for root, and a margin for blocks that other files
    // free meanwhile: the end of the space ends the job, and not that of the hole.
    let free = stat.f_bfree.saturating_mul(stat.f_frsize).min(i64::MAX as u64 / 4);
    let free = free + free / 16 + u64::from(block);
    Ok((free - free % u64::from(block)).max(block.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn free_space_of_a_file_in_a_new_folder_is_that_of_the_folder_above() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(existing_folder(&dir.path().join("new/x/f")), dir.path());
        assert_eq!(existing_folder("f".as_ref()), Path::new("."));
        assert!(free_bytes(&dir.path().join("new/x/f"), 4096).expect("free bytes") > 0);
    }

    #[test]
    fn file_is_truncated_to_its_data_but_not_below_its_earlier_length() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (data, earlier, expected) in
            [(8192, 0, 12_288), (8192, 100_000, 100_000), (8192, 4096, 12_288)]
        {
            let path = dir.path().join("data");
            let file = File::create(&path).expect("a file");
            file.write_all_at(&[7; 4096], 0).expect("written");
            file.write_all_at(&[7; 4096], data).expect("written");
            file.set_len(1 << 30).expect("a hole");
            let mut filling = Filling::default();
            filling.add(&path, 1, earlier);
            filling.cut(0);
            assert_eq!(file.metadata().expect("a file").len(), 1 << 30, "not filled yet");
            drop(filling);
            assert_eq!(file.metadata().expect("a file").len(), expected);
        }
    }
}
