//! Command-line options of a comparison, which are mixed with those of the jobs.

use std::ffi::OsString;
use std::time::Duration;

use forebay_fio::options::{lines_of, nearest};

/// The number of pairs by default; fewer do not decide.
pub(super) const PAIRS: usize = 5;
const PAIRS_MAX: usize = 1000;

/// The longest run with `--compare-quick`.
const QUICK: Duration = Duration::from_secs(1);

/// The options: name, values and default, description.
const OPTIONS: [(&str, &str, &str); 5] = [
    (
        "--compare",
        "fio, a device spec, or ?key=value for the same device with other settings",
        "compare the jobs, in turn, with fio on the same file, another disk, or other settings, \
         and print the ratios",
    ),
    ("--compare-pairs", "a number from 1 to 1000 [default: 5]", "number of pairs of runs"),
    (
        "--compare-quick",
        "no value, 0 or 1 [default: 0]",
        "limit each run to 1 s; the result is less certain",
    ),
    ("--compare-format", "text, markdown, json or svg [default: text]", "format of the comparison"),
    (
        "--compare-fail",
        "no value, 0 or 1 [default: 0]",
        "exit with 1 if a metric is worse than its limit",
    ),
];

/// Returns the part of `bench --help` about comparisons.
pub(in crate::bench) fn help() -> String {
    OPTIONS.iter().map(entry).collect()
}

/// Returns the help text of one option, with or without dashes; `None` if there is no such option.
pub(in crate::bench) fn help_of(name: &str) -> Option<String> {
    let name = format!("--{}", name.trim_start_matches('-').replace('_', "-"));
    OPTIONS.iter().find(|(known, ..)| *known == name).map(entry)
}

fn entry((name, values, help): &(&str, &str, &str)) -> String {
    let (values, default) = values_and_default(values);
    lines_of(name, default, help, values)
}

fn values_and_default(text: &str) -> (&str, &str) {
    let (values, default) = text.split_once(" [default: ").unwrap_or((text, ""));
    (values, default.trim_end_matches(']'))
}

/// An option of a comparison, for manual pages and completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompareOption {
    /// The name, with dashes.
    pub(crate) name: &'static str,
    /// A description of the values.
    pub(crate) values: &'static str,
    /// The default value; empty if there is none.
    pub(crate) default: &'static str,
    /// A short description.
    pub(crate) help: &'static str,
}

/// Returns the options of a comparison.
pub(crate) fn all() -> impl Iterator<Item = CompareOption> {
    OPTIONS.iter().map(|&(name, values, help)| {
        let (values, default) = values_and_default(values);
        CompareOption { name, values, default, help }
    })
}

/// The options of a requested comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::bench) struct CompareOptions {
    /// The other side: `fio`, a spec, or keys after a question mark.
    pub(super) with: String,
    /// The number of pairs.
    pub(super) pairs: usize,
    /// The longest run, if runs are limited.
    pub(super) limit: Option<Duration>,
    /// The format; `None`: the one of `--output-format`.
    pub(super) format: Option<Format>,
    /// Whether a verdict "worse" makes the program fail.
    pub(super) fail: bool,
}

/// The format of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// For a terminal.
    Text,
    /// For a document.
    Markdown,
    /// For programs.
    Json,
    /// A figure.
    Svg,
}

impl Format {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "markdown" => Some(Self::Markdown),
            "json" => Some(Self::Json),
            "svg" => Some(Self::Svg),
            _ => None,
        }
    }
}

/// Result of [`take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::bench) struct Taken {
    /// The comparison, if there is one.
    pub(in crate::bench) asked: Option<CompareOptions>,
    /// The other arguments.
    pub(in crate::bench) rest: Vec<OsString>,
    /// The errors of the options of a comparison.
    pub(in crate::bench) errors: Vec<String>,
}

/// Takes the options of a comparison out of the arguments.
pub(in crate::bench) fn take(args: impl Iterator<Item = OsString>) -> Taken {
    let mut with = None;
    let mut asked = CompareOptions {
        with: String::new(),
        pairs: PAIRS,
        limit: None,
        format: None,
        fail: false,
    };
    let (mut first, mut taken, mut args) = (None, Taken::default(), args.peekable());
    while let Some(argument) = args.next() {
        let text = argument.to_str().unwrap_or_default();
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        let name = name.replace('_', "-");
        let is_ours = name == "--compare" || name.starts_with("--compare-");
        if !is_ours {
            taken.rest.push(argument);
            continue;
        }
        first.get_or_insert(name.clone());
        let is_flag = matches!(name.as_str(), "--compare-fail" | "--compare-quick");
        let value = match value {
            None if is_flag => Some("1".to_owned()),
            None => args
                .next_if(|next| !next.as_encoded_bytes().starts_with(b"-"))
                .map(|next| next.to_string_lossy().into_owned()),
            Some(value) => Some(value.to_owned()),
        };
        if let Err(error) = set(&mut asked, &mut with, &name, value.as_deref()) {
            taken.errors.push(error);
        }
    }
    match (with, first) {
        (Some(with), _) => taken.asked = Some(CompareOptions { with, ..asked }),
        (None, Some(name)) if taken.errors.is_empty() => taken.errors.push(format!(
            "{name} needs --compare, such as --compare=fio or --compare='?plug=none'"
        )),
        (None, _) => {}
    }
    taken
}

