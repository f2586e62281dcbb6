//! The environment of job files: files, variables and properties of the machine. This crate does no
//! I/O itself.

use std::io;
use std::path::Path;

/// Access to files and to the machine, implemented by the caller.
pub trait Host {
    /// Returns the contents of the file at `path`, or of standard input if the path is `-`.
    ///
    /// # Errors
    ///
    /// The error of the system; [`io::ErrorKind::NotFound`] if the file does not exist.
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns an environment variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns `$pagesize`: the page size, bytes.
    fn page_size_bytes(&self) -> u64;

    /// Returns `$mb_memory`: the size of main memory, MiB.
    fn memory_mib(&self) -> u64;

    /// Returns `$ncpus`: the number of processors online.
    fn nr_cpus(&self) -> u64;
}

/// A host without files and variables, for command lines without job files.
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
