//! Rules for Rust files.

use super::code::{CodeLine, find_word, split};
use super::files::SourceFile;
use super::finding::Finding;
use super::functions::{functions, test_lines};

/// Two files fit side by side on a screen; rustfmt keeps code there, this keeps prose and strings.
const LINE_COLUMNS_MAX: usize = 100;

/// A file is one concept; a longer one holds two. It counts everything, tests too, since tests that
/// outgrow a file move to `module/tests.rs`.
const FILE_LINES_MAX: usize = 700;

/// A function is read in one look: one screen, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Macros that are left over from working, and what belongs in their place.
const LEFTOVER_MACROS: &[(&str, &str)] = &[
    ("todo!", "finish it, or return an error that says what is not supported"),
    ("unimplemented!", "finish it, or return an error that says what is not supported"),
    ("dbg!", "remove it"),
];

/// Notes to self. This rule looks at comments and code but not into strings, so it can name them.
const LEFTOVER_NOTES: &[&str] = &["FIXME", "XXX"];

/// The only files that may hold unsafe code, so that a review of the proofs knows where to look.
/// An entry that ends with a slash stands for a directory.
const UNSAFE_FILES: &[&str] = &[
    "crates/forebay/src/buf.rs",
    "crates/forebay/src/disk.rs",
    "crates/forebay/src/driver/file/",
    "crates/forebay/src/driver/ram.rs",
    "crates/forebay/src/queue.rs",
    "crates/forebay/src/runtime/shared.rs",
    "crates/forebay/tests/no_alloc.rs",
];

/// The crate that must not know std.
const CORE: &str = "crates/forebay-core/src/";

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let Some(text) = &file.text else {
        let advice = "not UTF-8; Rust source must be".to_string();
        return vec![Finding::new(&file.path, 0, "encoding", advice)];
    };
    let lines = split(text);
    let mut findings = Vec::new();
    findings.extend(module_doc(&file.path, text));
    findings.extend(file_length(&file.path, &lines));
    findings.extend(function_length(&file.path, &lines));
    findings.extend(line_length(&file.path, text));
    findings.extend(leftovers(&file.path, &lines));
    findings.extend(unsafe_code(&file.path, &lines));
    findings.extend(std_in_core(&file.path, &lines));
    findings
}

fn module_doc(path: &str, text: &str) -> Option<Finding> {
    let parts: Vec<&str> = path.split('/').collect();
    let in_src = matches!(parts[..], ["crates", _, "src", ..] | ["xtask", "src", ..]);
    let advice = "begin the file with a `//!` comment that says what it holds, and why";
    (in_src && !text.starts_with("//!"))
        .then(|| Finding::new(path, 0, "module-doc", advice.to_string()))
}

fn file_length(path: &str, lines: &[CodeLine]) -> Option<Finding> {
    let advice =
        || format!("{} lines, more than {FILE_LINES_MAX}; split it by concept", lines.len());
    (lines.len() > FILE_LINES_MAX).then(|| Finding::new(path, 0, "file-length", advice()))
}

/// Tests are exempt: a test may tell one long story.
fn function_length(path: &str, lines: &[CodeLine]) -> Vec<Finding> {
    if path.split('/').any(|part| part == "tests" || part == "tests.rs") {
        return Vec::new();
    }
    let is_test = test_lines(lines);
    let finding = |name: &str, first: usize, len: usize| {
        let advice = format!(
            "`{name}` has {len} lines, more than {FUNCTION_LINES_MAX}; give a part of it a name"
        );
        Finding::new(path, first, "function-length", advice)
    };
    functions(lines)
        .into_iter()
        .filter(|function| !is_test[function.first])
        .map(|function| (function.last - function.first + 1, function))
        .filter(|(len, _)| *len > FUNCTION_LINES_MAX)
        .map(|(len, function)| finding(&function.name, function.first, len))
        .collect()
}

fn line_length(path: &str, text: &str) -> Vec<Finding> {
    text.lines()
        .map(|line| line.chars().count())
        .enumerate()
        .filter(|(_, columns)| *columns > LINE_COLUMNS_MAX)
        .map(|(at, columns)| {
            let advice = format!("{columns} columns, more than {LINE_COLUMNS_MAX}; wrap it");
            Finding::new(path, at, "line-length", advice)
        })
        .collect()
}

fn leftovers(path: &str, lines: &[CodeLine]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for (call, instead) in LEFTOVER_MACROS {
            if find_word(&line.code, call).is_some() {
                findings.push(Finding::new(path, at, "leftover", format!("`{call}`: {instead}")));
            }
        }
        for note in LEFTOVER_NOTES {
            if find_word(&line.comment, note).or(find_word(&line.code, note)).is_some() {
                let advice =
                    format!("`{note}`: settle it, or open an issue and say why it can wait");
                findings.push(Finding::new(path, at, "leftover", advice));
            }
        }
    }
    findings
}