/// Sets one option.
fn set(
    asked: &mut CompareOptions,
    with: &mut Option<String>,
    name: &str,
    value: Option<&str>,
) -> Result<(), String> {
    let names = || OPTIONS.iter().map(|(known, ..)| *known);
    let Some((_, accepted, _)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
        return Err(match nearest(name, names()) {
            Some(near) => format!("unknown option {name}; did you mean {near}?"),
            None => {
                format!(
                    "unknown option {name}; expected {}",
                    names().collect::<Vec<_>>().join(", ")
                )
            }
        });
    };
    let accepted = accepted.split(" [").next().unwrap_or(accepted);
    let Some(value) = value else {
        return Err(format!("{name} needs a value (accepted: {accepted})"));
    };
    let unknown = || format!("{name}={value}: unknown value '{value}' (accepted: {accepted})");
    match name {
        "--compare" if value.is_empty() => {
            return Err(format!("{name}=: empty value (accepted: {accepted})"));
        }
        "--compare" => *with = Some(value.to_owned()),
        "--compare-pairs" => {
            let pairs = value.parse().ok().filter(|pairs| (1..=PAIRS_MAX).contains(pairs));
            asked.pairs = pairs.ok_or_else(unknown)?;
        }
        "--compare-format" => asked.format = Some(Format::from_word(value).ok_or_else(unknown)?),
        "--compare-quick" => asked.limit = switch(value).ok_or_else(unknown)?.then_some(QUICK),
        _ => asked.fail = switch(value).ok_or_else(unknown)?,
    }
    Ok(())
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(args: &str) -> Taken {
        super::take(args.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_options_of_a_comparison_are_taken_out() {
        let args = "--name=a --compare fio --rw=read --compare-pairs=3 --compare_format=svg \
                    --compare-fail --compare-quick --bs=8k";
        let Taken { asked, rest, errors } = take(args);
        let (format, limit) = (Some(Format::Svg), Some(Duration::from_secs(1)));
        let expected =
            CompareOptions { with: "fio".to_owned(), pairs: 3, limit, format, fail: true };
        assert_eq!((asked, errors), (Some(expected), Vec::new()));
        assert_eq!(rest, ["--name=a", "--rw=read", "--bs=8k"]);
        let plain = take("--name=a --bs 8k");
        assert_eq!((plain.asked, plain.rest.len()), (None, 3));
    }

    /// Every option in the list changes the request.
    #[test]
    fn each_has_an_effect_and_its_lines_in_the_help() {
        let none = take("--compare=ram:1M").asked;
        let examples = ["fio", "7", "1", "json", "1"];
        for ((name, ..), value) in OPTIONS.iter().zip(examples) {
            let with = take(&format!("--compare=ram:1M {name}={value}"));
            assert_ne!(with.asked, none, "{name}={value}");
            assert!(help().contains(&format!("  {name} [default: ")) || *name == "--compare");
            assert!(help_of(name).is_some_and(|text| text.contains("values: ")), "{name}");
        }
        assert_eq!(help_of("compare_pairs"), help_of("--compare-pairs"));
        assert_eq!(help_of("bs"), None);
    }

    #[test]
    fn all_wrong_options_are_reported_at_once() {
        let expected = [
            "--compare-pairs=0: unknown value '0' (accepted: a number from 1 to 1000)",
            "--compare-format=pdf: unknown value 'pdf' (accepted: text, markdown, json or svg)",
            "unknown option --compare-pair; did you mean --compare-pairs?",
            "--compare needs a value (accepted: fio, a device spec, or ?key=value for the same \
             device with other settings)",
        ];
        let args = "--compare-pairs=0 --compare-format=pdf --compare-pair=3 --compare --name=a";
        assert_eq!(take(args).errors, expected);
        let expected = "--compare-fail needs --compare, such as --compare=fio or \
                        --compare='?plug=none'";
        assert_eq!(take("--compare-fail").errors, [expected]);
    }
}
