//! Job files: fio's ini form of what the command line says.
//!
//! Source: fio's HOWTO, "Job file format", and what fio 3.33 does. `[name]` opens a job and
//! `[global]` sets defaults for the jobs below it; a line is `option=value`, or a bare flag. A
//! comment goes from `;` or `#` to the end of the line, wherever that stands. `include FILE` reads
//! the options of another file; fio looks for it where the program runs, then beside the file that
//! includes it. `${VARIABLE}` is filled in, and so are `$pagesize`, `$mb_memory` and `$ncpus`.
//!
//! The options are those of the command line ([`crate::options`]), but for those of a whole run.
//! Files are read through a [`Host`], and all limits together bound what hostile ones can cost.

mod error;
mod expand;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::assembly::{Assembly, is_global, is_job_name};
use crate::cmdline::{CommandError, CommandLine};
use crate::host::Host;
use crate::options::{self, Found, UsageError};

pub use self::error::{JobFileError, Place, Problem};

/// fio's limit on a line.
const LINE_BYTES_MAX: usize = 8192;

/// All files of a job file together: far more than people write.
const BYTES_MAX: usize = 1 << 20;

/// Files that a job file may include: without a limit, ten that include the next one ten times are
/// ten billion.
const INCLUDES_MAX: usize = 1000;

/// How deep they may nest, which bounds the stack.
const NESTING_MAX: usize = 16;

/// Parses a job file.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse(file: &Path, host: &mut dyn Host) -> Result<CommandLine, CommandError> {
    let mut assembly = Assembly::default();
    read_into(&mut assembly, file, host)?;
    Ok(assembly.finish(1)?)
}

/// Adds the jobs of a file.
pub(crate) fn read_into(
    assembly: &mut Assembly,
    file: &Path,
    host: &mut dyn Host,
) -> Result<(), Box<JobFileError>> {
    let mut reader = Reader {
        assembly,
        host,
        section: Section::None,
        chain: Vec::new(),
        bytes: 0,
        nr_includes: 0,
    };
    let name = match file.display().to_string() {
        name if name == "-" => "<stdin>".to_owned(),
        name => name,
    };
    let contents = reader.host.read(file).map_err(|error| error.to_string());
    reader.chain.push(Link { path: file.to_owned(), name, line: 0 });
    let contents = contents.map_err(|error| reader.error(None, Problem::Read(error)))?;
    reader.lines(&contents)?;
    reader.close()
}

/// Where in the file the reader is.
#[derive(Debug)]
enum Section {
    None,
    /// Defaults.
    Global,
    /// A job; errors that only its end shows are shown at its beginning.
    Job(Place),
    /// A job that `--section` leaves out.
    LeftOut,
}

/// A file that is being read.
#[derive(Debug)]
struct Link {
    path: PathBuf,
    name: String,
    /// The line that is being read.
    line: usize,
}

struct Reader<'a> {
    assembly: &'a mut Assembly,
    host: &'a mut dyn Host,
    section: Section,
    /// The job file, the file that it includes, and so on.
    chain: Vec<Link>,
    bytes: usize,
    nr_includes: usize,
}

/// A line of which something is wrong: the bytes, and what.
type Wrong = (Range<usize>, Problem);

