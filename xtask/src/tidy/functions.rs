//! Where functions and test modules begin and end, found by counting brackets.
//!
//! Good enough for code that rustfmt has laid out; a function inside a macro's pattern is missed.

use super::code::{CodeLine, find_word};

/// A function with a body; the lines are counted from 0 and both belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) first: usize,
    pub(super) last: usize,
}

pub(super) fn functions(lines: &[CodeLine]) -> Vec<Function> {
    let with_body = |first: usize, line: &CodeLine| {
        let at = find_word(&line.code, "fn")?;
        let rest = line.code[at + 2..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match item_end(lines, first, at)? {
            // `fn(` is a pointer type, and has no name.
            ItemEnd::Body(last) if !name.is_empty() => Some(Function { name, first, last }),
            _ => None,
        }
    };
    lines.iter().enumerate().filter_map(|(first, line)| with_body(first, line)).collect()
}

/// For each line, whether it is compiled for tests only.
pub(super) fn test_lines(lines: &[CodeLine]) -> Vec<bool> {
    let mut is_test = vec![false; lines.len()];
    for (first, line) in lines.iter().enumerate() {
        let attribute = line.code.trim_start();
        if !attribute.starts_with("#[cfg(test)]") && !attribute.starts_with("#[cfg(all(test,") {
            continue;
        }
        // The attribute's own brackets are closed when its line ends, or the item follows at once.
        if let Some(ItemEnd::Body(last) | ItemEnd::Semicolon(last)) = item_end(lines, first, 0) {
            is_test[first..=last].fill(true);
        }
    }
    is_test
}

/// How an item ends, and in which line.
enum ItemEnd {
    Body(usize),
    Semicolon(usize),
}

/// The end of the item that begins in line `first` at the byte `at`.
fn item_end(lines: &[CodeLine], first: usize, at: usize) -> Option<ItemEnd> {
    let (mut nested, mut braces) = (0_usize, 0_usize);
    for (index, line) in lines.iter().enumerate().skip(first) {
        let skipped = if index == first { at } else { 0 };
        for c in line.code[skipped..].chars() {
            match c {
                '(' | '[' => nested += 1,
                ')' | ']' => nested = nested.saturating_sub(1),
                // A brace inside brackets is an expression of the signature, such as `[u8; { N }]`.
                '{' if nested == 0 || braces > 0 => braces += 1,
                '}' if braces == 1 => return Some(ItemEnd::Body(index)),
                '}' => braces = braces.saturating_sub(1),
                ';' if nested == 0 && braces == 0 => return Some(ItemEnd::Semicolon(index)),
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::code::split;
    use super::{functions, test_lines};

    fn check(source: &str, expected: &[(&str, usize, usize)]) {
        let found = functions(&split(source));
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.first, f.last)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_function_spans_its_signature_and_body() {
        check("fn a() {}\n", &[("a", 0, 0)]);
        check("pub fn a(\n    x: [u8; 3],\n) -> u8 {\n    x[0]\n}\n", &[("a", 0, 4)]);
        check("fn a()\nwhere\n    T: B,\n{\n    if x { y }\n}\n", &[("a", 0, 5)]);
    }

    #[test]
    fn nested_functions_are_counted_each() {
        check("fn a() {\n    fn b() {\n    }\n}\n", &[("a", 0, 3), ("b", 1, 2)]);
    }

    #[test]
    fn declarations_and_pointer_types_have_no_body() {
        check("trait T {\n    fn a(&self) -> [u8; 2];\n    fn b() {\n    }\n}\n", &[("b", 2, 3)]);
        check("struct S {\n    run: fn(u8) -> u8,\n}\n", &[]);
    }

    #[test]
    fn braces_in_text_do_not_count() {
        check("fn a() {\n    f(\"{\", '{'); // {\n}\nfn b() {}\n", &[("a", 0, 2), ("b", 3, 3)]);
    }

    #[test]
    fn braces_inside_brackets_of_a_body_are_counted() {
        check("fn a() {\n    f(|| {\n        g()\n    });\n}\n", &[("a", 0, 4)]);
        check("fn a(x: [u8; { N }]) {\n}\n", &[("a", 0, 1)]);
    }

    #[test]
    fn test_modules_and_test_imports_are_marked() {
        let source = "a\n#[cfg(test)]\nmod tests {\n    b\n}\nc\n#[cfg(test)]\nuse d::{e, f};\ng\n";
        let marked = test_lines(&split(source));
        assert_eq!(marked, [false, true, true, true, true, false, true, true, false]);
    }
}
