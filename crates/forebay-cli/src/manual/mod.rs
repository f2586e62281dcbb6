//! `forebay man` and `forebay completions`: manual pages and completions of shells, from the tables
//! that `--help` prints.
//!
//! - [`dialect`]: the options of `bench` as a command of clap;
//! - [`topic`]: the topics of `forebay help` as manual pages;
//! - [`completions`]: the scripts.

pub(crate) mod completions;
mod dialect;
mod topic;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::failure::Failure;
use crate::{Cli, help, output};

/// The source of all pages, as their last line has it.
const SOURCE: &str = concat!("forebay ", env!("CARGO_PKG_VERSION"));

/// The date of all pages: that of the commit, or of the release.
const DATE: &str = env!("FOREBAY_DATE");

/// The manual of all pages, as their first line has it.
const MANUAL: &str = "Forebay";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A command (bench, or "lab tags") or a topic (specs); without it, the page of the program
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
    /// Write all pages into this directory, as forebay.1, forebay-bench.1 and so on
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    dir: Option<PathBuf>,
}

/// A manual page.
#[derive(Debug)]
pub(crate) struct Page {
    /// The name, such as `forebay-lab-tags`.
    name: String,
    /// The words that name it after `forebay man`, such as `lab tags`.
    words: String,
    section: &'static str,
    /// The source for man(1).
    text: String,
}

/// Prints a page, or writes all of them.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    match &args.dir {
        Some(dir) => write_all(dir),
        None => output::stdout(&named(&args.words)?.text),
    }
}

/// Returns the page of a command or a topic.
pub(crate) fn named(words: &[String]) -> Result<Page, Failure> {
    let wanted = std::iter::once("forebay").chain(words.iter().map(String::as_str));
    let wanted = wanted.collect::<Vec<_>>().join("-");
    let mut pages = pages()?;
    if let Some(at) = pages.iter().position(|page| page.name == wanted) {
        return Ok(pages.swap_remove(at));
    }
    let name = words.join(" ");
    let names: Vec<&str> =
        pages.iter().map(|page| &*page.words).filter(|it| !it.is_empty()).collect();
    let hint = match names.iter().find(|known| known.starts_with(&name)) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("expected one of {}", names.join(", ")),
    };
    Err(Failure::Usage(format!("man {name}: unknown page; {hint}")))
}

fn write_all(dir: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, error| Failure::Run(format!("man: {}: {error}", path.display()));
    fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    for page in pages()? {
        let path = dir.join(format!("{}.{}", page.name, page.section));
        fs::write(&path, page.text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// Returns all pages.
fn pages() -> Result<Vec<Page>, Failure> {
    let mut program = commands();
    program.build();
    let mut pages = Vec::new();
    of_commands(&program, &[], &mut pages)?;
    pages.extend(help::topics().map(|(name, about, text)| topic::page(name, about, &text)));
    Ok(pages)
}

/// Returns the program's commands, with the options of `bench`.
fn commands() -> Command {
    Cli::command().mut_subcommand("bench", |_| dialect::command())
}

/// Returns whether a command has a page, and is in that of the program. Older forms have none.
fn is_listed(command: &Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

/// Adds the pages of a command and of its subcommands. `words` are the names of the command and of
/// those above it.
fn of_commands(command: &Command, words: &[&str], pages: &mut Vec<Page>) -> Result<(), Failure> {
    let mut subcommands = command.get_subcommands().filter(|sub| is_listed(sub));
    pages.push(of_command(command, words)?);
    subcommands.try_for_each(|sub| of_commands(sub, &[words, &[sub.get_name()]].concat(), pages))
}

fn of_command(command: &Command, words: &[&str]) -> Result<Page, Failure> {
    let name = &[&["forebay"], words].concat().join("-");
    let page = Man::new(command.clone()).title(name).section("1").source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    let parts = [
        Man::render_title,
        Man::render_name_section,
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ];
    let rendered = parts.iter().try_for_each(|render| render(&page, &mut text));
    rendered.map_err(|error| Failure::Run(format!("man: {name}: {error}")))?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text += &rest_of_command(command, name).to_roff();
    let text = tidied(&text, name, "1");
    Ok(Page { name: name.to_owned(), words: words.join(" "), section: "1", text })
}

/// Returns the sections after the options: subcommands, notes, exit status and references.
fn rest_of_command(command: &Command, name: &str) -> Roff {
    let mut roff = Roff::new();
    let subcommands = || command.get_subcommands().filter(|sub| is_listed(sub));
    if subcommands().next().is_some() {
        roff.control("SH", ["COMMANDS"]);
        for sub in subcommands() {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            roff.control("TP", []);
            roff.text([bold(format!("{name}-{}", sub.get_name())), roman("(1)")]);
            roff.text([roman(about)]);
        }
    }
    if let Some(notes) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        roff.control("SH", ["NOTES"]);
        topic::paragraphs(&mut roff, &notes.to_string());
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman("0 for success, 1 for a failed or interrupted run, 2 for wrong usage.")]);
    match name {
        "forebay-run" => {
            roff.text([roman("If the program was started, its own exit status.")]);
        }
        "forebay-serve" => {
            roff.text([roman("With --run, the exit status of the command.")]);
        }
        _ => {}
    }
    roff.control("SH", ["SEE ALSO"]);
    let others = [("forebay", "1"), ("forebay-specs", "7"), ("forebay-policies", "7")];
    let report = ("forebay-report", "7");
    let others = others.into_iter().chain([report]).filter(|(other, _)| *other != name);
    topic::references(&mut roff, others);
    roff
}

/// Returns the text with its title complete, and without requests that formatters warn about.
fn tidied(text: &str, name: &str, section: &str) -> String {
    let mut out = String::new();
    for line in text.lines().map(str::trim_end) {
        let is_double = line == ".br" && out.ends_with(".br\n");
        // A heading begins a paragraph.
        let last = out.trim_end().rsplit('\n').next().unwrap_or_default();
        let is_vain = line == ".PP" && last.starts_with(".SH");
        if line.starts_with(".TH ") {
            out += &format!(".TH {name} {section} {DATE} \"{SOURCE}\" {MANUAL}\n");
        } else if !line.is_empty() && !is_double && !is_vain {
            out += &format!("{line}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests;