impl Reader<'_> {
    fn lines(&mut self, contents: &[u8]) -> Result<(), Box<JobFileError>> {
        self.bytes += contents.len();
        if self.bytes > BYTES_MAX {
            return Err(self.error(None, Problem::TooLarge));
        }
        // Editors of other systems put it there.
        let contents = contents.strip_prefix("\u{feff}".as_bytes()).unwrap_or(contents);
        for (at, line) in contents.split(|&byte| byte == b'\n').enumerate() {
            if let Some(link) = self.chain.last_mut() {
                link.line = at + 1;
            }
            if line.len() > LINE_BYTES_MAX {
                let text = String::from_utf8_lossy(line);
                let place = self.place(&text, 0..text.len());
                return Err(self.error(Some(place), Problem::LongLine));
            }
            let Ok(text) = std::str::from_utf8(line) else {
                let text = String::from_utf8_lossy(line).into_owned();
                let start = text.find('\u{fffd}').unwrap_or(0);
                let place = self.place(&text, start..(start + '\u{fffd}'.len_utf8()));
                return Err(self.error(Some(place), Problem::NotUtf8));
            };
            self.line(text.strip_suffix('\r').unwrap_or(text))?;
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> Result<(), Box<JobFileError>> {
        let end = text.find([';', '#']).unwrap_or(text.len());
        let content = text[..end].trim();
        if content.is_empty() {
            return Ok(());
        }
        let start = end - text[..end].trim_start().len();
        let all = start..start + content.len();
        if content.starts_with('[') {
            return self.section(text, content, all);
        }
        if let Some(file) = include_of(content) {
            return self.include(file, text, all);
        }
        let done = match self.section {
            Section::None => Err((all, Problem::NoSection)),
            Section::LeftOut => Ok(()),
            Section::Global | Section::Job(_) => self.option(content, start),
        };
        done.map_err(|(range, problem)| self.error(Some(self.place(text, range)), problem))
    }

    fn section(
        &mut self,
        text: &str,
        content: &str,
        range: Range<usize>,
    ) -> Result<(), Box<JobFileError>> {
        let place = self.place(text, range);
        let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            return Err(self.error(Some(place), Problem::OpenSection));
        };
        if self.chain.len() > 1 {
            return Err(self.error(Some(place), Problem::SectionInInclude));
        }
        self.close()?;
        let name = name.trim();
        if self.assembly.is_left_out(name) {
            self.section = Section::LeftOut;
            return Ok(());
        }
        if let Err(error) = self.assembly.open(name) {
            return Err(self.error(Some(place), Problem::Usage(error)));
        }
        self.section = if is_global(name) { Section::Global } else { Section::Job(place) };
        Ok(())
    }

    /// Ends the section.
    fn close(&mut self) -> Result<(), Box<JobFileError>> {
        let section = std::mem::replace(&mut self.section, Section::None);
        let Err(error) = self.assembly.close() else { return Ok(()) };
        let place = match section {
            Section::Job(place) => Some(place),
            _ => None,
        };
        Err(self.error(place, Problem::Usage(error)))
    }

    /// Sets an option of the section. `start` is where `content` begins in its line.
    fn option(&mut self, content: &str, start: usize) -> Result<(), Wrong> {
        let whole = start..start + content.len();
        let filled = expand::variables(content, self.host).map_err(|p| (whole.clone(), p))?;
        let (name, value) = match filled.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (&*filled, None),
        };
        let ranges = Ranges::of(content, start);
        let wrong = |error: UsageError| {
            let range = match error {
                UsageError::BadValue { .. } => ranges.value.clone(),
                _ => ranges.name.clone(),
            };
            (range, Problem::Usage(error))
        };
        let found =
            options::lookup(name).map_err(|error| no_equals(name, value, error, &ranges))?;
        if matches!(found, Found::Supported(spec) if spec.is_of_run()) {
            return Err(wrong(UsageError::RunOption { name: name.to_owned() }));
        }
        let bare = value.is_none();
        let value = match value {
            Some(value) => expand::keywords(value, self.host).map_err(|p| (whole.clone(), p))?,
            None if found.is_flag() => "1".to_owned(),
            None => {
                let (name, accepted) = (name.to_owned(), found.accepted());
                return Err(wrong(UsageError::MissingValue { name, accepted }));
            }
        };
        if is_job_name(found) {
            self.assembly.rename(&value);
            return Ok(());
        }
        let place = self.chain.last().map(|link| format!("{}:{}: ", link.name, link.line));
        let place = place.unwrap_or_default();
        self.assembly.set(found, name, &value, bare, &place).map_err(|mut error| {
            if let (UsageError::BadValue { reason, .. }, Some(unset)) =
                (&mut error, expand::first_unset(content, self.host))
            {
                reason.push_str(&format!("; ${{{unset}}} is not set, and empty"));
            }
            wrong(error)
        })
    }

    fn include(
        &mut self,
        file: &str,
        text: &str,
        range: Range<usize>,
    ) -> Result<(), Box<JobFileError>> {
        let place = self.place(text, range);
        let fail = |reader: &Self, problem| Err(reader.error(Some(place.clone()), problem));
        match self.section {
            Section::None => return fail(self, Problem::NoSection),
            Section::LeftOut => return Ok(()),
            Section::Global | Section::Job(_) => {}
        }
        if file.is_empty() {
            return fail(self, Problem::NoInclude);
        }
        self.nr_includes += 1;
        if self.nr_includes > INCLUDES_MAX {
            return fail(self, Problem::TooManyIncludes);
        }
        // `-` is a file here.
        let given = if file == "-" { Path::new("./-") } else { Path::new(file) };
        let beside = self.chain.last().and_then(|link| link.path.parent()).map(|p| p.join(given));
        let candidates = std::iter::once(given.to_owned()).chain(beside);
        let mut missing = String::new();
        for path in candidates {
            let is_cycle = self.chain.iter().any(|link| same_path(&link.path, &path));
            if is_cycle || self.chain.len() > NESTING_MAX {
                return fail(self, Problem::Cycle(file.to_owned()));
            }
            match self.host.read(&path) {
                Ok(contents) => return self.included(path, &contents),
                Err(error) => missing = format!("{file}: {error}"),
            }
        }
        fail(self, Problem::Read(missing))
    }

    /// Reads the lines of a file that is included.
    fn included(&mut self, path: PathBuf, contents: &[u8]) -> Result<(), Box<JobFileError>> {
        self.chain.push(Link { name: path.display().to_string(), path, line: 0 });
        self.lines(contents)?;
        self.chain.pop();
        Ok(())
    }

    fn place(&self, text: &str, range: Range<usize>) -> Place {
        let line = self.chain.last().map_or(0, |link| link.line);
        Place { line, text: text.to_owned(), range }
    }

    fn error(&self, place: Option<Place>, problem: Problem) -> Box<JobFileError> {
        let mut links = self.chain.iter().rev();
        let file = links.next().map(|link| link.name.clone()).unwrap_or_default();
        let included_from = links.map(|link| (link.name.clone(), link.line)).collect();
        Box::new(JobFileError { file, place, included_from, problem })
    }
}

