//! Command-line options for pictures and sweeps, which are mixed with those of the jobs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use forebay_fio::options::{lines_of, nearest};

use super::compare::CompareOption;
use super::outputs::Outputs;
use super::sweep::Sweep;

/// The options: name, values, description.
const OPTIONS: [(&str, &str, &str); 3] = [
    (
        "--sweep",
        "option=value,value,... or option=FROM..TO: FROM, then doubled up to TO",
        "run the jobs with each value of an option or of a key of the layer, such as \
         iodepth=1..64, and print a table",
    ),
    (
        "--svg",
        "a folder; with --sweep, a file that ends in .svg",
        "draw the latencies, and rates over time; with --sweep, throughput against latency",
    ),
    (
        "--html",
        "a file",
        "write a page with the report, the pictures, the settings and the machine",
    ),
];

/// Returns the options, for manual pages and completions.
pub(crate) fn all() -> impl Iterator<Item = CompareOption> {
    OPTIONS.iter().map(|&(name, values, help)| CompareOption { name, values, default: "", help })
}

/// The requested pictures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PictureOptions {
    /// The sweep, if there is one.
    pub(super) sweep: Option<Sweep>,
    /// The folder of figures, or the file of a sweep.
    pub(super) svg: Option<PathBuf>,
    /// The file of the page.
    pub(super) html: Option<PathBuf>,
}

impl PictureOptions {
    /// Returns whether a run has to record its rates over time.
    pub(super) fn has_series(&self) -> bool {
        self.sweep.is_none() && (self.svg.is_some() || self.html.is_some())
    }

    /// Returns the files of a run without a sweep, with this file of the report.
    pub(super) fn outputs<'a>(
        &'a self,
        report: Option<&'a Path>,
        job_files: &'a [PathBuf],
    ) -> Outputs<'a> {
        let (page, figures) = (self.html.as_deref(), self.svg.as_deref());
        Outputs { job_files, report, page, figures, ..Outputs::default() }
    }
}

/// Result of [`take`].
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The pictures.
    pub(super) asked: PictureOptions,
    /// The other arguments.
    pub(super) rest: Vec<OsString>,
    /// The errors of the options for pictures.
    pub(super) errors: Vec<String>,
}

impl Taken {
    /// Returns it with errors of other options before its own.
    pub(super) fn after(mut self, mut errors: Vec<String>) -> Self {
        errors.append(&mut self.errors);
        Self { errors, ..self }
    }

    /// Adds an error for each option that cannot be combined with a comparison.
    pub(super) fn refuse_comparison(&mut self) {
        let PictureOptions { sweep, svg, html } = &self.asked;
        let given = [
            ("--sweep", sweep.is_some(), "compare the values one by one"),
            ("--svg", svg.is_some(), "use --compare-format=svg"),
            ("--html", html.is_some(), "use --compare-format=svg or markdown"),
        ];
        let errors = given.into_iter().filter(|(_, is_given, _)| *is_given);
        let errors = errors.map(|(name, _, instead)| {
            format!("{name} cannot be combined with --compare: {instead}")
        });
        self.errors.extend(errors);
    }
}

/// Returns the part of `bench --help` about pictures.
pub(super) fn help() -> String {
    OPTIONS.iter().map(entry).collect()
}

/// Returns the help text of one option, with or without dashes; `None` if there is no such option.
pub(super) fn help_of(name: &str) -> Option<String> {
    let name = format!("--{}", name.trim_start_matches('-'));
    OPTIONS.iter().find(|(known, ..)| *known == name).map(entry)
}

fn entry((name, values, help): &(&str, &str, &str)) -> String {
    lines_of(name, "", help, values)
}

/// Takes the options for pictures out of the arguments.
pub(super) fn take(args: Vec<OsString>) -> Taken {
    let (mut taken, mut args) = (Taken::default(), args.into_iter().peekable());
    while let Some(argument) = args.next() {
        let text = argument.to_string_lossy();
        let (name, value) = text.split_once('=').map_or((&*text, None), |(n, v)| (n, Some(v)));
        let Some(&(name, accepted, _)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
            taken.rest.push(argument);
            continue;
        };
        let value = match value {
            None => args
                .next_if(|next| !next.as_encoded_bytes().starts_with(b"-"))
                .map(|next| next.to_string_lossy().into_owned()),
            Some(value) => Some(value.to_owned()),
        };
        match value.filter(|value| !value.is_empty()) {
            None => taken.errors.push(format!("{name} needs a value (accepted: {accepted})")),
            Some(value) if name == "--sweep" => match Sweep::parse(&value) {
                Ok(sweep) => taken.asked.sweep = Some(sweep),
                Err(error) => taken.errors.push(format!("--sweep={value}: {error}")),
            },
            Some(value) if name == "--svg" => taken.asked.svg = Some(value.into()),
            Some(value) => taken.asked.html = Some(value.into()),
        }
    }
    let near = |arg: &OsString| {
        let name = arg.to_str()?.split('=').next()?;
        let known = OPTIONS.iter().map(|(known, ..)| *known);
        nearest(name, known).filter(|_| name.starts_with("--sw") || name.starts_with("--ht"))
    };
    for argument in &taken.rest {
        if let Some(known) = near(argument) {
            let name = argument.to_string_lossy().into_owned();
            taken.errors.push(format!("unknown option {name}; did you mean {known}?"));
        }
    }
    taken.rest.retain(|argument| near(argument).is_none());
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(args: &str) -> Taken {
        super::take(args.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn the_options_for_pictures_are_taken_out() {
        let taken = take("--name=a --sweep iodepth=1,2 --svg=x.svg --rw=read --html y.html");
        assert_eq!(taken.rest, ["--name=a", "--rw=read"]);
        assert!(taken.errors.is_empty(), "{:?}", taken.errors);
        let PictureOptions { sweep, svg, html } = taken.asked;
        assert_eq!(sweep, Sweep::parse("iodepth=1,2").ok());
        assert_eq!((svg, html), (Some("x.svg".into()), Some("y.html".into())));
    }

    /// Every option in the list changes the request.
    #[test]
    fn each_has_an_effect_and_its_lines_in_the_help() {
        for ((name, ..), value) in OPTIONS.iter().zip(["bs=4k,8k", "dir", "page.html"]) {
            assert_ne!(take(&format!("{name}={value}")).asked, PictureOptions::default());
            assert!(help().contains(&format!("  {name}")), "{name}");
            assert!(help_of(name).is_some_and(|text| text.contains("values: ")), "{name}");
        }
        assert_eq!(help_of("bs"), None);
    }

    #[test]
    fn all_wrong_options_are_reported_at_once() {
        let taken = take("--sweep=iodepth --svg= --html --name=a --sweeep=bs=1k,2k");
        let expected = [
            "--sweep=iodepth: expected option=value,value,..., such as iodepth=1,2,4",
            "--svg needs a value (accepted: a folder; with --sweep, a file that ends in .svg)",
            "--html needs a value (accepted: a file)",
            "unknown option --sweeep=bs=1k,2k; did you mean --sweep?",
        ];
        assert_eq!(taken.errors, expected);
    }
}
