//! No text makes the parsers panic, take long, or take much memory.
//!
//! The corpus is changed at random, by a generator with a fixed seed: bytes are flipped, lines are
//! moved, and words of the dialect are put in. What the limits of the parsers are for has tests of
//! its own. Time is not measured: a text that takes too long is one on which the tests hang.

use forebay_fio::cmdline::parse_with;
use forebay_fio::options::{self, known};
use forebay_fio::random::Xoshiro256;

use crate::common::{Memory, corpus};

/// How many texts are tried, as a file and as arguments. A text is read on after an error.
const ROUNDS: u64 = 20_000;

/// What means something beside the names of options.
const WORDS: &[&str] = &[
    "[",
    "]",
    "=",
    ";",
    "#",
    "\n",
    "\r\n",
    " ",
    "\t",
    "\0",
    "(",
    ")",
    "((((",
    "))))",
    "*",
    "/",
    "%",
    "^",
    "+",
    "-",
    "1/0",
    "2^64",
    "(2^9999)",
    "18446744073709551615",
    "99999999999999999999999999",
    "0x",
    "0xffffffffffffffff",
    "1e400",
    ".5",
    "k",
    "kib",
    "p",
    "100%",
    "${",
    "}",
    "${FOREBAY_SIZE}",
    "$pagesize",
    "$ncpus",
    "$mb_memory",
    "[global]",
    "[a]",
    "include ",
    "include self.inc",
    "include mutant.fio",
    "include section.inc",
    "stonewall",
    "new_group",
    "\u{feff}",
    "\u{1f4a9}",
];

fn words() -> Vec<&'static str> {
    let rows = options::OPTIONS.iter().flat_map(options::OptionSpec::names);
    let foreign = known::all().flat_map(|foreign| foreign.names.iter().copied());
    rows.chain(foreign).chain(WORDS.iter().copied()).collect()
}

/// A source of small numbers.
struct Dice(Xoshiro256);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        (self.0.draw() % limit.max(1) as u64) as usize
    }
}

fn mutate(text: &mut Vec<u8>, words: &[&str], dice: &mut Dice) {
    for _ in 0..=dice.below(6) {
        let at = dice.below(text.len() + 1);
        match dice.below(6) {
            0 if at < text.len() => text[at] ^= 1 << dice.below(8),
            1 if at < text.len() => drop(text.remove(at)),
            2 => text.truncate(at),
            3 => {
                let mut lines: Vec<_> = text.split(|&byte| byte == b'\n').collect();
                let (a, b) = (dice.below(lines.len()), dice.below(lines.len()));
                lines.swap(a, b);
                *text = lines.join(&b'\n');
            }
            4 => {
                let end = at + dice.below(text.len() - at + 1);
                let part = text[at..end].to_vec();
                text.extend(part);
            }
            _ => {
                let word = words[dice.below(words.len())].as_bytes().to_vec();
                text.splice(at..at, word);
            }
        }
    }
}

#[test]
fn no_mutant_of_the_corpus_makes_the_parsers_panic() {
    let corpus = corpus();
    let texts: Vec<_> = corpus.values().cloned().collect();
    let words = words();
    let mut dice = Dice(Xoshiro256::new(0x0066_696f, 0));
    let mut host = Memory { files: corpus };
    let (mut nr_right, mut nr_shown) = (0, 0);
    for round in 0..ROUNDS {
        let mut text = texts[dice.below(texts.len())].clone();
        mutate(&mut text, &words, &mut dice);
        // The same as arguments: one for each line.
        let args = String::from_utf8_lossy(&text).into_owned();
        let args = args.lines().map(|line| format!("--{line}").into());
        let _ = parse_with(args, &mut host).map_err(|error| error.to_string());

        host.files.insert("mutant.fio".to_owned(), text);
        match parse_with(["mutant.fio".into()], &mut host) {
            Ok(_) => nr_right += 1,
            Err(error) => {
                nr_shown += 1;
                let message = error.to_string();
                assert!(message.len() < 20 * 4096, "round {round}: {message}");
            }
        }
    }
    assert!(nr_right > 1000 && nr_shown > 1000, "{nr_right} right, {nr_shown} wrong");
}

#[track_caller]
fn check_refused(text: String, message: &str) {
    let files = [("bomb.fio".to_owned(), text.into_bytes())].into();
    let error = parse_with(["bomb.fio".into()], &mut Memory { files }).expect_err(message);
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn texts_without_measure_are_refused() {
    check_refused(format!("[a]\nsize={}1", "(".repeat(8000)), "too many nested");
    check_refused(format!("[a]\nsize=({}1)", "-".repeat(8000)), "too many nested");
    check_refused(format!("[a]\nsize=(1{})", "^9".repeat(4000)), "");
    check_refused(format!("[a]\nsize={}", "9".repeat(8000)), "too large");
    check_refused(format!("[a]\nsize=(0.{})", "9".repeat(8000)), "too large");
    check_refused(format!("[{}", "[".repeat(8000)), "a section header starts with [");
    check_refused(format!("[a]\nrw={}", "x".repeat(8000)), "unknown value");
    check_refused(format!("[a]\n{}=1", "x".repeat(8000)), "unknown option");
    check_refused(format!("[a]\nbs={}", "${FOREBAY_SIZE}".repeat(500)), "unknown unit");
    check_refused(
        format!("[global]\nfilename={}\n{}", "x".repeat(8000), "[a]\n".repeat(9000)),
        "more than 4096 jobs",
    );
    check_refused("[a]\ninclude bomb.fio\n".repeat(1000), "includes itself");
    check_refused(" ".repeat(2 << 20), "larger than 1 MiB");
    check_refused("\0".repeat(2 << 20), "binary data");
}
