//! What the tests of the library share: scratch files, and a small stream of numbers.

// Each test file is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub)]

use forebay::{BioQueue, Completion, Disk, Io};
use std::path::PathBuf;

/// A scratch file on the file system of the build, where direct I/O works.
#[derive(Debug)]
pub struct Scratch {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scratch {
    pub fn new(len: u64) -> Scratch {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
        let path = folder.path().join("disk.img");
        let file = std::fs::File::create(&path).expect("a scratch file");
        file.set_len(len).expect("room for a scratch file");
        Scratch { path, _folder: folder }
    }

    /// The spec of this file with these keys.
    pub fn spec(&self, keys: &str) -> String {
        format!("{}?{keys}", self.path.display())
    }
}

/// A stream of numbers: SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub fn open(spec: &str) -> Disk {
    Disk::open(spec).unwrap_or_else(|error| panic!("{error}"))
}

pub fn submit(queue: &mut BioQueue, io: Io) {
    queue.submit(io).unwrap_or_else(|error| panic!("{error}"));
}

/// Reaps everything that is in the layer, in the order of ending.
pub fn reap_all(queue: &mut BioQueue) -> Vec<Completion> {
    let mut done = Vec::new();
    while !queue.is_empty() {
        queue.reap(1, usize::MAX, &mut done);
    }
    done
}
