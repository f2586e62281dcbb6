//! A ratchet on the project's old style: `dialect.txt` has a number of marks for each crate, and
//! the numbers may only fall.
//!
//! A mark is a free relative clause as a subject, an indefinite person in place of a thread or a
//! component, a verb of speech for a component, or a fragment in place of a sentence. The check
//! covers comments and string literals, except code within backticks. To avoid a false alarm,
//! reword the sentence, or leave a mark that the table already counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::files::SourceFile;
use super::finding::Finding;
use super::prose::{Passage, passages};
use crate::Outcome;
use crate::command::{Line, root};

/// Path of the committed table, relative to the root.
const TABLE: &str = "xtask/src/tidy/dialect.txt";

const HEADER: &str = "\
# Marks of the old dialect in each crate; see dialect.rs. Numbers may only fall:
# `cargo xtask tidy --lower` writes those of the tree where they are lower.
";

/// Number of marks shown for a crate that exceeds its limit.
const NR_SHOWN: usize = 10;

/// A clause that begins with one of these words has no concrete subject, unless it is a question.
const FREE_RELATIVES: &[&str] = &["who", "whoever", "whose", "whom", "what", "whatever"];

/// "says" before one of these words is a mark.
const QUESTIONS: &[&str] = &["whether", "how", "what", "who", "which", "where", "when", "that"];

/// Words that are marks in any position, with advice.
const WORDS: &[(&str, &str)] = &[
    ("nobody", PERSON),
    ("somebody", PERSON),
    ("everybody", PERSON),
    ("anybody", PERSON),
    ("tell", TALK),
    ("tells", TALK),
    ("told", TALK),
];

const RELATIVE: &str = "name the subject: the worker, the caller, the request";
const PERSON: &str = "name the thread, the bio or the component";
const TALK: &str = "components return, signal, record or report";
const FRAGMENT: &str = "begin with a noun phrase or a verb";
const RETURNS: &str = "begin with \"Returns\"";

/// One mark; lines are counted from 0.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    line: usize,
    word: String,
    advice: &'static str,
}

/// Compares the tree with the table.
pub(super) fn check(files: &[SourceFile]) -> Result<Vec<Finding>, String> {
    let limits = parse(&read_table()?)?;
    Ok(compare(&limits, &all_marks(files), &changed_files()))
}

/// Lowers each number in the table to that of the tree, if the latter is lower. This also resolves
/// a merge conflict in the table: of two numbers for a crate, the higher one is the older.
pub(super) fn lower(files: &[SourceFile]) -> Outcome {
    let limits = parse_conflict(&read_table()?)?;
    let marks = all_marks(files);
    let mut text = HEADER.to_owned();
    for (name, &limit) in &limits {
        let nr = nr_marks(&marks, name).min(limit);
        if nr < limit {
            println!("tidy: {name}: {limit} marks of the old dialect before, {nr} now");
        }
        text += &format!("{name} {nr}\n");
    }
    fs::write(root().join(TABLE), text)
        .map_err(|error| format!("{TABLE} cannot be written: {error}"))
}

/// Parses a table in which git may have left both sides of a conflict.
fn parse_conflict(text: &str) -> Result<BTreeMap<String, usize>, String> {
    let mut limits: BTreeMap<String, usize> = BTreeMap::new();
    let is_entry = |line: &&str| !line.starts_with(['<', '|', '=', '>']);
    for line in text.lines().filter(is_entry) {
        for (name, nr) in parse(line)? {
            let limit = limits.entry(name).or_default();
            *limit = nr.max(*limit);
        }
    }
    Ok(limits)
}

fn read_table() -> Result<String, String> {
    fs::read_to_string(root().join(TABLE)).map_err(|error| format!("{TABLE}: {error}"))
}

/// Parses `NAME NUMBER` lines.
fn parse(text: &str) -> Result<BTreeMap<String, usize>, String> {
    let mut limits = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let pair = line.split_once(' ').and_then(|(name, nr)| Some((name, nr.parse().ok()?)));
        let (name, nr) = pair.ok_or_else(|| {
            format!(
                "{TABLE}: `{line}` is not `NAME NUMBER`; \
                 `cargo xtask tidy --lower` resolves a merge conflict"
            )
        })?;
        if limits.insert(name.to_owned(), nr).is_some() {
            return Err(format!("{TABLE}: {name} has two numbers"));
        }
    }
    Ok(limits)
}

