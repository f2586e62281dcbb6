//! What is asked for: the options of a comparison, which stand among those of the jobs.

use std::ffi::OsString;

use crate::failure::Failure;

/// How many pairs there are if nothing is said; fewer do not decide.
pub(super) const PAIRS: usize = 5;
const PAIRS_MAX: usize = 1000;

/// For `bench --help`.
pub(in crate::bench) const HELP: &str = "  --compare
      run the jobs in turn with another side, and print ratios; takes fio (its engine, on the same
      file), a device spec, or ?key=value (the same device with other keys)
  --compare-pairs
      how many pairs of runs; takes a number from 1 to 1000 [5]
  --compare-format
      how the comparison is printed; takes text, markdown, json, svg [text]
  --compare-fail
      exit with 1 if a metric is worse than the tolerance allows
";

/// A comparison that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::bench) struct Asked {
    /// With what: `fio`, a spec, or keys behind a question mark.
    pub(super) with: String,
    /// How many pairs.
    pub(super) pairs: usize,
    /// How it is printed; as `--output-format` says if this is not given.
    pub(super) format: Option<Format>,
    /// Whether what is worse makes the program fail.
    pub(super) fail: bool,
}

/// How a comparison is printed.
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

/// Takes the options of a comparison out of the arguments. `None` if there are none.
pub(in crate::bench) fn take(
    args: impl Iterator<Item = OsString>,
) -> Result<(Option<Asked>, Vec<OsString>), Failure> {
    let mut with = None;
    let mut asked = Asked { with: String::new(), pairs: PAIRS, format: None, fail: false };
    let (mut first, mut rest, mut args) = (None, Vec::new(), args);
    while let Some(argument) = args.next() {
        let text = argument.to_str().unwrap_or_default();
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        let name = name.replace('_', "-");
        let is_ours = name == "--compare" || name.starts_with("--compare-");
        if !is_ours {
            rest.push(argument);
            continue;
        }
        first.get_or_insert(name.clone());
        if name == "--compare-fail" {
            asked.fail = match value {
                None | Some("1") => true,
                Some("0") => false,
                Some(value) => return wrong(&name, value, "nothing, 0 or 1"),
            };
            continue;
        }
        let next = || args.next().map(|next| next.to_string_lossy().into_owned());
        let Some(value) = value.map(str::to_owned).or_else(next) else {
            return Err(Failure::Usage(format!("bench: {name} needs a value; see bench --help")));
        };
        match name.as_str() {
            "--compare" if value.is_empty() => return wrong(&name, "", "fio, a spec, ?key=value"),
            "--compare" => with = Some(value),
            "--compare-pairs" => match value.parse() {
                Ok(pairs @ 1..=PAIRS_MAX) => asked.pairs = pairs,
                _ => return wrong(&name, &value, "a number from 1 to 1000"),
            },
            "--compare-format" => match Format::from_word(&value) {
                Some(format) => asked.format = Some(format),
                None => return wrong(&name, &value, "text, markdown, json, svg"),
            },
            _ => {
                return Err(Failure::Usage(format!(
                    "bench: unknown option {name}; there are: --compare, --compare-pairs, \
                     --compare-format, --compare-fail"
                )));
            }
        }
    }
    match (with, first) {
        (Some(with), _) => Ok((Some(Asked { with, ..asked }), rest)),
        (None, None) => Ok((None, rest)),
        (None, Some(name)) => Err(Failure::Usage(format!(
            "bench: {name} needs a --compare, such as --compare=fio or --compare='?plug=none'"
        ))),
    }
}

fn wrong<T>(name: &str, value: &str, accepted: &str) -> Result<T, Failure> {
    Err(Failure::Usage(format!("bench: {name}={value}: accepted: {accepted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(args: &str) -> Result<(Option<Asked>, String), String> {
        let (asked, rest) = super::take(args.split_whitespace().map(OsString::from))
            .map_err(|error| error.to_string())?;
        let rest: Vec<_> = rest.iter().map(|argument| argument.to_string_lossy()).collect();
        Ok((asked, rest.join(" ")))
    }

    #[test]
    fn the_options_of_a_comparison_are_taken_out() {
        let args = "--name=a --compare fio --rw=read --compare-pairs=3 --compare_format=svg \
                    --compare-fail --bs=8k";
        let (asked, rest) = take(args).expect(args);
        let format = Some(Format::Svg);
        assert_eq!(asked, Some(Asked { with: "fio".to_owned(), pairs: 3, format, fail: true }));
        assert_eq!(rest, "--name=a --rw=read --bs=8k");
        assert_eq!(take("--name=a --bs 8k"), Ok((None, "--name=a --bs 8k".to_owned())));
    }

    #[test]
    fn each_has_its_lines_in_the_help() {
        let names = HELP.lines().filter(|line| line.starts_with("  --")).count();
        assert_eq!((names, HELP.lines().next()), (4, Some("  --compare")));
    }

    #[test]
    fn what_they_do_not_take_is_refused() {
        let error = |args: &str| take(args).expect_err(args);
        let message = "bench: --compare-pairs=0: accepted: a number from 1 to 1000";
        assert_eq!(error("--compare=fio --compare-pairs=0"), message);
        let message = "bench: --compare-format=pdf: accepted: text, markdown, json, svg";
        assert_eq!(error("--compare=fio --compare-format=pdf"), message);
        assert_eq!(error("--compare"), "bench: --compare needs a value; see bench --help");
        let message = "bench: --compare-fail needs a --compare, such as --compare=fio or \
                       --compare='?plug=none'";
        assert_eq!(error("--compare-fail"), message);
        assert!(error("--compare=fio --compare-pair=3").contains("there are: --compare, "));
    }
}
