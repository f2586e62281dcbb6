//! Paths of the tree that Markdown files name, such as `core/wait/mod.rs`.
//!
//! Documentation omits `crates/forebay-` and may omit `src`, or any directories in front. A path is
//! stale if no file ends like it.

use std::collections::HashSet;

use super::files::SourceFile;
use super::finding::Finding;

/// Endings of the paths that are checked.
const ENDINGS: [&str; 4] = [".rs", ".md", ".toml", ".sh"];

/// The changelog names files as they were.
const EXEMPT: &str = "CHANGELOG.md";

/// Returns a finding for each stale path.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let known = known(files);
    let pages = files.iter().filter(|file| file.path.ends_with(".md") && file.path != EXEMPT);
    let mut findings = Vec::new();
    for (page, text) in pages.filter_map(|page| Some((page, page.text.as_ref()?))) {
        for (at, line) in text.lines().enumerate() {
            let stale = paths(line).filter(|path| !known.contains(*path));
            findings.extend(stale.map(|path| {
                let advice = format!("no file of the tree ends with {path}; name the one it means");
                Finding::new(&page.path, at, "stale-path", advice)
            }));
        }
    }
    findings
}

/// Returns all names of the files: whole paths, short forms, and their ends.
fn known(files: &[SourceFile]) -> HashSet<String> {
    let mut known = HashSet::new();
    for path in files.iter().map(|file| &file.path) {
        let mut add = |name: &str| {
            known.insert(name.to_string());
            known.extend(name.match_indices('/').map(|(at, _)| name[at + 1..].to_string()));
        };
        add(path);
        let Some((name, rest)) = path.strip_prefix("crates/").and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        let name = name.strip_prefix("forebay-").unwrap_or(name);
        add(&format!("{name}/{rest}"));
        if let Some(rest) = rest.strip_prefix("src/") {
            add(&format!("{name}/{rest}"));
        }
    }
    known
}

/// Returns the paths in backquotes with at least one directory.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        text.contains('/')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
            && !text.starts_with(['/', '.'])
            && ENDINGS.iter().any(|ending| text.ends_with(ending))
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::places;
    use super::*;

    #[test]
    fn stale_paths_are_found_and_short_forms_are_not() {
        let page = "`core/wait/mod.rs`, `core/src/wait/mod.rs`, `wait/mod.rs`, `a b/c.rs`\n\
                    `core/wait/gone.rs` and `/etc/fstab.sh`\n";
        let files = [
            SourceFile::of("PAGE.md", page),
            SourceFile::of("CHANGELOG.md", "`gone/file.rs`\n"),
            SourceFile::of("crates/forebay-core/src/wait/mod.rs", "\n"),
        ];
        assert_eq!(places(&check(&files)), [("stale-path", 2)]);
    }
}
