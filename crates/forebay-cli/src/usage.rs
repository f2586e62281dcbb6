//! Command-line errors, in the style of the other errors.
//!
//! clap stops at the first error. To report all of them, this module removes the failed argument
//! and parses the rest again.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error, Parser};

use crate::failure::Failure;
use crate::{output, serve};

/// Maximum number of reported errors.
const ERRORS_MAX: usize = 20;

/// Returns the failure of a command line that begins with the program's name, with all errors that
/// can be found.
pub(crate) fn failure<P: Parser>(first: Error, mut args: Vec<OsString>) -> Failure {
    let mut messages = Vec::new();
    let mut error = Some(first);
    while let Some(found) = error.take().filter(|_| messages.len() < ERRORS_MAX) {
        // Without an unknown command, the command is missing.
        if found.kind() == ErrorKind::MissingSubcommand && !messages.is_empty() {
            break;
        }
        let Some(message) = message::<P>(&found, &args) else {
            // A help text takes the place of a message, for instance if the command is missing.
            if messages.is_empty() {
                output::stderr(&found.render().to_string());
                return Failure::Told { usage: true };
            }
            break;
        };
        // A repeated argument has one message.
        if messages.last() != Some(&message) {
            messages.push(message);
        }
        if take_out(&found, &mut args) {
            error = P::try_parse_from(&args).err().filter(Error::use_stderr);
        }
    }
    Failure::Several { messages, usage: true }
}

/// Returns the names of all commands, or of those of the command that the arguments name.
fn commands<P: CommandFactory>(args: &[OsString]) -> String {
    let program = P::command();
    let named = args.get(1).and_then(|name| program.find_subcommand(name));
    let listed = named.unwrap_or(&program).get_subcommands().filter(|sub| !sub.is_hide_set());
    let names = listed.map(clap::Command::get_name);
    names.filter(|name| named.is_none() || *name != "help").collect::<Vec<_>>().join(", ")
}

/// Returns whether the command that the arguments name has commands of its own, and none of them is
/// given.
fn lacks_command<P: CommandFactory>(args: &[OsString]) -> bool {
    let program = P::command();
    let named = args.get(1).and_then(|name| program.find_subcommand(name));
    let lacks = |named: &clap::Command| {
        named.has_subcommands() && !args[2..].iter().any(|arg| named.find_subcommand(arg).is_some())
    };
    named.is_some_and(lacks)
}

/// Returns the message of an error in these arguments; `None` if its text is a help text.
fn message<P: CommandFactory>(error: &Error, args: &[OsString]) -> Option<String> {
    let text = |kind| context(error, kind);
    let name = || text(ContextKind::InvalidArg).unwrap_or_default();
    // The value's name follows the option's.
    let option = || name().split([' ', '=']).next().unwrap_or_default().to_owned();
    let value = || text(ContextKind::InvalidValue).unwrap_or_default();
    Some(match error.kind() {
        ErrorKind::UnknownArgument => {
            let is_serve = args.get(1).is_some_and(|command| command == "serve");
            let foreign = is_serve.then(|| serve::tip(&name())).flatten().map(str::to_owned);
            let near =
                || text(ContextKind::SuggestedArg).map(|near| format!("did you mean {near}?"));
            let hint = foreign.or_else(near).or_else(|| tip(error));
            let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
            match name() {
                name if name.starts_with('-') => format!("unknown option {name}{hint}"),
                name if lacks_command::<P>(args) => {
                    format!("unknown command '{name}'; expected one of {}", commands::<P>(args))
                }
                name => format!("unexpected argument '{name}'{hint}"),
            }
        }
        ErrorKind::InvalidSubcommand => {
            let near = text(ContextKind::SuggestedSubcommand);
            let hint = match near {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("expected one of {}", commands::<P>(args)),
            };
            let command = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command '{command}'; {hint}")
        }
        ErrorKind::InvalidValue => {
            let option = option();
            invalid_value(error, &option, &value(), lists_all_values::<P>(args, &option))
        }
        ErrorKind::ValueValidation => {
            let why = error.source().map_or("unknown value".to_owned(), ToString::to_string);
            // The standard library's words for numbers.
            let why = match why.as_str() {
                "invalid digit found in string" | "cannot parse integer from empty string" => {
                    "not a whole number"
                }
                "number too large to fit in target type" => "too large",
                why => why,
            };
            bad_value(&option(), &value(), why)
        }
        ErrorKind::ArgumentConflict => {
            let prior = text(ContextKind::PriorArg).unwrap_or_default();
            let prior = prior.split(' ').next().unwrap_or_default().to_owned();
            if prior == option() || prior.is_empty() {
                format!("{} was given more than once", option())
            } else {
                format!("{} cannot be combined with {prior}", option())
            }
        }
        ErrorKind::MissingRequiredArgument => match needs_real(&name(), args) {
            Some(option) => format!("{option} needs --real: virtual time has fixed lengths"),
            None => missing_disk(args).unwrap_or_else(|| format!("missing argument: {}", name())),
        },
        ErrorKind::MissingSubcommand => {
            format!("missing command; expected one of {}", commands::<P>(args))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return None,
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    })
}

/// Returns the message for a value that the parser of an option refuses.
fn bad_value(option: &str, value: &str, why: &str) -> String {
    match option.strip_prefix('[') {
        Some(name) => format!("{} '{value}': {why}", name.trim_end_matches(']')),
        None => format!("{option}={value}: {why}"),
    }
}

/// Returns whether clap's list of values has all that an option of the command takes.
fn lists_all_values<P: CommandFactory>(args: &[OsString], option: &str) -> bool {
    let program = P::command();
    let named = args.get(1).and_then(|name| program.find_subcommand(name));
    !named.is_some_and(|named| takes_more_than_words(named, option))
}

/// Returns whether an option of a command, or of one of its commands, takes values that are not
/// among the words which a shell completes.
fn takes_more_than_words(command: &clap::Command, option: &str) -> bool {
    let is_it = |arg: &&clap::Arg| {
        arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long))
            && arg.is_hide_possible_values_set()
    };
    command.get_arguments().any(|arg| is_it(&arg))
        || command.get_subcommands().any(|sub| takes_more_than_words(sub, option))
}

