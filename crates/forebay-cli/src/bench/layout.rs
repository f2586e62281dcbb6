//! Layout: creating missing files, and extending files that are too small, as fio does.
//!
//! No file is laid out before every disk was opened and every job fits its disk. For this check the
//! files temporarily have their final length, without data. A later failure or a signal undoes the
//! layout: new files are removed, and others get their earlier length back.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use forebay_fio::units::Size;
use rustix::fs::statvfs;

use super::fill;
use super::filling::{self, Filling, existing_folder};
use super::plan::{Target, distinct};
use super::stop::Stop;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::output;

/// The files to create or extend. Dropping it before the layout is complete undoes the layout.
#[derive(Debug)]
pub(super) struct Layout {
    files: Vec<Missing>,
    done: bool,
}

/// A missing file, or the missing end of a file.
#[derive(Debug)]
struct Missing {
    /// The first job that needs the file.
    job: String,
    /// The number of its clone.
    clone: u32,
    path: PathBuf,
    /// The same for all paths to the file.
    id: FileId,
    /// The file's current length; `None` if it does not exist.
    earlier: Option<u64>,
    needed: u64,
    /// The end of the part that jobs need without filling the file.
    laid_out: u64,
    /// Whether a job reads that part.
    read: bool,
    /// Whether to allocate the space of the file.
    allocates: bool,
    /// The stage of the first job that fills the file until there is no space left.
    filled_in: Option<u32>,
    /// The folders that the layout has created for the file, from the outermost.
    folders: Vec<PathBuf>,
    /// Whether the layout has changed the file.
    touched: bool,
}

impl Layout {
    /// Determines the files that the jobs need. Changes nothing.
    pub(super) fn plan(jobs: &[Job], targets: &[Target]) -> Result<Self, Failure> {
        let mut layout = Self { files: Vec::new(), done: false };
        for target in distinct(targets) {
            let job = &jobs[target.job];
            // A job before it creates the file, with a length that is not known yet.
            if target.extent.size.is_none() && layout.is_filled(target) {
                continue;
            }
            if let Some(missing) = missing(job, target)? {
                layout.add(missing);
            }
        }
        Ok(layout)
    }

    /// Refuses to create or extend a file.
    ///
    /// # Errors
    /// A file is missing or too short.
    pub(super) fn check_read_only(&self) -> Result<(), Failure> {
        let Some(Missing { job, path, earlier, needed, .. }) = self.files.first() else {
            return Ok(());
        };
        let path = path.display();
        let reason = match earlier {
            None => format!("{path} does not exist, and --readonly forbids creating it"),
            Some(len) => format!(
                "{path} has {len} bytes, the job needs {needed}, and --readonly forbids to extend \
                 it"
            ),
        };
        Err(Failure::Run(format!("{job}: {reason}; run the job without --readonly once")))
    }

    /// Returns whether a job before fills the file of a target.
    fn is_filled(&self, target: &Target) -> bool {
        let id = target.path().map(|path| FileId::of(&path));
        self.files.iter().any(|file| file.filled_in.is_some() && Some(&file.id) == id.as_ref())
    }

    fn add(&mut self, more: Missing) {
        match self.files.iter_mut().find(|file| file.id == more.id) {
            Some(file) => {
                file.needed = file.needed.max(more.needed);
                file.laid_out = file.laid_out.max(more.laid_out);
                file.read |= more.read;
                file.allocates |= more.allocates;
                let stages = file.filled_in.into_iter().chain(more.filled_in);
                file.filled_in = stages.min();
            }
            None => self.files.push(more),
        }
    }

    /// Calls `check` while all files have their final length, so that every refusal happens before
    /// data is written.
    pub(super) fn rehearse<T>(
        &mut self,
        check: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        for file in &mut self.files {
            file.lengthen().map_err(|e| file.fail(&e))?;
        }
        let checked = check()?;
        for file in &mut self.files {
            // A length without data would look like a file that is already laid out.
            file.shorten().map_err(|e| file.fail(&e))?;
        }
        Ok(checked)
    }

