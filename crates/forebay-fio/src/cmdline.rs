//! The command line, in fio's order-dependent way.
//!
//! Source: fio's HOWTO, "Job file format" and "Command line options". `--name=x` opens a job;
//! options after it belong to that job, options before the first one are defaults for all jobs, and
//! after `--name=global` they are defaults for the jobs that are opened later. An option is written
//! `--option=value` or `--option value`; flags may stand alone and never take the next argument.
//! Anything else names a job file. As in fio, all options are read before the first file, wherever
//! they stand. So the defaults hold for the files too, and jobs of the command line come first. If
//! there are two files, the second waits for the first.
//!
//! Three things differ from fio. A log option without a value, such as `--write_bw_log`, does not
//! take the next option for its value, but means the job's name, as in a job file. Without `--name`
//! and without a file there is one job, `bench`, where fio would refuse: random reads of 4 KiB at
//! depth 32 for five seconds, on a RAM disk of 1 GiB unless another device is named. And all errors
//! are reported at once ([`CommandErrors`]), not only the first.

use std::ffi::OsString;
use std::iter::Peekable;
use std::path::PathBuf;

use crate::assembly::{Assembly, is_job_name};
use crate::errors::UsageError;
use crate::host::{Host, NoHost};
use crate::job::JobList;
use crate::jobfile;
use crate::logs::JOB_NAME;
use crate::options::{self, Found, Kind};
use crate::origin::Source;

pub use crate::errors::{CommandError, CommandErrors};

/// A parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed {
    /// Run these jobs.
    Run(Box<JobList>),
    /// Show the help text: of all options ([`options::help`]), or of the one that is named
    /// ([`options::help_of`]).
    Help(Option<String>),
}

/// Parses the arguments that follow `bench`, without job files.
///
/// # Errors
///
/// All errors of the arguments. A job file that is named cannot be read.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, CommandErrors> {
    parse_with(args, &mut NoHost)
}

/// Parses the arguments that follow `bench`, and the job files that they name.
///
/// # Errors
///
/// All errors of the arguments and of the files.
pub fn parse_with(
    args: impl IntoIterator<Item = OsString>,
    host: &mut dyn Host,
) -> Result<Parsed, CommandErrors> {
    let mut assembly = Assembly::default();
    let mut files = Vec::new();
    let mut args = args.into_iter().peekable();
    while let Some(argument) = args.next().filter(|_| !assembly.has_enough_errors()) {
        if is_file(&argument) {
            files.push(PathBuf::from(argument));
            continue;
        }
        match option(&mut assembly, argument, &mut args) {
            Ok(None) => {}
            Ok(Some(help)) => return Ok(help),
            Err(error) => assembly.fail(error),
        }
    }
    assembly.end_arguments();
    for (nth, file) in files.iter().enumerate() {
        assembly.begin_file(nth);
        jobfile::read_into(&mut assembly, file, host);
    }
    Ok(Parsed::Run(Box::new(assembly.finish(files.len())?)))
}

/// Takes one option, and its value from `args` if that follows by itself. Returns `Some` if it asks
/// for help.
fn option(
    assembly: &mut Assembly,
    argument: OsString,
    args: &mut Peekable<impl Iterator<Item = OsString>>,
) -> Result<Option<Parsed>, UsageError> {
    let argument = text(argument)?;
    let Some((name, value)) = split(&argument)? else { return Ok(Some(Parsed::Help(None))) };
    let found = options::lookup(name).inspect_err(|_| {
        if value.is_none() {
            // It is probably the value, and no file.
            args.next_if(|next| !next.as_encoded_bytes().starts_with(b"-"));
        }
    })?;
    if matches!(found, Found::Supported(spec) if matches!(spec.kind, Kind::Help)) {
        return Ok(Some(Parsed::Help(value.map(str::to_owned))));
    }
    let bare = value.is_none() && found.is_flag();
    let value = match value {
        Some(value) => value.to_owned(),
        None if bare => "1".to_owned(),
        // The job's name, as in a job file.
        None if found.is_log() && args.peek().is_none_or(is_option) => JOB_NAME.to_owned(),
        None => match args.next() {
            Some(next) => text(next)?,
            None => return Err(missing_value(name, found)),
        },
    };
    if is_job_name(found) {
        assembly.close_reporting();
        assembly.open(&value)?;
        assembly.remember("name", &value);
    } else {
        assembly.set(found, name, &value, bare, Source::CommandLine)?;
    }
    Ok(None)
}

/// Returns whether an argument has the form of an option.
fn is_option(argument: &OsString) -> bool {
    argument.as_encoded_bytes().starts_with(b"-")
}

/// Returns whether an argument names a job file: `-` is standard input. An option without its
/// dashes does not.
fn is_file(argument: &OsString) -> bool {
    let bytes = argument.as_encoded_bytes();
    let option = argument.to_str().and_then(|text| text.split_once('='));
    let is_option = option.is_some_and(|(name, _)| options::lookup(name).is_ok());
    bytes == b"-" || !(bytes.is_empty() || bytes.starts_with(b"-") || is_option)
}

/// Splits `--name=value` or `--name`; `None` is `-h`.
fn split(argument: &str) -> Result<Option<(&str, Option<&str>)>, UsageError> {
    if argument == "-h" {
        return Ok(None);
    }
    let not_an_option = || UsageError::NotAnOption { argument: argument.to_owned() };
    let option = argument.strip_prefix("--").ok_or_else(not_an_option)?;
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    if name.is_empty() { Err(not_an_option()) } else { Ok(Some((name, value))) }
}

fn text(argument: OsString) -> Result<String, UsageError> {
    argument
        .into_string()
        .map_err(|raw| UsageError::NotUtf8 { argument: raw.to_string_lossy().into_owned() })
}

fn missing_value(name: &str, found: Found) -> UsageError {
    UsageError::MissingValue { name: name.to_owned(), accepted: found.accepted() }
}

#[cfg(test)]
mod tests;