/// The marks by crate and path.
type Marks = BTreeMap<String, BTreeMap<String, Vec<Mark>>>;

fn all_marks(files: &[SourceFile]) -> Marks {
    let mut all = Marks::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let (Some(name), Some(text)) = (crate_of(&file.path), &file.text) else { continue };
        let marks: Vec<Mark> = passages(text).iter().flat_map(marks_of).collect();
        if !marks.is_empty() {
            all.entry(name.to_owned()).or_default().insert(file.path.clone(), marks);
        }
    }
    all
}

fn crate_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match parts.next()? {
        "crates" => parts.next(),
        first => Some(first),
    }
}

fn nr_marks(marks: &Marks, name: &str) -> usize {
    marks.get(name).map_or(0, |files| files.values().map(Vec::len).sum())
}

fn names<'a>(limits: &'a BTreeMap<String, usize>, marks: &'a Marks) -> BTreeSet<&'a str> {
    limits.keys().chain(marks.keys()).map(String::as_str).collect()
}

fn compare(
    limits: &BTreeMap<String, usize>,
    marks: &Marks,
    changed: &BTreeSet<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in names(limits, marks) {
        let limit = limits.get(name).copied().unwrap_or_default();
        let nr = nr_marks(marks, name);
        if nr < limit {
            let advice = format!(
                "{name} has {nr} marks, fewer than {limit}: run `cargo xtask tidy --lower`"
            );
            findings.push(Finding::new(TABLE, 0, "dialect", advice));
        } else if nr > limit {
            let advice = format!(
                "{name} has {nr} marks and may have {limit}: reword these lines in plain English"
            );
            findings.push(Finding::new(TABLE, 0, "dialect", advice));
            findings.extend(shown(&marks[name], changed));
        }
    }
    findings
}

/// Returns the marks of changed files, or the first marks if no changed file has any.
fn shown(files: &BTreeMap<String, Vec<Mark>>, changed: &BTreeSet<String>) -> Vec<Finding> {
    let finding = |(path, mark): (&String, &Mark)| {
        let advice = format!("`{}`: {}", mark.word, mark.advice);
        Finding::new(path, mark.line, "dialect", advice)
    };
    let marks =
        || files.iter().flat_map(|(path, marks)| marks.iter().map(move |mark| (path, mark)));
    let of_changed: Vec<Finding> =
        marks().filter(|(path, _)| changed.contains(*path)).map(finding).collect();
    if of_changed.is_empty() { marks().take(NR_SHOWN).map(finding).collect() } else { of_changed }
}

/// Returns the files that differ from the previous commit, or none if git cannot compare.
fn changed_files() -> BTreeSet<String> {
    let git = Line::new("git", "-c").argument(format!("safe.directory={}", root().display()));
    let git =
        ["diff", "--name-only", "HEAD~1"].map(String::from).into_iter().fold(git, Line::argument);
    git.output().map_or_else(|_| BTreeSet::new(), |text| text.lines().map(String::from).collect())
}

/// Position of a word in its sentence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    SentenceStart,
    /// After a colon, a semicolon or a parenthesis.
    ClauseStart,
    Within,
}

/// A word in lower case, with its line.
struct Word {
    text: String,
    line: usize,
    place: Place,
    is_in_question: bool,
}

fn marks_of(passage: &Passage) -> Vec<Mark> {
    let words = words(passage);
    let mut marks = Vec::new();
    // One or two words are a name or a key, not a sentence.
    if words.len() < 3 {
        return marks;
    }
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map_or("", |next| next.text.as_str());
        if let Some(advice) = advice(word, next) {
            marks.push(Mark { line: word.line, word: word.text.clone(), advice });
        }
    }
    marks
}

fn advice(word: &Word, next: &str) -> Option<&'static str> {
    let text = word.text.as_str();
    if let Some((_, advice)) = WORDS.iter().find(|(mark, _)| *mark == text) {
        return Some(advice);
    }
    match word.place {
        Place::Within => None,
        Place::SentenceStart if text == "of" && next != "course" => Some(FRAGMENT),
        Place::SentenceStart if text == "says" && QUESTIONS.contains(&next) => Some(RETURNS),
        _ if FREE_RELATIVES.contains(&text) && !word.is_in_question => Some(RELATIVE),
        _ => None,
    }
}