/// Returns the message for a value that is none of the accepted ones, or is missing. Lists the
/// accepted ones if the error has the whole list.
fn invalid_value(error: &Error, option: &str, value: &str, is_whole: bool) -> String {
    let accepted = context(error, ContextKind::ValidValue)
        .filter(|_| is_whole)
        .map_or(String::new(), |accepted| format!(" (accepted: {accepted})"));
    match value {
        "" => format!("{option} needs a value{accepted}"),
        value if option.starts_with('<') => {
            format!("unknown value '{value}' of {option}{accepted}")
        }
        value => format!("{option}={value}: unknown value '{value}'{accepted}"),
    }
}

/// Returns the option of `lab` that is given without `--real`, which `missing` names.
fn needs_real(missing: &str, args: &[OsString]) -> Option<&'static str> {
    let is_given = |option: &&str| is_given(option, args);
    (missing == "--real").then(|| ["--full", "--seconds"].into_iter().find(is_given)).flatten()
}

/// Returns the message for a `serve` that has no disk, and an option that needs one.
fn missing_disk(args: &[OsString]) -> Option<String> {
    let is_serve = args.get(1).is_some_and(|command| command == "serve");
    is_serve.then(|| serve::missing_disk(|option| is_given(option, args))).flatten()
}

/// Returns whether the arguments have an option.
fn is_given(option: &str, args: &[OsString]) -> bool {
    let mut args = args.iter().filter_map(|arg| arg.to_str());
    args.any(|arg| arg.split('=').next() == Some(option))
}

/// Returns the tip of an error. clap's own one is wrong for options: it suggests to pass the
/// unknown option as a value.
fn tip(error: &Error) -> Option<String> {
    match error.get(ContextKind::Suggested)? {
        ContextValue::StyledStrs(tips) => {
            let mut tips = tips.iter().map(ToString::to_string);
            tips.find(|tip| !tip.contains("as a value"))
        }
        _ => None,
    }
}

fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if texts.is_empty() => None,
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}

/// Removes the failed argument, with its value, from the arguments. Returns `false` if it is not
/// found.
fn take_out(error: &Error, args: &mut Vec<OsString>) -> bool {
    let is_of_one = matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidValue | ErrorKind::ValueValidation
    );
    let name = context(error, ContextKind::InvalidArg).filter(|_| is_of_one);
    let Some(name) = name else { return false };
    let name = name.split([' ', '=']).next().unwrap_or_default();
    let value = context(error, ContextKind::InvalidValue);
    // The name of the program comes first.
    let nr_args = |at| nr_args_of(name, value.as_deref(), &args[at..]).map(|nr| at..at + nr);
    let Some(failed) = (1..args.len()).find_map(nr_args) else { return false };
    args.drain(failed);
    true
}

/// Returns how many of the first arguments are the option with this value: a repeated option may be
/// wrong in one place only. `None`: the first argument is not this option, or has another value.
fn nr_args_of(name: &str, value: Option<&str>, args: &[OsString]) -> Option<usize> {
    let first = args[0].to_string_lossy();
    let next = args.get(1).map(|next| next.to_string_lossy());
    let next = next.as_deref();
    let behind = first.strip_prefix(name)?;
    match (behind.strip_prefix('='), value) {
        // An unknown option.
        (Some(_), None) => Some(1),
        (None, None) if behind.is_empty() => Some(1),
        (Some(own), Some(value)) if own == value => Some(1),
        (None, Some(_)) if !behind.is_empty() => None,
        // The value is missing.
        (None, Some("")) if next.is_none_or(|next| next.starts_with('-')) => Some(1),
        (None, Some(value)) if next == Some(value) => Some(2),
        _ => None,
    }
}
