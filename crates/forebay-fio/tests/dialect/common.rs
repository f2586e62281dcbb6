//! Running fio, the corpus, and files in memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forebay_fio::host::Host;

/// Returns the folder of the job files.
pub(crate) fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Lists the job files by name. `.inc` files are only included by others.
pub(crate) fn corpus() -> BTreeMap<String, Vec<u8>> {
    let folder = std::fs::read_dir(corpus_folder()).expect("the corpus");
    let files = folder.map(|entry| entry.expect("an entry").path()).map(|path| {
        let name = path.file_name().and_then(OsStr::to_str).expect("a name").to_owned();
        (name, std::fs::read(&path).expect("a file"))
    });
    files.collect()
}

/// Runs fio. `None` without fio: then the test is skipped.
pub(crate) fn fio(test: &str, args: &[&str]) -> Option<Output> {
    let output = Command::new("fio")
        .args(args)
        .current_dir(corpus_folder())
        .env("FOREBAY_SIZE", "1m")
        .env_remove("FOREBAY_UNSET")
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            crate::skip::skip(test, "fio is not installed");
            None
        }
        Err(error) => panic!("{test}: fio: {error}"),
    }
}

/// A host whose files are in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Host for Memory {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let found = path.to_str().and_then(|name| self.files.get(name));
        found.cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "FOREBAY_SIZE").then(|| "1m".to_owned())
    }

    fn page_size_bytes(&self) -> u64 {
        4096
    }

    fn memory_mib(&self) -> u64 {
        1024
    }

    fn nr_cpus(&self) -> u64 {
        2
    }
}