fn words(passage: &Passage) -> Vec<Word> {
    let lines = passage.iter().map(|(line, text)| text.chars().chain([' ']).map(|c| (*line, c)));
    let chars: Vec<(usize, char)> = lines.flatten().collect();
    let is_end = |at: usize| {
        let ends = matches!(chars[at].1, '.' | '!' | '?' | ':' | ';');
        ends && chars.get(at + 1).is_none_or(|(_, next)| !next.is_alphanumeric())
    };
    let (mut words, mut place, mut at) = (Vec::new(), Place::SentenceStart, 0);
    while at < chars.len() {
        let (line, c) = chars[at];
        let len_where = |holds: &dyn Fn(char) -> bool| {
            chars[at..].iter().take_while(|(_, c)| holds(*c)).count()
        };
        let len = if c == '`' {
            let after = chars[at + 1..].iter().position(|(_, c)| *c == '`');
            after.map_or(1, |inner| inner + 2)
        } else {
            len_where(&|c| c.is_alphanumeric() || c == '_' || c == '\'').max(1)
        };
        if c.is_alphabetic() {
            let text = chars[at..at + len].iter().flat_map(|(_, c)| c.to_lowercase()).collect();
            let end = (at + len..chars.len()).find(|&end| is_end(end) && chars[end].1 != ':');
            let is_in_question = end.is_some_and(|end| chars[end].1 == '?');
            words.push(Word { text, line, place, is_in_question });
        }
        place = match c {
            '.' | '!' | '?' if is_end(at) => Place::SentenceStart,
            ':' | ';' if is_end(at) => Place::ClauseStart,
            '(' => Place::ClauseStart,
            _ if c.is_alphanumeric() || c == '`' => Place::Within,
            _ => place,
        };
        at += len;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, BTreeSet, Marks, all_marks, compare, parse};
    use crate::tidy::files::SourceFile;

    /// Source text in which each marked line contains `[mark]`.
    const SAMPLE: &str = include_str!("dialect_sample.txt");

    fn marks(path: &str, text: &str) -> Marks {
        all_marks(&[SourceFile::of(path, text)])
    }

    #[test]
    fn each_marked_line_of_the_sample_has_one_mark_and_no_other_line_has_any() {
        let found = marks("crates/a/src/b.rs", SAMPLE);
        let found: Vec<usize> = found["a"]["crates/a/src/b.rs"].iter().map(|m| m.line).collect();
        let marked = SAMPLE.lines().enumerate().filter(|(_, line)| line.contains("[mark]"));
        assert_eq!(found, marked.map(|(at, _)| at).collect::<Vec<_>>());
    }

    #[test]
    fn a_number_may_not_rise_and_has_to_follow_when_marks_go() {
        let path = "crates/a/src/b.rs";
        let marks = marks(path, SAMPLE);
        let nr = marks["a"][path].len();
        let advices = |limit: usize, changed: &BTreeSet<String>| {
            let limits = BTreeMap::from([("a".to_owned(), limit)]);
            let findings = compare(&limits, &marks, changed);
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(advices(nr, &BTreeSet::new()).is_empty());
        let lower = advices(nr + 1, &BTreeSet::new());
        assert_eq!(lower.len(), 1);
        assert!(lower[0].contains("tidy --lower"), "{lower:?}");
        assert_eq!(advices(nr - 1, &BTreeSet::from([path.to_owned()])).len(), nr + 1);
        assert_eq!(advices(nr - 1, &BTreeSet::new()).len(), 11.min(nr + 1));
    }

    #[test]
    fn a_crate_that_the_table_does_not_name_may_have_no_mark() {
        let findings = compare(&BTreeMap::new(), &marks("new/src/a.rs", SAMPLE), &BTreeSet::new());
        assert!(findings[0].to_string().contains("may have 0"), "{}", findings[0]);
    }

    #[test]
    fn a_table_with_a_conflict_is_an_error_that_names_the_remedy() {
        let message = parse("a 1\n<<<<<<< HEAD\nb 2\n").unwrap_err();
        assert!(message.contains("tidy --lower"), "{message}");
        assert!(parse("a 1\na 2\n").unwrap_err().contains("two numbers"));
    }
}