/// What stands behind `include`, if the line begins with it.
fn include_of(content: &str) -> Option<&str> {
    let rest = content.strip_prefix("include")?;
    match rest.chars().next() {
        None => Some(""),
        Some(c) if c == '=' || c.is_whitespace() => Some(rest[c.len_utf8()..].trim()),
        Some(_) => None,
    }
}

/// Whether two paths are the same but for `.` in them. The limit on nesting finds the rest.
fn same_path(a: &Path, b: &Path) -> bool {
    let parts = |path: &Path| {
        let current = |part: &_| *part == std::path::Component::CurDir;
        path.components().filter(|part| !current(part)).collect::<PathBuf>()
    };
    parts(a) == parts(b)
}

/// The bytes of a line that are the name and the value.
#[derive(Debug)]
struct Ranges {
    name: Range<usize>,
    value: Range<usize>,
}

impl Ranges {
    fn of(content: &str, start: usize) -> Self {
        let Some((name, value)) = content.split_once('=') else {
            let whole = start..start + content.len();
            return Self { name: whole.clone(), value: whole };
        };
        let end = start + content.len();
        let blanks = value.len() - value.trim_start().len();
        let value = (start + name.len() + 1 + blanks).min(end)..end;
        Self { name: start..start + name.trim_end().len(), value }
    }
}

/// An option and a value without `=` get a hint; all else is what it was.
fn no_equals(name: &str, value: Option<&str>, error: UsageError, ranges: &Ranges) -> Wrong {
    if value.is_none()
        && let Some((option, rest)) = name.split_once(char::is_whitespace)
        && options::lookup(option).is_ok()
    {
        let (name, value) = (option.to_owned(), rest.trim().to_owned());
        return (ranges.name.clone(), Problem::NoEquals { name, value });
    }
    (ranges.name.clone(), Problem::Usage(error))
}

#[cfg(test)]
mod tests;
