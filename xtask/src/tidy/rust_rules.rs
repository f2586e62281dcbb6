//! Rules for Rust files that neither the compiler nor clippy checks.

use super::files::SourceFile;
use super::finding::Finding;

/// Two files fit side by side on a screen. rustfmt limits code; this limits comments and strings.
const LINE_COLUMNS_MAX: usize = 100;

/// A file has one concept, and a longer one has two. All lines count, including tests: tests that
/// outgrow a file move to `module/tests.rs`.
const FILE_LINES_MAX: usize = 700;

/// Unit tests at the end of a file have at most this many lines. Longer ones are in `tests.rs`, in
/// the folder of the module, so that a reader of the module need not pass them.
const INLINE_TESTS_MAX: usize = 100;

/// Notes to self. The words are split, so that this file does not break its own rule.
const LEFTOVER_NOTES: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];

/// The one random number generator of the models and the simulator. Its streams are part of the
/// meaning of a seed, so these crates draw from no other.
const GENERATOR: &str = "crates/forebay-model/src/random.rs";

/// The crates to which that applies.
const DRAWS_FROM_GENERATOR: &[&str] = &["crates/forebay-model/", "crates/forebay-sim/"];

/// Multipliers of other generators, in lower case and without underscores: those of Knuth, of
/// Numerical Recipes, of xorshift64*, and of SplitMix64.
const MULTIPLIERS: &[&str] =
    &["6364136223846793005", "1664525", "0x2545f4914f6cdd1d", "0xbf58476d1ce4e5b9"];

/// First words of a name without a subject.
const FREE_RELATIVES: &[&str] = &["who", "whoever", "whom", "whose", "what", "whatever"];

/// Words of a name that stand for a thread, a bio or a component, or for a return value.
const VAGUE_WORDS: &[&str] =
    &["nobody", "somebody", "everybody", "anybody", "tell", "tells", "told"];

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let Some(text) = &file.text else {
        let advice = "not UTF-8; Rust source must be".to_string();
        return vec![Finding::new(&file.path, 0, "encoding", advice)];
    };
    let mut findings = Vec::new();
    findings.extend(module_doc(&file.path, text));
    findings.extend(file_length(&file.path, text));
    findings.extend(inline_tests(&file.path, text));
    findings.extend(text.lines().enumerate().flat_map(|(at, line)| {
        let columns = line_length(&file.path, at, line);
        let notes = leftover(&file.path, at, line);
        columns
            .into_iter()
            .chain(notes)
            .chain(generator(&file.path, at, line))
            .chain(function_name(&file.path, at, line))
    }));
    findings
}

fn module_doc(path: &str, text: &str) -> Option<Finding> {
    let parts: Vec<&str> = path.split('/').collect();
    let in_src = matches!(parts[..], ["crates", _, "src", ..] | [_, "src", ..]);
    let advice = "begin the file with a `//!` comment that says what it holds, and why";
    (in_src && !text.starts_with("//!"))
        .then(|| Finding::new(path, 0, "module-doc", advice.to_string()))
}

fn file_length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let advice = || format!("{lines} lines, more than {FILE_LINES_MAX}; split it by concept");
    (lines > FILE_LINES_MAX).then(|| Finding::new(path, 0, "file-length", advice()))
}

fn inline_tests(path: &str, text: &str) -> Option<Finding> {
    let at = text.lines().position(|line| line == "mod tests {")?;
    let lines = text.lines().skip(at + 1).take_while(|line| *line != "}").count();
    let advice =
        || format!("unit tests of {lines} lines, more than {INLINE_TESTS_MAX}; move to `tests.rs`");
    (lines > INLINE_TESTS_MAX).then(|| Finding::new(path, at, "inline-tests", advice()))
}

fn line_length(path: &str, at: usize, line: &str) -> Option<Finding> {
    let columns = line.chars().count();
    let advice = || format!("{columns} columns, more than {LINE_COLUMNS_MAX}; wrap it");
    (columns > LINE_COLUMNS_MAX).then(|| Finding::new(path, at, "line-length", advice()))
}

