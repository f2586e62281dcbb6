//! What job files need of the world outside, which this crate does not touch itself.

use std::io;
use std::path::Path;

/// The machine and the files, as the caller sees them.
pub trait Host {
    /// The contents of the file at `path`; of standard input, if that is `-`.
    ///
    /// # Errors
    ///
    /// What the system says; [`io::ErrorKind::NotFound`] if there is no such file.
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;

    /// An environment variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// `$pagesize`, bytes.
    fn page_size_bytes(&self) -> u64;

    /// `$mb_memory`: the main memory, MiB.
    fn memory_mib(&self) -> u64;

    /// `$ncpus`: the processors that are online.
    fn nr_cpus(&self) -> u64;
}

/// A host without any file or variable, for command lines that name none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn read(&mut self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::NotFound, "there are no files here"))
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn page_size_bytes(&self) -> u64 {
        4096
    }

    fn memory_mib(&self) -> u64 {
        1024
    }

    fn nr_cpus(&self) -> u64 {
        1
    }
}
