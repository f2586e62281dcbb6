//! The options of `forebay bench` as a command of clap, for manual pages and completions.
//!
//! clap does not parse these options: their order matters.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use forebay_fio::options::{self, Kind, OptionSpec};

use crate::bench;

/// Returns the command.
pub(super) fn command() -> Command {
    let mut command = Command::new("bench")
        .about("Measure a disk, with fio's options and report")
        .long_about(bench::INTRODUCTION)
        .override_usage(bench::USAGE)
        .disable_help_flag(true)
        .arg(Arg::new("job.fio").num_args(0..).value_hint(ValueHint::FilePath).help("Job files"));
    for (title, options) in options::groups() {
        command = command.args(options.into_iter().map(|it| of_table(it).help_heading(title)));
    }
    let of_option = |option| {
        let bench::CompareOption { name, values, default, help } = option;
        let is_flag = values.starts_with("no value");
        let words = if is_flag { vec!["0", "1"] } else { options::words_of(values) };
        let arg = arg(name.trim_start_matches('-'), is_flag, &words);
        arg.help(help).long_help(text(help, values, default, &[]))
    };
    let compared = bench::compare_options().map(of_option);
    let pictures = bench::picture_options().map(of_option);
    command
        .args(compared.map(|it| it.help_heading("Comparison with another run")))
        .args(pictures.map(|it| it.help_heading("Pictures and sweeps")))
}

/// Returns an option of the table of fio's options.
fn of_table(option: &OptionSpec) -> Arg {
    let accepted = match option.kind {
        Kind::Help => String::new(),
        _ => option.kind.accepted(),
    };
    let is_file = matches!(option.name, "filename" | "output");
    arg(option.name, option.is_flag(), &option.kind.words())
        .visible_aliases(option.aliases)
        .value_hint(if is_file { ValueHint::FilePath } else { ValueHint::Unknown })
        .help(option.help)
        .long_help(text(option.help, &accepted, option.default, option.aliases))
}

fn arg(name: &'static str, is_flag: bool, words: &[&'static str]) -> Arg {
    let arg = Arg::new(name)
        .long(name)
        .value_name("VALUE")
        .action(ArgAction::Append)
        .num_args(if is_flag { 0..=1 } else { 1..=1 })
        .require_equals(true)
        .hide_possible_values(true);
    match words {
        [] => arg,
        words => arg.value_parser(PossibleValuesParser::new(words.iter().copied())),
    }
}

/// Returns the sentences about an option.
fn text(help: &str, values: &str, default: &str, aliases: &[&str]) -> String {
    let mut text = format!("{help}.");
    if !values.is_empty() && values != "any text" {
        text += &format!("\nValues: {values}.");
    }
    if !default.is_empty() {
        text += &format!("\nDefault: {default}.");
    }
    if !aliases.is_empty() {
        let names: Vec<_> = aliases.iter().map(|alias| format!("--{alias}")).collect();
        text += &format!("\nAlso {}.", names.join(", "));
    }
    text
}