    /// Lays all files out. Calls `tell` with a line for each. Returns the files to fill.
    pub(super) fn run(
        mut self,
        stop: &Stop,
        mut tell: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<Filling, Failure> {
        let mut filling = Filling::default();
        for files in self.files.chunk_by_mut(|a, b| (&a.job, a.clone) == (&b.job, b.clone)) {
            let (job, nr) = (&files[0].job, files.len());
            let mib = files.iter().map(|file| file.needed).sum::<u64>().div_ceil(1 << 20);
            let noun = if nr == 1 { "file" } else { "files" };
            let total = if nr == 1 { "" } else { "total " };
            tell(&format!("{job}: Laying out IO {noun} ({nr} {noun} / {total}{mib}MiB)\n"))?;
            for file in files {
                file.lay_out(stop).map_err(|error| file.fail(&error))?;
                if let Some(stage) = file.filled_in {
                    filling.add(&file.path, stage, file.earlier.unwrap_or(0));
                }
            }
        }
        self.done = true;
        Ok(filling)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        if !self.done {
            // The reverse order: the first file in a folder has created it.
            self.files.iter_mut().rev().for_each(Missing::take_back);
        }
    }
}

impl Missing {
    /// Opens the file. If it did not exist, the first call creates it, and fails if another process
    /// has created it meanwhile. If it existed, the first call records its length.
    fn open(&mut self) -> io::Result<File> {
        let is_new = self.earlier.is_none() && !self.touched;
        if is_new {
            self.create_folders()?;
        }
        let file = OpenOptions::new().write(true).create_new(is_new).open(&self.path)?;
        if !self.touched && self.earlier.is_some() {
            self.earlier = Some(file.metadata()?.len());
        }
        self.touched = true;
        Ok(file)
    }

