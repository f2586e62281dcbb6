//! Printing, with every error checked.
//!
//! `println!` panics when its reader has closed the pipe. Here a closed pipe (`forebay ... | head`)
//! is no error, because no one reads the message.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use forebay::{DiskInfo, Setting, Spec, SpecError};

use crate::experiments;
use crate::failure::Failure;

/// Prints to standard output.
pub(crate) fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints to standard error. An error of this write cannot be reported anywhere.
pub(crate) fn stderr(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints messages for the user of a disk to standard error.
pub(crate) fn notice(info: &DiskInfo) {
    notices(info).iter().for_each(|notice| stderr(&format!("forebay: {notice}\n")));
}

/// Returns messages for the user of a disk: its notice, keys that have no effect on it, and a
/// warning about a setting that starves threads.
pub(crate) fn notices(info: &DiskInfo) -> Vec<String> {
    let name = info.spec.split('?').next().unwrap_or_default();
    let mut notices: Vec<_> =
        info.notice.iter().map(|notice| format!("{name}: {notice}")).collect();
    let spec = Spec::parse(&info.spec);
    for (key, value) in spec.iter().flat_map(Spec::keys) {
        let Some(setting) = Setting::named(key).filter(|it| !it.is_default(value)) else {
            continue;
        };
        if !setting.applies(info) {
            let when = setting.when;
            notices.push(format!("{name}: {key}={value} has no effect: it needs {when}"));
        } else if let Some(other) = in_force(setting, value, info) {
            notices.push(format!("{name}: {key}={value} has no effect: {key}={other} is in force"));
        }
    }
    notices.extend(limited(info, &spec).map(|text| format!("{name}: {text}")));
    let warning = experiments::starvation(&info.policy);
    notices.extend(warning.map(|warning| format!("warning: {name}: {warning}")));
    notices
}

/// Returns the value in force of a setting if it is not the given one.
fn in_force(setting: &Setting, given: &str, info: &DiskInfo) -> Option<String> {
    let other = setting.get(info).filter(|_| setting.key != "max_sectors_kb")?;
    let number = |value: &str| setting.values.number(value);
    (number(given).is_some() && number(given) != number(&other)).then_some(other)
}

/// Returns a message if the device's limit is below the largest request that the spec asks for.
fn limited(info: &DiskInfo, spec: &Result<Spec, SpecError>) -> Option<String> {
    let asked = spec.as_ref().ok()?.get("max_sectors_kb")?;
    let kib = Setting::named("max_sectors_kb")?.values.number(asked)?;
    let max_kib = info.limits.max_hw_sectors / 2;
    (kib > max_kib.into()).then(|| {
        format!(
            "max_sectors_kb={asked} is limited to {max_kib} KiB, the max_hw_sectors_kb of the \
             device"
        )
    })
}

/// A progress line on standard error. On a terminal it is cut to one line, so that the next one
/// replaces it.
#[derive(Debug, Default)]
pub(crate) struct ProgressLine {
    /// Columns that the line on the screen takes.
    width: usize,
}

impl ProgressLine {
    /// Replaces the line.
    pub(crate) fn show(&mut self, text: &str) {
        let text = cut(text, columns());
        stderr(&format!("\r{text:old$}", old = self.width));
        self.width = text.chars().count();
    }

    /// Keeps the line on the screen, and starts a new one.
    pub(crate) fn keep(&mut self) {
        stderr("\n");
        self.width = 0;
    }

    /// Removes the line.
    pub(crate) fn clear(&mut self) {
        if self.width > 0 {
            stderr(&format!("\r{:1$}\r", "", self.width));
            self.width = 0;
        }
    }
}

/// Returns the columns of the terminal at standard error; `None` if it is no terminal.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Returns the text, cut so that one column stays free: in the last one some terminals wrap.
fn cut(text: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if text.chars().count() >= columns => {
            let kept = columns.saturating_sub(4);
            text.chars().take(kept).chain("...".chars()).take(columns.saturating_sub(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Returns why a file cannot be created, with the remedy if its folder is missing.
pub(crate) fn cannot_create(path: &Path, error: &io::Error) -> String {
    match path.parent().filter(|_| error.kind() == ErrorKind::NotFound) {
        Some(folder) => format!("there is no folder {}: create it first", folder.display()),
        None => error.to_string(),
    }
}

/// The destination of a report.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Standard output.
    Stdout,
    /// A file, with its name.
    File(File, PathBuf),
}

impl Sink {
    /// Opens standard output, or creates or truncates the file at `path`.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        match File::create(path) {
            Ok(file) => Ok(Self::File(file, path.to_owned())),
            Err(error) => {
                let why = cannot_create(path, &error);
                Err(Failure::Run(format!("--output={}: {why}", path.display())))
            }
        }
    }

    /// Returns whether text may have colours: it goes to a terminal, and `NO_COLOR` is not set.
    pub(crate) fn has_colours(&self) -> bool {
        let is_terminal = matches!(self, Self::Stdout) && io::stdout().is_terminal();
        is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// Prints to it.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => stdout(text),
            Self::File(file, path) => file
                .write_all(text.as_bytes())
                .map_err(|error| Failure::Run(format!("--output={}: {error}", path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_fits_the_terminal() {
        let line = "Jobs: 1 (f=1): [r(1)][10.0%]";
        assert_eq!(cut(line, None), line);
        assert_eq!(cut(line, Some(29)), line);
        assert_eq!(cut(line, Some(28)), "Jobs: 1 (f=1): [r(1)][10...");
        assert_eq!(cut(line, Some(10)), "Jobs: ...");
        assert_eq!(cut(line, Some(2)), ".");
        for columns in 1..40 {
            assert!(cut(line, Some(columns)).chars().count() < columns.max(29), "{columns}");
        }
    }
}
