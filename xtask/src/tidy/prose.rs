//! The prose of a Rust file: the paragraphs of its comments, and its string literals.
//!
//! A small scanner instead of a parser: it finds the bounds of comments, strings and characters,
//! and skips everything else.

/// A paragraph of a comment, or one string literal: the number, from 0, and the text of each line.
pub(super) type Passage = Vec<(usize, String)>;

/// A piece of source text, with its length in bytes.
enum Piece {
    /// `//` to the end of the line.
    Comment(usize),
    /// A literal or a block comment: its length, and the lengths of its two delimiters.
    Quoted(usize, usize, usize),
    Code(usize),
}

/// Returns the passages of a file, in order.
pub(super) fn passages(text: &str) -> Vec<Passage> {
    let mut found: Vec<Passage> = Vec::new();
    let (mut at, mut line) = (0, 0);
    // End of the last comment, if the next line may continue it.
    let mut comment_end = None;
    while at < text.len() {
        let rest = &text[at..];
        let len = match next_piece(rest) {
            Piece::Code(len) => len,
            Piece::Quoted(len, open, close) => {
                let body = &rest[open..(len - close).max(open)];
                let lines = body.split('\n').enumerate();
                found.push(lines.map(|(nth, text)| (line + nth, clean(text))).collect());
                len
            }
            Piece::Comment(len) => {
                let body = rest[..len].trim_start_matches('/').trim_start_matches('!').trim();
                let continues = comment_end.is_some_and(|end| {
                    let gap = &text[end..at];
                    gap.trim().is_empty() && gap.matches('\n').count() == 1
                });
                let entry = (line, body.to_owned());
                match found.last_mut().filter(|_| continues && !starts_paragraph(body)) {
                    Some(passage) => passage.push(entry),
                    None => found.push(vec![entry]),
                }
                comment_end = (!body.is_empty() && !body.starts_with('|')).then_some(at + len);
                len
            }
        };
        line += rest[..len].matches('\n').count();
        at += len;
    }
    found
}

/// Returns whether a line is a list item, a table row, a heading, a code fence, or empty.
fn starts_paragraph(line: &str) -> bool {
    line.is_empty() || ["- ", "* ", "|", "# ", "## ", "```"].iter().any(|m| line.starts_with(m))
}

/// Removes a string literal's line continuation.
fn clean(line: &str) -> String {
    line.trim().trim_end_matches('\\').replace("\\n", "\n")
}

/// Reads one piece. The text is not empty.
fn next_piece(rest: &str) -> Piece {
    if rest.starts_with("//") {
        return Piece::Comment(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return quoted(rest, 2, "*/");
    }
    if rest.starts_with('"') {
        return Piece::Quoted(string_len(rest), 1, 1);
    }
    if let Some(open) = raw_string_open(rest) {
        let start = rest.find('r').map_or(0, |at| at + 1);
        return quoted(rest, open, &format!("\"{}", &rest[start..open - 1]));
    }
    Piece::Code(char_len(rest).unwrap_or_else(|| word_len(rest)))
}

fn quoted(rest: &str, open: usize, close: &str) -> Piece {
    match rest[open..].find(close) {
        Some(at) => Piece::Quoted(open + at + close.len(), open, close.len()),
        None => Piece::Quoted(rest.len(), open, 0),
    }
}

/// Returns the length of a string literal with escapes, including both quotes.
fn string_len(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a raw string's opening (`r"`, `r#"`, `br#"` ...), if the text begins with
/// one.
fn raw_string_open(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then(|| rest.len() - after.len() + hashes + 1)
}

/// Returns the length of a character literal, if the text begins with one. A lifetime has no
/// closing quote.
fn char_len(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    if first == '\\' {
        // The escaped character may itself be a quote.
        return Some(3 + inner.get(2..)?.find('\'')? + 1);
    }
    inner[first.len_utf8()..].starts_with('\'').then(|| first.len_utf8() + 2)
}

/// Returns the length of an identifier or number, so that no raw string begins within it; otherwise
/// the length of one character.
fn word_len(rest: &str) -> usize {
    let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    len.max(rest.chars().next().map_or(1, char::len_utf8))
}

#[cfg(test)]
mod tests {
    use super::passages;

    fn joined(text: &str) -> Vec<String> {
        let words = |passage: Vec<(usize, String)>| {
            passage.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        };
        passages(text).into_iter().map(words).collect()
    }

    #[test]
    fn comments_on_adjacent_lines_are_one_passage() {
        let text = "//! One\n//! two.\n\n/// Three\nfn f() {} // four\n// five\n";
        assert_eq!(joined(text), ["One two.", "Three", "four five"]);
    }

    #[test]
    fn empty_comment_lines_and_list_items_begin_a_passage() {
        assert_eq!(joined("// a\n//\n// b\n// - c\n// d\n"), ["a", "", "b", "- c d"]);
    }

    #[test]
    fn strings_are_passages_and_quotes_in_characters_are_not() {
        let text = "let a: &'static str = \"b \\\" c\"; let d = ['\"', '\\'']; f(r#\"e \" f\"#);";
        assert_eq!(joined(text), ["b \\\" c", "e \" f"]);
        assert_eq!(
            joined("\"// no comment\" /* a block */ 1"),
            ["// no comment", " a block"].map(str::trim)
        );
    }

    #[test]
    fn each_line_keeps_its_number() {
        let text = "\n// a\n// b\nlet c = \"d \\\n    e\";\n";
        let numbers: Vec<usize> = passages(text).concat().iter().map(|(line, _)| *line).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }
}
