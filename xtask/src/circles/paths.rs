//! The paths that a Rust file names, read without a compiler.
//!
//! Comments, literals and items of test builds are dropped first. The rest is read as words and
//! signs. A path is a chain of words that begins with `crate`, `super` or `self`, or any path of a
//! `use` item. Groups in braces are spelled out.

/// The names that one file uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// The paths that begin with `crate`, `super` or `self`, in order.
    pub(super) paths: Vec<Vec<String>>,
    /// The names that `use` items bring into the file's module, and their paths. `*` is a glob.
    pub(super) imports: Vec<(String, Vec<String>)>,
    /// The modules in other files that only test builds have.
    pub(super) test_modules: Vec<String>,
}

/// Reads the text of one file.
pub(super) fn read(text: &str) -> Named {
    let words = split(&bare(text));
    let mut named = Named::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at = match word.as_str() {
            "#" if is_for_tests(&words[at..]) => skip_item(&words, at, &mut named.test_modules),
            "use" => {
                let from = at + 1 + usize::from(words.get(at + 1).is_some_and(|next| next == "::"));
                let mut paths = Vec::new();
                let end = spell_out(&words, from, &[], &mut paths);
                for (name, path) in paths {
                    if is_own(&path[0]) {
                        named.paths.push(path.clone());
                    }
                    named.imports.push((name, path));
                }
                end
            }
            _ if is_own(word) && words.get(at + 1).is_some_and(|next| next == "::") => {
                let mut paths = Vec::new();
                let end = spell_out(&words, at, &[], &mut paths);
                named.paths.extend(paths.into_iter().map(|(_, path)| path));
                end
            }
            _ => at + 1,
        };
    }
    named
}

fn is_own(word: &str) -> bool {
    matches!(word, "crate" | "super" | "self")
}

fn is_word(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

/// Reads a path or a group of paths. Returns the place after it.
fn spell_out(
    words: &[String],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "{" => {
                at += 1;
                while words.get(at).is_some_and(|word| word != "}") {
                    at = spell_out(words, at, &path, paths);
                    at += usize::from(words.get(at).is_some_and(|word| word == ","));
                }
                return at + 1;
            }
            "*" => {
                paths.push(("*".to_string(), path));
                return at + 1;
            }
            // In a group it is the path before it.
            "self" if !path.is_empty() => at += 1,
            word if is_word(word) => {
                path.push(word.to_string());
                at += 1;
            }
            _ => return at + 1,
        }
        match words.get(at).map(String::as_str) {
            Some("::") => at += 1,
            Some("as") => {
                let name = words.get(at + 1).cloned().unwrap_or_default();
                paths.push((name, path));
                return at + 2;
            }
            _ => break,
        }
    }
    if let Some(name) = path.last() {
        paths.push((name.clone(), path));
    }
    at
}

/// Returns whether an attribute at the start of `words` keeps its item for builds of tests:
/// `cfg(test)`, or `cfg(all(test, ..))`.
fn is_for_tests(words: &[String]) -> bool {
    let head: Vec<&str> = words.iter().take(6).map(String::as_str).collect();
    matches!(head[..], ["#", "[", "cfg", "(", "test", ..] | ["#", "[", "cfg", "(", "all", "("])
        && words.iter().take_while(|word| *word != "]").any(|word| word == "test")
}

/// Skips an item with its attributes. Notes it if it is a module in another file. Returns the place
/// after it.
fn skip_item(words: &[String], mut at: usize, modules: &mut Vec<String>) -> usize {
    while words.get(at).is_some_and(|word| word == "#") {
        at += words[at..].iter().position(|word| word == "]").map_or(words.len(), |end| end + 1);
    }
    let mut depth = 0_u32;
    let from = at;
    while let Some(word) = words.get(at) {
        at += 1;
        match word.as_str() {
            "{" => depth += 1,
            "}" if depth <= 1 => return at,
            "}" => depth -= 1,
            // A field of a struct, or an arm of a list.
            ";" | "," if depth == 0 => {
                let item = &words[from..at - 1];
                if let Some(place) = item.iter().position(|word| word == "mod") {
                    modules.extend(item.get(place + 1).cloned());
                }
                return at;
            }
            _ => {}
        }
    }
    at
}

/// Splits code into words and signs; `::` is one sign.
fn split(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if first.is_alphanumeric() || first == '_' {
            rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        words.push(rest[..len].to_string());
        rest = rest[len..].trim_start();
    }
    words
}

/// Drops comments and literals.
fn bare(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_after_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if !is_after_word && (rest.starts_with("r\"") || rest.starts_with("r#")) => {
                raw_len(rest)
            }
            '"' => quoted_len(rest, '"'),
            // A lifetime has no second quote.
            '\'' if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') => {
                quoted_len(rest, '\'')
            }
            _ => 0,
        };
        if len == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[len..];
        }
    }
    code
}

/// Returns the length of a literal with its quotes.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        if next == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = next == '\\' && !is_escaped;
    }
    text.len()
}

/// Returns the length of a raw string; 0 if it is a raw word.
fn raw_len(text: &str) -> usize {
    let nr_marks = text[1..].chars().take_while(|&next| next == '#').count();
    if !text[1 + nr_marks..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(nr_marks));
    let from = 2 + nr_marks;
    text[from..].find(&end).map_or(text.len(), |at| from + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(paths: &[Vec<String>]) -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn groups_are_spelled_out() {
        let named = read("use crate::{a::{self, B as C}, d::*};\npub use e::F;\n");
        assert_eq!(joined(&named.paths), ["crate::a", "crate::a::B", "crate::d"]);
        let names: Vec<&str> = named.imports.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "C", "*", "F"]);
        assert_eq!(named.imports[3].1, ["e", "F"]);
    }

    #[test]
    fn paths_in_code_count() {
        let named = read("fn f(x: &super::X) { crate::a::b(x); self.crate_of(1) }");
        assert_eq!(joined(&named.paths), ["super::X", "crate::a::b"]);
    }

    #[test]
    fn comments_literals_and_visibility_name_nothing() {
        let text = "// crate::a\n/* crate::b */ pub(crate) fn f<'a>(x: &'a str) {\n\
                    g(\"crate::c \\\" crate::d\", '\"', r#\"crate::e\"#, '\\'')\n}";
        assert_eq!(read(text), Named::default());
    }

    #[test]
    fn items_of_test_builds_do_not_count() {
        let text = "#[cfg(test)]\nmod tests { use crate::a; fn f() { {} } }\n\
                    #[cfg(all(test, not(loom)))]\n#[path = \"x.rs\"]\nmod models;\n\
                    #[cfg(not(test))]\nuse crate::b;\n#[cfg(test)]\nuse crate::c;\n\
                    use crate::d;";
        let named = read(text);
        assert_eq!(joined(&named.paths), ["crate::b", "crate::d"]);
        assert_eq!(named.test_modules, ["models"]);
    }
}
