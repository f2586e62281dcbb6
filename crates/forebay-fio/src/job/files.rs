//! The files of a job: their names, sizes, and the parts that a clone uses.
//!
//! Source: fio's HOWTO and fio 3.33, the options `directory`, `filename`, `filename_format`,
//! `nrfiles`, `filesize`, `file_append`, `offset_increment`. `size` is divided evenly among the
//! files of a job; `filesize` is the size of each, or a range from which each is drawn.

use crate::generator::Region;
use crate::generator::files::Service;
use crate::job::Job;
use crate::random::Xoshiro256;
use crate::units::Size;

/// How the space of new files is allocated: `fallocate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fallocate {
    /// Before the start, if the file system can do that: `native` and `posix`.
    #[default]
    Extend,
    /// Before the start, without a change of the length: `keep`.
    KeepLength,
    /// When it is written; the file gets its length before the start: `truncate`.
    Truncate,
    /// When it is written: `none`.
    No,
}

impl Fallocate {
    /// Returns whether space is allocated before the start.
    pub fn allocates(self) -> bool {
        matches!(self, Self::Extend | Self::KeepLength)
    }

    /// Returns whether the file gets its length before the start, even if a job only writes.
    pub fn sets_length(self) -> bool {
        matches!(self, Self::Extend | Self::Truncate)
    }
}

/// The options about files; see [`Job`] for the defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileOptions {
    /// `directory`: directories for the files, separated by colons.
    pub directory: Option<String>,
    /// `filename_format`: the form of generated names.
    pub format: Option<String>,
    /// `nrfiles`: the number of files with generated names.
    pub nrfiles: Option<u32>,
    /// `filesize`: bytes of each file, smallest and largest.
    pub filesize: Option<(u64, u64)>,
    /// `openfiles`: the number of files that the job uses at a time.
    pub openfiles: Option<u32>,
    /// `file_service_type`: the file of the next I/O.
    pub service: Service,
    /// `opendir`: a directory whose files the job uses.
    pub opendir: Option<String>,
    /// `unlink`: whether the files are removed when the last clone of the job ends. If a job that
    /// begins later uses a file, the `unlink` of that job decides.
    pub unlink: bool,
    /// `create_on_open`: whether new files are created without data.
    pub create_on_open: bool,
    /// Whether a missing file is an error: `allow_file_create=0`.
    pub must_exist: bool,
    /// `file_append`: whether the job's part begins at the end of the file.
    pub append: bool,
    /// `offset_increment`: bytes to add to the offset for each clone.
    pub offset_increment: Option<Size>,
    /// `fallocate`.
    pub fallocate: Fallocate,
}

/// The part of a file or device that a clone asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The start.
    pub offset: Size,
    /// Bytes to add to the start, and how often.
    pub increment: (Size, u32),
    /// The length; `None`: the rest of the file or device.
    pub size: Option<Size>,
}

impl FileOptions {
    /// Returns the warnings about options without effect beside this filename.
    pub(super) fn warnings(&self, filename: Option<&str>) -> Vec<String> {
        let Some(filename) = filename else { return Vec::new() };
        let nr = self.nrfiles.filter(|&nr| split_names(filename).len() != nr as usize);
        let void = [
            nr.map(|nr| format!("--nrfiles={nr}")),
            self.format.as_ref().map(|format| format!("--filename_format={format}")),
        ];
        let warning = |option| format!("{option} has no effect: --filename names the files");
        void.into_iter().flatten().map(warning).collect()
    }
}

impl Extent {
    /// Returns the first byte, in a file or device of `capacity` bytes.
    pub fn start(&self, capacity: u64) -> u64 {
        let (increment, times) = self.increment;
        let more = increment.of(capacity).saturating_mul(times.into());
        self.offset.of(capacity).saturating_add(more)
    }

    /// Returns the first byte of the part. A percentage seldom hits a block, so as in fio, the next
    /// one is used. An offset in bytes is taken as it is.
    pub(super) fn aligned_start(&self, capacity: u64, bs: u32) -> u64 {
        let start = self.start(capacity);
        self.fixed_start().unwrap_or(start.next_multiple_of(bs.into()))
    }

    /// Replaces a length that depends on that of the file, which is `capacity`. The start must be a
    /// number of bytes. In an empty file, the length stays as it is.
    #[must_use]
    pub fn with_fixed_size(self, capacity: u64) -> Self {
        let Some(start) = self.fixed_start().filter(|&start| start < capacity) else { return self };
        let len = match self.size {
            None | Some(Size::Bytes(0)) => capacity,
            Some(Size::Bytes(_)) => return self,
            Some(percent) => percent.of(capacity),
        };
        Self { size: Some(Size::Bytes(len.min(capacity - start))), ..self }
    }