fn leftover(path: &str, at: usize, line: &str) -> Option<Finding> {
    let note = LEFTOVER_NOTES.iter().find(|note| line.contains(**note))?;
    let advice = format!("`{note}`: settle it, or open an issue and say why it can wait");
    Some(Finding::new(path, at, "leftover", advice))
}

fn generator(path: &str, at: usize, line: &str) -> Option<Finding> {
    if path == GENERATOR || !DRAWS_FROM_GENERATOR.iter().any(|crate_of| path.starts_with(crate_of))
    {
        return None;
    }
    let line = line.replace('_', "").to_lowercase();
    let is_other = MULTIPLIERS.iter().any(|multiplier| line.contains(multiplier));
    let advice = || format!("a second random number generator; use the one in {GENERATOR}");
    is_other.then(|| Finding::new(path, at, "generator", advice()))
}

/// Checks that the name of a function has a concrete subject.
fn function_name(path: &str, at: usize, line: &str) -> Option<Finding> {
    let (before, rest) = line.split_once("fn ")?;
    if !before.chars().all(|c| c.is_ascii_lowercase() || matches!(c, ' ' | '(' | ')')) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let words: Vec<&str> = rest[..end].split('_').collect();
    let is_free = words.first().is_some_and(|first| FREE_RELATIVES.contains(first));
    let vague = words.iter().find(|word| VAGUE_WORDS.contains(word));
    let word = vague.copied().or(words.first().filter(|_| is_free).copied())?;
    let advice = format!("`{word}` in the name of a function: name the thread, bio or component");
    Some(Finding::new(path, at, "function-name", advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which rules a file breaks.
    fn check_rules(path: &str, text: &str, expected: &[&str]) {
        let file = SourceFile {
            path: path.to_string(),
            text: Some(text.to_string()),
            len_bytes: text.len() as u64,
            executable: false,
        };
        let rules: Vec<String> = check(&file).iter().map(|finding| finding.to_string()).collect();
        assert_eq!(rules.len(), expected.len(), "{rules:?}");
        for (rule, name) in rules.iter().zip(expected) {
            assert!(rule.contains(&format!(" {name}: ")), "{rule}");
        }
    }

    #[test]
    fn a_source_file_begins_with_its_description() {
        check_rules("crates/a/src/b.rs", "//! Says it.\n", &[]);
        check_rules("crates/a/src/b.rs", "fn f() {}\n", &["module-doc"]);
        check_rules("crates/a/examples/b.rs", "fn f() {}\n", &[]);
    }

    #[test]
    fn models_and_simulator_have_one_random_number_generator() {
        let text = "//! Draws.\nconst BY: u64 = 0x2545_F491_4F6C_DD1D;\n";
        check_rules("crates/forebay-sim/src/b.rs", text, &["generator"]);
        check_rules("crates/forebay-fio/src/b.rs", text, &[]);
        check_rules(GENERATOR, text, &[]);
    }

    #[test]
    fn names_of_functions_have_a_subject() {
        let check_name =
            |name: &str, rules| check_rules("a/b.rs", &format!("    fn {name}() {{\n"), rules);
        check_name("a_short_read_is_continued", &[]);
        check_name("written_data_is_what_a_read_returns", &[]);
        check_name("what_was_written_is_read", &["function-name"]);
        check_name("the_worker_is_told", &["function-name"]);
        check_rules("a/b.rs", "// A comment with fn what_is_a_comment\n", &[]);
    }

    #[test]
    fn lines_files_and_notes_have_limits() {
        let long = format!("//! {}\n", "a".repeat(LINE_COLUMNS_MAX));
        check_rules("a/src/b.rs", &long, &["line-length"]);
        let many = format!("//! Many.\n{}", "\n".repeat(FILE_LINES_MAX));
        check_rules("a/src/b.rs", &many, &["file-length"]);
        let tests = format!("//! Tested.\nmod tests {{\n{}}}\n", "\n".repeat(INLINE_TESTS_MAX + 1));
        check_rules("a/src/b.rs", &tests, &["inline-tests"]);
        check_rules("a/src/b.rs", &tests.replacen("{\n\n", "{\n", 1), &[]);
        let note = format!("//! A note.\n// {}: later\n", LEFTOVER_NOTES[0]);
        check_rules("a/src/b.rs", &note, &["leftover"]);
    }
}
