//! Fuzzes the job-file parser: no text makes it panic, hang or allocate much memory.
//!
//! Lines with a name between two `@`, such as `@b@`, divide the input into files. So a file can
//! include other files, and itself as `a`.

#![no_main]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use forebay_fio::host::Host;
use forebay_fio::jobfile;
use libfuzzer_sys::fuzz_target;

struct Files(HashMap<PathBuf, Vec<u8>>);

impl Host for Files {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn variable(&self, name: &str) -> Option<String> {
        // Each name has a different value, and some have none.
        (name.len() % 3 > 0).then(|| name.repeat(name.len() % 7))
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

fuzz_target!(|text: &[u8]| {
    let mut files = HashMap::new();
    let mut name = PathBuf::from("a");
    let mut contents = Vec::new();
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let words: Vec<_> = line.trim_ascii().split(|&byte| byte == b'@').collect();
        match words[..] {
            [b"", other, b""] => {
                let next = PathBuf::from(String::from_utf8_lossy(other).into_owned());
                let old = std::mem::replace(&mut name, next);
                files.insert(old, std::mem::take(&mut contents));
            }
            _ => contents.extend_from_slice(line),
        }
    }
    files.insert(name, contents);
    match jobfile::parse(Path::new("a"), &mut Files(files)) {
        Ok(command) => assert!(!command.jobs.is_empty()),
        // Formatting the message, with its caret, is part of the test.
        Err(error) => assert!(error.to_string().len() < 64 << 10),
    }
});