    /// Returns the first byte, if it does not depend on the length of the file or device.
    pub fn fixed_start(&self) -> Option<u64> {
        let is_fixed = |size: Size| matches!(size, Size::Bytes(_));
        (is_fixed(self.offset) && is_fixed(self.increment.0)).then(|| self.start(0))
    }

    /// Returns the byte behind the last one, if it does not depend on the length of the file or
    /// device.
    pub fn fixed_end(&self) -> Option<u64> {
        match self.size? {
            Size::Bytes(size) => self.fixed_start().map(|start| start.saturating_add(size)),
            _ => None,
        }
    }
}

/// Splits a list of names at its colons. A colon in a name is written `\:`.
pub fn split_names(list: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        let last = names.len() - 1;
        match c {
            '\\' if chars.next_if_eq(&':').is_some() => names[last].push(':'),
            ':' => names.push(String::new()),
            _ => names[last].push(c),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

impl Job {
    /// Returns the files of clone `clone` in a job without a filename: `name.clone.0` and further
    /// ones as in fio, or in the form of `filename_format`.
    pub fn default_filenames(&self, clone: u32) -> Vec<String> {
        let name = |file: u32| match &self.files.format {
            None => format!("{}.{clone}.{file}", self.name),
            Some(format) => format
                .replace("$jobname", &self.name)
                .replace("$jobnum", &clone.to_string())
                .replace("$filenum", &file.to_string())
                .replace("$clientuid", ""),
        };
        (0..self.files.nrfiles.unwrap_or(1)).map(name).collect()
    }

    /// Returns the directory of the files of clone `clone`, if one was given. As in fio, clones
    /// take turns with generated names only.
    pub fn directory(&self, clone: u32) -> Option<String> {
        let mut all = split_names(self.files.directory.as_deref()?);
        let at = if self.filename.is_some() { 0 } else { clone as usize % all.len().max(1) };
        (at < all.len()).then(|| all.swap_remove(at))
    }

    /// Returns the part of file number `file` that clone `clone` asks for. The clone has `nr_files`
    /// files, and this one has `length` bytes, if it is a regular file; a new one has none. The
    /// part of a regular file starts at a number of bytes.
    pub fn extent(&self, clone: u32, file: u32, nr_files: u32, length: Option<u64>) -> Extent {
        if let Some(extent) = self.extent_of_replay(file) {
            return extent;
        }
        let offset = match self.files.append {
            true => Size::Bytes(length.unwrap_or(0)),
            false => self.offset,
        };
        let increment = match self.files.append {
            true => Size::Bytes(0),
            false => self.files.offset_increment.unwrap_or(Size::Bytes(0)),
        };
        let times = if increment == Size::Bytes(0) { 0 } else { clone };
        let mut extent = Extent { offset, increment: (increment, times), size: self.size };
        if let Some(length) = length {
            extent.offset = Size::Bytes(extent.aligned_start(length, self.smallest_size()));
            extent.increment = (Size::Bytes(0), 0);
        }
        extent.size = match (self.files.filesize, self.size) {
            (Some((low, high)), _) => {
                let whole = match length {
                    Some(len) if (low..=high).contains(&len) => len,
                    _ => self.drawn_filesize(low, high, clone, file),
                };
                Some(Size::Bytes(whole.saturating_sub(extent.start(whole)).max(1)))
            }
            (None, Some(Size::Bytes(bytes))) if bytes > 0 => {
                Some(Size::Bytes((bytes / u64::from(nr_files)).max(1)))
            }
            (None, size) => size,
        };
        extent
    }

    /// Returns the size of a file in the range of `filesize`. Like fio's, it is a multiple of the
    /// block size.
    fn drawn_filesize(&self, low: u64, high: u64, clone: u32, file: u32) -> u64 {
        /// Keeps these draws apart from those of offsets.
        const DRAWS_KEY: u64 = 0x6669_6c65_0000_0001;
        if low == high {
            return low;
        }
        let stream = u64::from(clone) << 32 | u64::from(file);
        let mut draws = Xoshiro256::new(self.randseed ^ DRAWS_KEY, stream);
        let drawn = low + draws.below((high - low).saturating_add(1));
        (drawn - drawn % u64::from(self.bs)).max(low)
    }

    /// Returns the bytes of one pass over these parts. With `filesize` or zones, `size` is a limit.
    pub fn pass_bytes(&self, regions: &[Region]) -> u64 {
        let total = regions.iter().map(|region| region.len).sum();
        let limit = match (self.files.filesize, self.size) {
            (Some(_), Some(Size::Bytes(size))) => Some(size),
            (None, Some(size)) if self.has_zones() => {
                // Regions with zones extend to the end.
                let whole = regions.iter().map(|region| region.offset + region.len).sum();
                Some(size.of(whole))
            }
            _ => None,
        };
        limit.filter(|&bytes| bytes > 0).map_or(total, |bytes| bytes.min(total))
    }
}

#[cfg(test)]
mod tests;
