//! Code shared by the fuzz targets: seeds, and a record of the features that a run has reached.
//!
//! A fuzzer that never reaches the interesting code finds no bugs and appears to succeed. So a
//! target names the features that a run must reach, and `cargo xtask fuzz` fails if one is missing.
//! It sets two variables. `FOREBAY_FUZZ_SEEDS` is a directory for the target's seeds and corpus.
//! `FOREBAY_FUZZ_REACH` is a file that gets a line `want NAME` for each named feature, and a line
//! `got NAME` for each feature reached.

pub mod front_end;

use std::cell::RefCell;
use std::collections::HashSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// A kind of feature, and an index within that kind.
pub type Feature = (&'static str, u64);

thread_local! {
    static REACHED: RefCell<HashSet<Feature>> = RefCell::default();
}

/// Records the wanted features, and writes the seeds and the corpus. `corpus` is the text of a file
/// in `corpus-seeds/`. Call it once, before the first input.
pub fn start(wanted: &[Feature], seeds: &[Vec<u8>], corpus: &str) {
    if let Some(folder) = env::var_os("FOREBAY_FUZZ_SEEDS") {
        let write = |name: String, input: &[u8]| {
            fs::write(Path::new(&folder).join(name), input).unwrap();
        };
        for (index, seed) in seeds.iter().enumerate() {
            write(format!("seed-{index:03}"), seed);
        }
        for (index, input) in inputs(corpus).enumerate() {
            write(format!("corpus-{index:04}"), &input);
        }
    }
    wanted.iter().for_each(|feature| note("want", *feature));
}

/// Parses the inputs of a corpus: hexadecimal, separated by empty lines; `#` begins a comment.
fn inputs(corpus: &str) -> impl Iterator<Item = Vec<u8>> {
    let digits = corpus.split("\n\n").map(|paragraph| {
        let lines = paragraph.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::trim).collect::<String>()
    });
    digits.filter(|digits| !digits.is_empty()).map(|digits| {
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.map(byte).collect()
    })
}

/// Records that this input reached a feature. Writes each feature once.
pub fn reach(kind: &'static str, which: u64) {
    if REACHED.with_borrow_mut(|reached| reached.insert((kind, which))) {
        note("got", (kind, which));
    }
}

fn note(word: &str, (kind, which): Feature) {
    if let Some(file) = env::var_os("FOREBAY_FUZZ_REACH") {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        writeln!(file, "{word} {kind}-{which:x}").unwrap();
    }
}

/// The bytes of an input, as numbers that make choices. Missing bytes are 0.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn number(&mut self, nr_bytes: usize) -> u64 {
        self.bytes(nr_bytes).iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Returns up to `nr` bytes.
    pub fn bytes(&mut self, nr: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(nr.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