    /// Creates the folders of the file that are missing, with fio's permissions.
    fn create_folders(&mut self) -> io::Result<()> {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let missing: Vec<_> = self.path.ancestors().skip(1).take_while(is_missing).collect();
        for folder in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(folder) {
                Ok(()) => self.folders.push(folder.to_owned()),
                // Another process has created it meanwhile, or it is `..` of the one before.
                Err(_) if folder.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the folders that the layout has created, if they are empty.
    fn remove_folders(&mut self) {
        while let Some(folder) = self.folders.pop() {
            // Files of other jobs or programs keep a folder.
            if std::fs::remove_dir(&folder).is_err() {
                self.folders.push(folder);
                return;
            }
        }
    }

    /// Extends the file to the needed length, unless another process has made it longer.
    fn lengthen(&mut self) -> io::Result<()> {
        let file = self.open()?;
        if file.metadata()?.len() < self.needed { file.set_len(self.needed) } else { Ok(()) }
    }

    /// Restores the earlier length. A file that is longer than this code made it was written by
    /// another process, and stays as it is.
    fn shorten(&mut self) -> io::Result<()> {
        let file = self.open()?;
        let is_ours = file.metadata()?.len() <= self.needed;
        if is_ours { file.set_len(self.earlier.unwrap_or(0)) } else { Ok(()) }
    }

    fn lay_out(&mut self, stop: &Stop) -> io::Result<()> {
        let (from, to) = (self.earlier.unwrap_or(0), self.laid_out);
        let mut file = self.open()?;
        match (self.read, self.allocates) {
            _ if to <= from => {}
            (true, _) => fill::with_data(&mut file, from, to, self.allocates, stop)?,
            (false, true) => fill::with_space(&file, from, to)?,
            (false, false) => {}
        }
        // The rest is a hole: a job fills it, or no job reads it.
        if file.metadata()?.len() < self.needed { file.set_len(self.needed) } else { Ok(()) }
    }

    fn take_back(&mut self) {
        if !self.touched {
            self.remove_folders();
            return;
        }
        let result = match self.earlier {
            None => match std::fs::metadata(&self.path) {
                Ok(metadata) if metadata.len() > self.needed => Ok(()),
                _ => std::fs::remove_file(&self.path),
            },
            Some(_) => self.shorten(),
        };
        self.touched = false;
        self.remove_folders();
        if let Err(error) = result {
            output::stderr(&format!(
                "forebay: {}: cannot undo the layout: {error}\n",
                self.path.display()
            ));
        }
    }

    /// Undoes the layout, and returns the failure with its reason.
    fn fail(&mut self, error: &io::Error) -> Failure {
        self.take_back();
        let needed = self.needed - self.earlier.unwrap_or(0);
        let free = match statvfs(existing_folder(&self.path)) {
            Ok(stat) => {
                format!(", and {} bytes are free", stat.f_bavail.saturating_mul(stat.f_frsize))
            }
            Err(_) => String::new(),
        };
        Failure::Run(format!(
            "{}: cannot lay out {}: {error}; it needs {needed} more bytes{free}",
            self.job,
            self.path.display()
        ))
    }
}

/// Returns the missing part of the file of `target`, if the target is a file.
fn missing(job: &Job, target: &Target) -> Result<Option<Missing>, Failure> {
    let Some(path) = target.path() else { return Ok(None) };
    let earlier = match std::fs::metadata(&path) {
        // Only regular files can be extended. Opening any other kind checks it.
        Ok(metadata) if !metadata.is_file() => return Ok(None),
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                return Err(Failure::Run(format!(
                    "{}: {} is a link to a file that does not exist; create that file, or remove \
                     the link",
                    job.name,
                    path.display()
                )));
            }
            None
        }
        // Opening it as a disk fails too, with a better message.
        Err(_) => return Ok(None),
    };
    let refused = |why: &str| Err(Failure::Run(format!("{}: {why}", job.name)));
    let fills_file = job.control.on_error.fill_device;
    let needed = match (target.extent.fixed_start(), target.extent.size) {
        (Some(offset), Some(Size::Bytes(size))) if size > 0 => {
            match offset.checked_add(size).filter(|&end| i64::try_from(end).is_ok()) {
                Some(end) => end,
                None => {
                    return refused(&format!(
                        "offset {offset} + size {size} is larger than the largest file; lower \
                         --size or --offset"
                    ));
                }
            }
        }
        (Some(offset), None) if fills_file => {
            offset.max(earlier.unwrap_or(0)).saturating_add(space_of(job, &path)?)
        }
        _ if earlier > Some(0) => return Ok(None),
        _ => {
            return refused(&format!(
                "{} does not exist or is empty; give --size to create it",
                path.display()
            ));
        }
    };
    if earlier >= Some(needed) {
        return Ok(None);
    }
    if earlier.is_none() && job.files.must_exist {
        return refused(&format!(
            "{} does not exist, and --allow_file_create=0 forbids creating it",
            path.display()
        ));
    }
    let fills = !job.files.create_on_open;
    let allocates = fills && job.files.fallocate.allocates();
    let filled_in = fills_file.then_some(job.stage);
    let read = fills && !fills_file && job.rw.has(Direction::Read);
    let id = FileId::of(&path);
    Ok(Some(Missing {
        job: job.name.clone(),
        clone: target.clone,
        path,
        id,
        earlier,
        needed,
        laid_out: if fills_file { 0 } else { needed },
        read,
        allocates,
        filled_in,
        folders: Vec::new(),
        touched: false,
    }))
}

/// Returns the bytes that a job with `fill_device` may write to a file.
fn space_of(job: &Job, path: &Path) -> Result<u64, Failure> {
    let refused = |why: String| Err(Failure::Run(format!("{}: {why}", job.name)));
    let path_text = path.display();
    if job.rw.has(Direction::Read) {
        return refused(format!(
            "--fill_device makes {path_text} as long as there is space, so there is nothing to \
             read; give --size, or use an --rw that only writes"
        ));
    }
    match filling::free_bytes(path, job.bs_max()) {
        Ok(bytes) => Ok(bytes),
        Err(error) => refused(format!("cannot get the free space for {path_text}: {error}")),
    }
}

#[cfg(test)]
mod tests;
