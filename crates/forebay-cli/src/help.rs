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
    Ok(Page::Command(words.iter().map(OsString::from).collect()))
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
mod tests {
    use forebay::{DefaultValue, Values};
    use forebay_fio::options::{Kind, OPTIONS};

    use super::*;

    fn topic(name: &str) -> &'static str {
        TOPICS.iter().find(|(known, _)| *known == name).expect(name).1
    }

    #[test]
    fn marks_are_removed_and_code_is_indented() {
        let markdown = "# A `b`\n\n- `c`: d\n  e\n\n```text\nf `g`\n```\n";
        assert_eq!(plain(markdown), "A b\n\n- c: d\n  e\n\n  f `g`\n");
        for (name, text) in TOPICS {
            let text = plain(text);
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{name}");
            assert!(!text.contains("```") && !text.contains("**"), "{name}");
        }
    }

    #[test]
    fn every_policy_is_explained() {
        let text = topic("policies");
        for Setting { key, values, .. } in SETTINGS.iter().filter(|it| it.knob().is_some()) {
            let Values::Words(words) = values else { continue };
            for word in *words {
                let is_named = text.contains(&format!("`{word}`"))
                    || text.contains(&format!("`{key}={word}`"));
                assert!(is_named, "{key}={word}");
            }
        }
        for option in OPTIONS.iter().filter(|it| matches!(it.kind, Kind::Policy { .. })) {
            assert!(text.contains(&format!("- `{}` *: ", option.name)), "{}", option.name);
        }
        assert!(text.contains("starves most threads"), "wake=stash has its warning");
    }

    /// The dialect does not depend on the block layer, so it repeats values and descriptions.
    #[test]
    fn options_of_the_dialect_are_those_of_the_table() {
        let mut keys = Vec::new();
        for option in OPTIONS {
            let Kind::Policy { accepts } = &option.kind else { continue };
            let setting = Setting::named(option.name).expect(option.name);
            assert_eq!(*accepts, setting.values.expected(), "{}", option.name);
            assert!(option.help.starts_with(setting.help), "{}: {}", option.name, setting.help);
            keys.push(option.name);
        }
        let others = SETTINGS.iter().map(|setting| setting.key).filter(|key| !keys.contains(key));
        let others: Vec<_> = others.collect();
        assert_eq!(others, ["nr_bios", "lock", "read_only", "fua", "service"]);
    }

    /// Returns the lines of a topic that explain a key.
    fn entry(topic: &str, key: &str) -> Option<String> {
        let start = topic.find(&format!("- `{key}`"))?;
        let entry = &topic[start..];
        let end = entry[1..].find("\n- `").or_else(|| entry[1..].find("\n\n"));
        Some(entry[..end.map_or(entry.len(), |end| end + 1)].replace("\n  ", " "))
    }

    #[test]
    fn every_setting_is_explained_with_its_range_and_default() {
        for setting in &SETTINGS {
            let entry = ["policies", "specs"].iter().find_map(|it| entry(topic(it), setting.key));
            let entry = entry.unwrap_or_else(|| panic!("no topic explains {}", setting.key));
            let values = match setting.values {
                // Other settings narrow the ranges of the rest.
                Values::Number { min, max, what } if what.is_empty() || what.contains(" of ") => {
                    format!("{min} to {max}")
                }
                Values::Switch => "on or off".to_owned(),
                _ => continue,
            };
            assert!(entry.contains(&values), "{entry}: the values are {values}");
            if let DefaultValue::Fixed(default) = setting.default_value() {
                assert!(
                    entry.contains(&format!("[{default}")),
                    "{entry}: the default is {default}"
                );
            }
        }
    }

    #[test]
    fn specs_end_with_the_keys_of_every_disk() {
        let Ok(Page::Topic(text)) = page(&["specs".to_owned()], &[]) else { panic!("a topic") };
        let (_, keys) = text.split_once("\nKeys of every disk\n").expect("a heading");
        assert!(keys.contains("\n  fua [default: as the device]\n"), "{keys}");
        assert!(keys.contains("\n      values: on, shared or off\n"), "{keys}");
        assert!(keys.lines().all(|line| line.len() <= 100), "{keys}");
    }

    #[test]
    fn every_driver_is_named() {
        let text = topic("specs");
        let own = ["file:", "aio:", "psync:", "ram:", "null:", "model:"];
        for driver in own.into_iter().chain(["nbd://", "vhost-user:", "fault:"]) {
            assert!(text.contains(driver), "{driver}");
        }
    }

    /// The labels come from the source that prints the block.
    #[test]
    fn every_label_of_the_layer_block_is_explained() {
        let source = include_str!("bench/layer.rs");
        let labels = source.split("line(\"").skip(1).chain(source.split("line(\n").skip(1));
        let mut nr = 0;
        for label in
            labels.filter_map(|rest| rest.trim_start().trim_start_matches('"').split('"').next())
        {
            nr += 1;
            assert!(topic("report").contains(&format!("`{label}`")), "{label}");
        }
        assert!(nr >= 9, "{nr} labels were found");
        for stage in ["plug", "tag", "queue", "driver"] {
            assert!(topic("report").contains(&format!("`{stage}`")), "{stage}");
        }
    }
}
