//! Rules for every file, whatever its language.

use super::files::SourceFile;
use super::finding::Finding;

/// A clone stays small only if nothing large ever enters: git never forgets a blob.
const BLOB_BYTES_MAX: u64 = 200 * 1024;

/// Written by a tool, and as long as the dependencies demand.
const BLOB_EXEMPT: &[&str] = &["Cargo.lock"];

/// First directories of paths that exist on one machine only. Named without the leading slash, so
/// that this file does not break its own rule.
const PRIVATE_ROOTS: &[&str] = &["root", "work", "home"];

/// What may stand before an absolute path; after anything else a slash continues a word.
const BEFORE_PATH: &[char] = &[' ', '"', '\'', '`', '(', '[', '{', '<', '=', ':', ',', ';', '|'];

/// Directories of recorded output of other programs: kept byte for byte, blanks included.
const RECORDED: &[&str] = &["recorded", "corpus"];

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = file_rules(file);
    if let Some(text) = &file.text {
        // Not `lines`, which would hide a carriage return.
        let lines = text.split_terminator('\n').enumerate();
        findings.extend(lines.flat_map(|(at, line)| line_rules(file, at, line)));
    }
    findings
}

fn file_rules(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.len_bytes > BLOB_BYTES_MAX && !BLOB_EXEMPT.contains(&file.path.as_str()) {
        let advice = format!(
            "{} bytes, more than {BLOB_BYTES_MAX}; generate it, or shrink it",
            file.len_bytes
        );
        findings.push(Finding::new(&file.path, 0, "blob", advice));
    }
    let is_script = file.text.as_ref().is_some_and(|text| text.starts_with("#!/"));
    if file.executable && !is_script {
        let advice = "executable, but no script: `chmod -x` it".to_string();
        findings.push(Finding::new(&file.path, 0, "mode", advice));
    }
    if file.text.as_ref().is_some_and(|text| !text.is_empty() && !text.ends_with('\n')) {
        let advice = "the last line does not end; add a newline".to_string();
        findings.push(Finding::new(&file.path, 0, "last-line", advice));
    }
    findings
}

fn line_rules(file: &SourceFile, at: usize, line: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |rule, advice: String| {
        findings.push(Finding::new(&file.path, at, rule, advice));
    };
    if let Some(path) = private_path(line) {
        find("private-path", format!("{path} exists on one machine only; use a relative path"));
    }
    if is_recorded(&file.path) {
        return findings;
    }
    if line.contains('\t') {
        find("tab", "indent with spaces; write a tab inside a string as an escape".to_string());
    }
    if line.ends_with([' ', '\t', '\r']) {
        find("trailing-blank", "remove the blanks at the end of the line".to_string());
    }
    findings
}

fn is_recorded(path: &str) -> bool {
    path.split('/').any(|directory| RECORDED.contains(&directory))
}

/// The first directory of a machine-bound absolute path in the line, if there is one.
fn private_path(line: &str) -> Option<String> {
    line.match_indices('/').find_map(|(at, _)| {
        let starts = line[..at].chars().next_back().is_none_or(|c| BEFORE_PATH.contains(&c));
        let rest = &line[at + 1..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
        let name = &rest[..end.unwrap_or(rest.len())];
        (starts && PRIVATE_ROOTS.contains(&name)).then(|| format!("/{name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::places;
    use super::{BLOB_BYTES_MAX, SourceFile, check, private_path};

    #[test]
    fn clean_text_has_no_finding() {
        assert!(check(&SourceFile::of("a.md", "One line.\n\nAnother.\n")).is_empty());
        assert!(check(&SourceFile::of("empty", "")).is_empty());
    }

    #[test]
    fn blanks_are_found_with_their_line() {
        let file = SourceFile::of("a.md", "fine\n\tindented\nblank at the end \ndos\r\n");
        assert_eq!(
            places(&check(&file)),
            [("tab", 2), ("trailing-blank", 3), ("trailing-blank", 4)]
        );
    }

    #[test]
    fn recorded_output_keeps_its_blanks() {
        let file = SourceFile::of("crates/forebay-fio/tests/recorded/a.txt", "a\tb \n");
        assert!(check(&file).is_empty());
    }

    #[test]
    fn a_last_line_without_an_end_is_found() {
        assert_eq!(places(&check(&SourceFile::of("a.md", "text"))), [("last-line", 1)]);
    }

    #[test]
    fn large_files_are_found_but_for_the_lock_file() {
        let mut file = SourceFile::of("disk.bin", "");
        file.len_bytes = BLOB_BYTES_MAX;
        assert!(check(&file).is_empty());
        file.len_bytes += 1;
        assert_eq!(places(&check(&file)), [("blob", 1)]);
        file.path = "Cargo.lock".to_string();
        assert!(check(&file).is_empty());
    }

    #[test]
    fn only_scripts_are_executable() {
        let mut file = SourceFile::of("run", "#!/bin/sh\n");
        file.executable = true;
        assert!(check(&file).is_empty());
        // An inner attribute of Rust begins almost like a script.
        file.text = Some("#![no_std]\n".to_string());
        assert_eq!(places(&check(&file)), [("mode", 1)]);
    }

    #[test]
    fn absolute_paths_of_one_machine_are_found() {
        for root in ["root", "work", "home"] {
            let path = format!("/{root}");
            for line in [format!("{path}/x"), format!("see `{path}`."), format!("file:{path}/d")] {
                assert_eq!(private_path(&line).as_ref(), Some(&path), "{line}");
            }
            for line in [format!("a{path}/x"), format!("{path}bench/x"), format!(".{path}")] {
                assert_eq!(private_path(&line), None, "{line}");
            }
        }
        assert_eq!(private_path("https://example.invalid/a /dev/vdb /tmp/x"), None);
    }
}
