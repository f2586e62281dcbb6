//! Tells code from comments and literals, so that a rule about code is not fooled by prose.
//!
//! Not a parser: it knows just enough of Rust's tokens to blank out what is not code. Columns and
//! line numbers stay as they are in the file.

/// One line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CodeLine {
    /// The line with comments and the insides of literals replaced by blanks.
    pub(super) code: String,
    /// What the line says in comments.
    pub(super) comment: String,
}

/// Where the reader stands between two characters.
#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    /// Block comments nest.
    BlockComment(usize),
    /// A string with escapes.
    Text,
    /// A raw string, which ends at a quote and this many hashes.
    RawText(usize),
}

pub(super) fn split(source: &str) -> Vec<CodeLine> {
    let mut splitter = Splitter { lines: Vec::new(), line: CodeLine::default() };
    let chars: Vec<char> = source.chars().collect();
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == '\n' {
            splitter.end_line();
            if let State::LineComment = state {
                state = State::Code;
            }
            at += 1;
            continue;
        }
        let token = token(state, &chars, at);
        for &c in &chars[at..at + token.len] {
            splitter.push(c, token.kind);
        }
        state = token.next;
        at += token.len;
    }
    if !splitter.line.code.is_empty() {
        splitter.end_line();
    }
    splitter.lines
}

/// What a token's characters belong to.
#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Some characters that belong together; there is no line end in it.
struct Token {
    /// The state after it.
    next: State,
    /// In characters.
    len: usize,
    kind: Kind,
}

fn token(state: State, chars: &[char], at: usize) -> Token {
    let two = (chars[at], chars.get(at + 1).copied().unwrap_or('\n'));
    let comment = |next, len| Token { next, len, kind: Kind::Comment };
    let literal = |next, len| Token { next, len, kind: Kind::Literal };
    // The quotes of strings are code, so that a string stays visible as one.
    let code = |next| Token { next, len: 1, kind: Kind::Code };
    match (state, two) {
        (State::Code, ('/', '/')) => comment(State::LineComment, 2),
        (State::Code, ('/', '*')) => comment(State::BlockComment(1), 2),
        (State::Code, ('"', _)) => code(opened_text(chars, at)),
        (State::Code, ('\'', _)) => match char_literal_len(chars, at) {
            Some(len) => literal(State::Code, len),
            None => code(State::Code),
        },
        (State::Code, _) => code(State::Code),
        (State::LineComment, _) => comment(State::LineComment, 1),
        (State::BlockComment(depth), ('/', '*')) => comment(State::BlockComment(depth + 1), 2),
        (State::BlockComment(1), ('*', '/')) => comment(State::Code, 2),
        (State::BlockComment(depth), ('*', '/')) => comment(State::BlockComment(depth - 1), 2),
        (State::BlockComment(depth), _) => comment(State::BlockComment(depth), 1),
        (State::Text, ('\\', escaped)) if escaped != '\n' => literal(State::Text, 2),
        (State::Text, ('"', _)) => code(State::Code),
        (State::Text, _) => literal(State::Text, 1),
        (State::RawText(n), ('"', _)) if hashes_from(chars, at + 1) >= n => code(State::Code),
        (State::RawText(n), _) => literal(State::RawText(n), 1),
    }
}

/// A quote opens a raw string if `r` and some hashes stand before it.
fn opened_text(chars: &[char], quote: usize) -> State {
    let hashes = chars[..quote].iter().rev().take_while(|c| **c == '#').count();
    let prefix: String = chars[..quote - hashes]
        .iter()
        .rev()
        .take_while(|c| c.is_alphanumeric() || **c == '_')
        .collect();
    // Read backwards, so `br` is `rb`.
    if ["r", "rb", "rc"].contains(&prefix.as_str()) { State::RawText(hashes) } else { State::Text }
}

fn hashes_from(chars: &[char], at: usize) -> usize {
    chars[at..].iter().take_while(|c| **c == '#').count()
}

/// The length of the character literal that begins here, if the quote is not that of a lifetime.
fn char_literal_len(chars: &[char], quote: usize) -> Option<usize> {
    match chars[quote + 1..] {
        // What follows the backslash may itself be a quote.
        ['\\', _, ref rest @ ..] => rest.iter().position(|c| *c == '\'').map(|end| end + 4),
        [_, '\'', ..] => Some(3),
        _ => None,
    }
}

struct Splitter {
    lines: Vec<CodeLine>,
    line: CodeLine,
}

impl Splitter {
    fn push(&mut self, c: char, kind: Kind) {
        self.line.code.push(if let Kind::Code = kind { c } else { ' ' });
        if let Kind::Comment = kind {
            self.line.comment.push(c);
        }
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }
}

/// Where `word` stands in `text` as a word of its own, not as a part of a longer name.
pub(super) fn find_word(text: &str, word: &str) -> Option<usize> {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(in_name) && !after.is_some_and(in_name)
    })
}

#[cfg(test)]
mod tests {
    use super::{find_word, split};

    fn check(source: &str, code: &str) {
        let lines: Vec<String> = split(source).into_iter().map(|line| line.code).collect();
        assert_eq!(lines.join("\n"), code);
    }

    #[test]
    fn comments_are_blanked_and_kept_apart() {
        check("let a = 1; // one\nb", "let a = 1;       \nb");
        check("a /* x /* y */ z */ b", "a                   b");
        check("a /* x\ny */ b", "a     \n     b");
        assert_eq!(split("a // why\n")[0].comment, "// why");
    }

    #[test]
    fn the_insides_of_strings_are_blanked() {
        check(r#"f("a // b")"#, r#"f("      ")"#);
        check(r#"f("a\"b", c)"#, r#"f("    ", c)"#);
        check("f(\"a\nb\")", "f(\" \n \")");
        check("f(\"a \\\nb\")", "f(\"   \n \")");
    }

    #[test]
    fn raw_strings_end_at_their_hashes() {
        check(r####"f(r#"a"b"#)"####, r####"f(r#"   "#)"####);
        check(r####"f(br"a\")"####, r####"f(br"  ")"####);
        // A name that merely ends in r opens no raw string.
        check(r####"var"a\"b""####, r####"var"    ""####);
    }

    #[test]
    fn characters_are_literals_and_lifetimes_are_code() {
        check("c == '\"' { x }", "c ==     { x }");
        check(r"['\'', '\\', '\u{7f}', '{']", "[    ,     ,         ,    ]");
        check("fn f<'a>(x: &'a str) {} // '", "fn f<'a>(x: &'a str) {}     ");
    }

    #[test]
    fn as_many_lines_come_out_as_went_in() {
        for source in ["", "a", "a\n", "a\n\nb\n", "\n", "/*\n*/", "\"\n\""] {
            assert_eq!(split(source).len(), source.lines().count(), "{source:?}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("unsafe_code, unsafe {", "unsafe"), Some(13));
        assert_eq!(find_word("my_unsafe unsafely", "unsafe"), None);
    }
}
