//! `forebay help`: the help of commands, and topics.
//!
//! The topics are Markdown files in `help/`, which documents may include. Here they are printed
//! without their marks.

use std::ffi::OsString;

use forebay::{SETTINGS, Setting};
use forebay_fio::options::{lines_of, nearest};

use crate::failure::Failure;
use crate::output;

/// The topics: name and text.
const TOPICS: [(&str, &str); 3] = [
    ("specs", include_str!("../help/specs.md")),
    ("policies", include_str!("../help/policies.md")),
    ("report", include_str!("../help/report.md")),
];

/// A page of help.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// The text of a topic.
    Topic(String),
    /// The help of the command that these arguments select.
    Command(Vec<OsString>),
}

/// Prints a topic or the help of a command. `print_command` prints the help of a command, by the
/// arguments that select it.
pub(crate) fn main(
    words: &[String],
    commands: &[String],
    print_command: impl FnOnce(&[OsString]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match page(words, commands)? {
        Page::Topic(text) => output::stdout(&text),
        Page::Command(arguments) => print_command(&arguments),
    }
}

/// Returns the page that these words select.
pub(crate) fn page(words: &[String], commands: &[String]) -> Result<Page, Failure> {
    let Some(first) = words.first() else { return Ok(Page::Command(Vec::new())) };
    if let Some((name, text)) = TOPICS.iter().find(|(name, _)| name == first) {
        if let Some(more) = words.get(1) {
            return Err(Failure::Usage(format!("help {first}: unexpected argument '{more}'")));
        }
        let keys = if *name == "specs" { keys_of_every_disk() } else { String::new() };
        return Ok(Page::Topic(plain(text) + &keys));
    }
    if !commands.contains(first) {
        let topics = TOPICS.map(|(name, _)| name);
        let hint = match nearest(first, topics.into_iter()) {
            Some(topic) => format!("did you mean '{topic}'?"),
            None => format!("expected a command or {}", topics.join(", ")),
        };
        return Err(Failure::Usage(format!("help {first}: unknown topic; {hint}")));
    }
    if let Some(more) = words.get(1).filter(|_| first == "bench") {
        let why = format!("for the help of an option use forebay bench --help={more}");
        return Err(Failure::Usage(format!("help bench: unexpected argument '{more}'; {why}")));
    }
    Ok(Page::Command(words.iter().map(OsString::from).collect()))
}

/// Returns the topics: name, a phrase for lists of pages, and the text in Markdown. That of
/// `specs` has the settings of every disk as a list.
pub(crate) fn topics() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    TOPICS.iter().map(|&(name, text)| match name {
        "specs" => (name, "names and keys of disks", text.to_owned() + &list_of_keys()),
        "policies" => (name, "settings of the block layer", text.to_owned()),
        name => (name, "the report of forebay bench", text.to_owned()),
    })
}

/// Returns the settings of every disk as a list in Markdown.
fn list_of_keys() -> String {
    let line = |setting: &Setting| {
        let Setting { key, values, help, when, .. } = setting;
        let when = if when.is_empty() { String::new() } else { format!(" (needs {when})") };
        let (values, default) = (values.expected(), setting.default_value());
        format!("- `{key}`: {values} [{default}]: {help}{when}\n")
    };
    "\n## Keys of every disk\n\n".to_owned() + &SETTINGS.iter().map(line).collect::<String>()
}

/// Returns the settings of every disk, from the library's table.
fn keys_of_every_disk() -> String {
    let lines = |setting: &Setting| {
        let Setting { key, values, help, when, .. } = setting;
        let when = if when.is_empty() { String::new() } else { format!(" (needs {when})") };
        let default = setting.default_value().to_string();
        lines_of(key, &default, &format!("{help}{when}"), &values.expected())
    };
    "\nKeys of every disk\n\n".to_owned() + &SETTINGS.iter().map(lines).collect::<String>()
}

/// Returns Markdown as plain text: without marks of headings and code, with blocks of code
/// indented.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut is_code = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            text += &format!("  {line}\n");
        } else {
            let heading = line.trim_start_matches('#');
            let line = if heading == line { line } else { heading.trim_start() };
            text += &format!("{}\n", line.replace('`', ""));
        }
    }
    text
}

#[cfg(test)]
mod tests;
