//! Corpora in the checkout: inputs that earlier runs have found, as text.
//!
//! A file has hexadecimal lines, an empty line between two inputs, and comments. This module writes
//! it, and the targets read it (`fuzz/src/lib.rs`).

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::command::root;

/// Maximum length of a kept input in bytes: short inputs reach nearly as much, and are readable.
const LEN_MAX: usize = 96;
/// Maximum number of kept inputs from libFuzzer's merge, spread evenly over all lengths.
const NR_MAX: usize = 256;
/// Number of bytes in a line.
const LINE_BYTES: usize = 48;

/// Returns the path of a target's corpus, relative to the root.
pub(super) fn file(target: &str) -> PathBuf {
    PathBuf::from(format!("fuzz/corpus-seeds/{target}.hex"))
}

/// Writes the corpus of a target: the fewest inputs of its runs with the same coverage.
pub(super) fn save(program: &Path, place: &Path, target: &str) -> Outcome {
    let merged = place.join("merged");
    let failed = |error| format!("fuzz {target} works in {}: {error}", place.display());
    if merged.exists() {
        fs::remove_dir_all(&merged).map_err(failed)?;
    }
    fs::create_dir_all(&merged).map_err(failed)?;
    let mut command = Command::new(program);
    command.current_dir(root()).args(["-merge=1".to_owned(), format!("-max_len={LEN_MAX}")]);
    command.arg(&merged).args(["corpus", "seeds"].map(|name| place.join(name)));
    command.env("FOREBAY_FUZZ_SEEDS", place.join("seeds"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(failed)?;
    if !status.success() {
        return Err(format!("fuzz {target}: the merge of its corpus ended with {status}"));
    }
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&merged).map_err(failed)? {
        inputs.push(fs::read(entry.map_err(failed)?.path()).map_err(failed)?);
    }
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    let inputs = spread(&inputs, NR_MAX);
    let (nr, file) = (inputs.len(), root().join(file(target)));
    fs::write(&file, text(target, &inputs))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    println!("fuzz {target}: {nr} inputs in {}", file.display());
    Ok(())
}

/// Returns at most `nr_max` of the inputs, evenly spread.
fn spread(inputs: &[Vec<u8>], nr_max: usize) -> Vec<Vec<u8>> {
    let nr = inputs.len().min(nr_max);
    (0..nr).map(|nth| inputs[nth * inputs.len() / nr].clone()).collect()
}

/// Returns a corpus as text.
fn text(target: &str, inputs: &[Vec<u8>]) -> String {
    let mut text = format!(
        "# Inputs of {target}, in hexadecimal, the shortest first.\n\
         # `cargo xtask fuzz corpus` writes this file.\n"
    );
    for input in inputs.iter().filter(|input| !input.is_empty()) {
        text.push('\n');
        for line in input.chunks(LINE_BYTES) {
            line.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string takes all"));
            text.push('\n');
        }
    }
    text
}

/// Parses the inputs of such a text.
#[cfg(test)]
pub(super) fn inputs(text: &str) -> Option<Vec<Vec<u8>>> {
    let digits = text.split("\n\n").map(|paragraph| {
        let lines = paragraph.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<String>()
    });
    let bytes = |digits: String| -> Option<Vec<u8>> {
        let pairs = digits.as_bytes().chunks(2);
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
    };
    digits.filter(|digits| !digits.is_empty()).map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::{inputs, spread, text};

    #[test]
    fn kept_inputs_are_spread_over_the_corpus() {
        let all: Vec<Vec<u8>> = (0..10).map(|byte| vec![byte]).collect();
        assert_eq!(spread(&all, 5), [[0], [2], [4], [6], [8]]);
        assert_eq!(spread(&all, 20), all);
        assert_eq!(spread(&[], 5), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_corpus_that_was_written_reads_the_same() {
        let all = vec![vec![0], vec![1, 0xff], (0..=95).collect()];
        let text = text("any", &all);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(inputs(&text), Some(all));
        assert_eq!(inputs("# nothing\n"), Some(vec![]));
    }
}
