//! `forebay completions`: scripts that complete commands, options and values in a shell.
//!
//! clap generates them. This module adds what its generators leave out: values after equals signs
//! (bash), words of positional arguments (fish), files beside words, and colons in names of values
//! (zsh).

use std::collections::BTreeSet;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueEnum, ValueHint};
use clap_complete::{Shell as Generator, generate};

use crate::failure::Failure;
use crate::{help, output};

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script of a shell.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    output::stdout(&script(args.shell))
}

/// Returns the script of a shell.
pub(super) fn script(shell: Shell) -> String {
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Fish => Generator::Fish,
        Shell::Zsh => Generator::Zsh,
    };
    let mut program = program();
    if shell == Shell::Zsh {
        program = with_escaped_colons(program);
    }
    let mut script = Vec::new();
    generate(generator, &mut program, "forebay", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = with_files(script, shell, &program);
    match shell {
        Shell::Bash => with_values_after_equals_signs(script),
        Shell::Fish => script + &words_of_positionals(&program),
        Shell::Zsh => script,
    }
}

/// Returns the program's commands, without hidden ones, which the generator for bash would offer.
/// `help` and `man` complete the names of commands and topics.
pub(super) fn program() -> Command {
    let all = super::commands();
    let listed = all.get_subcommands().filter(|sub| !sub.is_hide_set());
    let program = Command::new("forebay")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(all.get_arguments())
        .subcommands(listed);
    let mut words: BTreeSet<String> = help::topics().map(|(name, ..)| name.to_owned()).collect();
    add_names(&program, &mut words);
    // clap takes static names, and the process ends soon.
    let words: Vec<&str> = words.into_iter().map(|word| &*word.leak()).collect();
    ["help", "man"].into_iter().fold(program, |program, name| {
        let parser = PossibleValuesParser::new(words.iter().copied());
        program.mut_subcommand(name, |it| it.mut_arg("words", |arg| arg.value_parser(parser)))
    })
}

/// Adds the names of all subcommands.
fn add_names(command: &Command, names: &mut BTreeSet<String>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        names.insert(sub.get_name().to_owned());
        add_names(sub, names);
    }
}

/// Returns the words that are completed as the value of an argument.
pub(super) fn words(arg: &Arg) -> Vec<String> {
    if !arg.get_action().takes_values() {
        return Vec::new();
    }
    arg.get_possible_values().iter().map(|word| word.get_name().to_owned()).collect()
}

/// Calls `each` with the names of each subcommand, from the outermost one on, and with each of its
/// arguments.
pub(super) fn each_arg(
    command: &Command,
    names: &[String],
    each: &mut impl FnMut(&[String], &Arg),
) {
    command.get_arguments().for_each(|arg| each(names, arg));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        each_arg(sub, &[names, &[sub.get_name().to_owned()]].concat(), each);
    }
}

/// Returns the commands with the colons in names of values escaped, which end a name in zsh.
fn with_escaped_colons(command: Command) -> Command {
    let escaped = |arg: Arg| match arg.get_value_names() {
        Some([name]) if name.contains(':') => {
            let name: &str = name.replace(':', "\\:").leak();
            arg.value_name(name)
        }
        _ => arg,
    };
    command.mut_args(escaped).mut_subcommands(with_escaped_colons)
}

/// Returns the script with files completed beside the words of arguments that take both.
fn with_files(mut script: String, shell: Shell, program: &Command) -> String {
    each_arg(program, &[], &mut |_, arg| {
        let words = words(arg);
        if words.is_empty() || arg.get_value_hint() != ValueHint::AnyPath {
            return;
        }
        let (alone, both) = match shell {
            Shell::Bash => {
                let words = words.join(" ");
                (format!("compgen -W \"{words}\""), format!("compgen -f -W \"{words}\""))
            }
            Shell::Fish => {
                let words = words_of_fish(&words);
                (format!("-r -f -a \"{words}\""), format!("-r -F -a \"{words}\""))
            }
            Shell::Zsh => {
                let words = words.join(" ");
                (format!(":({words})'"), format!(":{{compadd -- {words}; _files}}'"))
            }
        };
        script = script.replace(&alone, &both);
    });
    script
}

/// Returns the script for bash, with values completed in `--option=value` too. bash splits words at
/// equals signs, so the word before the value is the sign, and the option is before that.
fn with_values_after_equals_signs(script: String) -> String {
    const MARK: &str = "    cmd=\"\"\n";
    const LINES: &str = "    if [[ \"${cur}\" == \"=\" ]]; then\n        cur=\"\"\n    \
                         elif [[ \"${prev}\" == \"=\" ]]; then\n        \
                         prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n    fi\n";
    script.replacen(MARK, &format!("{LINES}{MARK}"), 1)
}

/// Returns the lines for fish that complete the words of positional arguments.
fn words_of_positionals(program: &Command) -> String {
    let mut lines = String::new();
    each_arg(program, &[], &mut |names, arg| {
        let words = words(arg);
        let condition = match names {
            _ if words.is_empty() || !arg.is_positional() => return,
            [command] => format!("__fish_forebay_using_subcommand {command}"),
            [command, sub, ..] => format!(
                "__fish_forebay_using_subcommand {command}; and __fish_seen_subcommand_from {sub}"
            ),
            [] => return,
        };
        let words = words_of_fish(&words);
        lines += &format!("complete -c forebay -n \"{condition}\" -f -a \"{words}\"\n");
    });
    lines
}

/// Returns words as a list of fish, each with an empty description.
fn words_of_fish(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word}\\t''")).collect();
    words.join("\n")
}