fn unsafe_code(path: &str, lines: &[CodeLine]) -> Vec<Finding> {
    let is_allowed = UNSAFE_FILES
        .iter()
        .any(|allowed| *allowed == path || (allowed.ends_with('/') && path.starts_with(allowed)));
    if is_allowed {
        return Vec::new();
    }
    let advice = "unsafe code stays in the files listed in xtask/src/tidy/rust_rules.rs; \
                  call a safe function there";
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| find_word(&line.code, "unsafe").is_some())
        .map(|(at, _)| Finding::new(path, at, "unsafe", advice.to_string()))
        .collect()
}

/// `extern crate std` would make every path to std work again in a `no_std` crate.
fn std_in_core(path: &str, lines: &[CodeLine]) -> Vec<Finding> {
    if !path.starts_with(CORE) {
        return Vec::new();
    }
    let is_test = test_lines(lines);
    let advice = "core is no_std; put `#[cfg(test)]` before it, or do without";
    lines
        .iter()
        .enumerate()
        .filter(|(at, line)| line.code.contains("extern crate std") && !is_test[*at])
        .map(|(at, _)| Finding::new(path, at, "std-in-core", advice.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::places;
    use super::{FILE_LINES_MAX, FUNCTION_LINES_MAX, LINE_COLUMNS_MAX, SourceFile};

    fn check(path: &str, text: &str, expected: &[(&str, usize)]) {
        let findings = super::check(&SourceFile::of(path, text));
        assert_eq!(places(&findings), expected, "{findings:?}");
    }

    #[test]
    fn sources_begin_with_a_module_doc() {
        check("crates/forebay/src/a.rs", "//! What it is.\n", &[]);
        check("crates/forebay/src/a/b.rs", "use x;\n", &[("module-doc", 1)]);
        check("xtask/src/a.rs", "", &[("module-doc", 1)]);
        check("crates/forebay/build.rs", "use x;\n", &[]);
    }

    #[test]
    fn lines_are_measured_in_characters() {
        let line = format!("// {}\n", "ä".repeat(LINE_COLUMNS_MAX - 3));
        check("a.rs", &line, &[]);
        check("a.rs", &format!("\n// {line}"), &[("line-length", 2)]);
    }

    #[test]
    fn files_have_a_length_that_one_can_read() {
        check("a.rs", &"\n".repeat(FILE_LINES_MAX), &[]);
        check("a.rs", &"\n".repeat(FILE_LINES_MAX + 1), &[("file-length", 1)]);
    }

    #[test]
    fn functions_fit_a_screen_unless_they_are_tests() {
        let function =
            |len_lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(len_lines - 2));
        check("a.rs", &function(FUNCTION_LINES_MAX), &[]);
        let long = function(FUNCTION_LINES_MAX + 1);
        check("a.rs", &long, &[("function-length", 1)]);
        check("a.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n"), &[]);
        check("crates/forebay/tests/a.rs", &long, &[]);
        check("a/tests.rs", &long, &[]);
    }

    #[test]
    fn leftovers_are_found_in_code_and_comments_but_not_in_strings() {
        let code = "todo!()\nunimplemented!(\"x\")\ndbg!(y)\n// FIXME later\nlet XXX = 1;\n";
        let expected = [1, 2, 3, 4, 5].map(|line| ("leftover", line));
        check("a.rs", code, &expected);
        check("a.rs", "let x = \"todo!() FIXME XXX\"; let todo = mktemp_XXXXXX;\n", &[]);
    }

    #[test]
    fn unsafe_code_is_allowed_in_the_listed_files_alone() {
        let code = "// unsafe\nlet x = \"unsafe\";\nunsafe { f() }\n#[unsafe(no_mangle)]\n";
        check("a.rs", code, &[("unsafe", 3), ("unsafe", 4)]);
        check("a.rs", "#![forbid(unsafe_code)]\n", &[]);
        let documented = format!("//! Doc.\n{code}");
        check("crates/forebay/src/driver/ram.rs", &documented, &[]);
        check("crates/forebay/src/driver/file/ring.rs", &documented, &[]);
        check("crates/forebay/src/driver/null.rs", &documented, &[("unsafe", 4), ("unsafe", 5)]);
    }

    #[test]
    fn core_takes_std_for_tests_only() {
        let path = "crates/forebay-core/src/lib.rs";
        check(path, "//! Core.\nextern crate std;\n", &[("std-in-core", 2)]);
        check(path, "//! Core.\n#[cfg(test)]\nextern crate std;\n", &[]);
        check("crates/forebay/src/lib.rs", "//! Library.\nextern crate std;\n", &[]);
    }
}
