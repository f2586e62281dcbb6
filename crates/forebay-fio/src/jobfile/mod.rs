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

mod expand;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::assembly::{Assembly, is_global, is_job_name};
use crate::errors::{CommandErrors, JobFileError, Place, Problem, UsageError};
use crate::host::Host;
use crate::job::JobList;
use crate::logs::JOB_NAME;
use crate::options::{self, Found};
use crate::origin::{FilePlace, Source};

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
/// All errors of the file and of those that it includes.
pub fn parse(file: &Path, host: &mut dyn Host) -> Result<JobList, CommandErrors> {
    let mut assembly = Assembly::default();
    read_into(&mut assembly, file, host);
    assembly.finish(1)
}

/// Adds the jobs of a file, or its errors.
pub(crate) fn read_into(assembly: &mut Assembly, file: &Path, host: &mut dyn Host) {
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
    reader.assembly.files.push(file.to_owned());
    reader.chain.push(Link { path: file.to_owned(), name, line: 0 });
    match contents {
        Ok(contents) if is_binary(&contents) => {
            reader.fail_outside(None, Problem::Binary(file.display().to_string()))
        }
        // The error that ended the reading has been recorded.
        Ok(contents) => drop(reader.lines(&contents)),
        Err(error) => reader.fail_outside(None, Problem::Read(error)),
    }
    reader.close();
}

/// Returns whether the contents are those of a disk image or another file that is no text. A text
/// in another encoding than UTF-8 has its own error, which names the line.
fn is_binary(contents: &[u8]) -> bool {
    contents.iter().take(LINE_BYTES_MAX).any(|&byte| byte == 0)
}

/// Where in the file the reader is.
#[derive(Debug)]
enum Section {
    None,
    /// Defaults.
    Global,
    /// A job; errors that only its end shows are shown at its beginning.
    Job(Place),
    /// Lines that are skipped: of a job that `--section` leaves out, or after an error that leaves
    /// open what they belong to.
    Skipped,
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

/// An error that is recorded, and after which reading does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halt {
    /// In this file.
    File,
    /// In any file.
    All,
}

/// A wrong part of a line: its bytes, and what is wrong.
type Wrong = (Range<usize>, Problem);

impl Reader<'_> {
    fn lines(&mut self, contents: &[u8]) -> Result<(), Halt> {
        self.bytes += contents.len();
        if self.bytes > BYTES_MAX {
            self.fail_outside(None, Problem::TooLarge { max_bytes: BYTES_MAX });
            return Err(Halt::All);
        }
        // Editors of other systems put it there.
        let contents = contents.strip_prefix("\u{feff}".as_bytes()).unwrap_or(contents);
        let lines: Vec<_> = contents.split(|&byte| byte == b'\n').collect();
        if self.chain.len() > 1 {
            self.base_first(&lines, 0);
        }
        for (at, &line) in lines.iter().enumerate() {
            if self.assembly.has_enough_errors() {
                return Err(Halt::All);
            }
            self.set_line(at + 1);
            if line.len() > LINE_BYTES_MAX {
                let text = String::from_utf8_lossy(line);
                let place = self.place(&text, 0..text.len());
                self.fail(place, Problem::LongLine { max_bytes: LINE_BYTES_MAX });
                continue;
            }
            let Ok(text) = std::str::from_utf8(line) else {
                let text = String::from_utf8_lossy(line).into_owned();
                let start = text.find('\u{fffd}').unwrap_or(0);
                let place = self.place(&text, start..(start + '\u{fffd}'.len_utf8()));
                self.fail(place, Problem::NotUtf8);
                continue;
            };
            let text = text.strip_suffix('\r').unwrap_or(text);
            self.line(text)?;
            if content_of(text).is_some_and(|(content, _)| content.starts_with('[')) {
                self.base_first(&lines, at + 1);
            }
        }
        Ok(())
    }

    /// Sets `kb_base` before the other options of a section or an included file, from line number
    /// `from` on. As in fio, the base holds for all of them, wherever it is given.
    fn base_first(&mut self, lines: &[&[u8]], from: usize) {
        if !matches!(self.section, Section::Global | Section::Job(_)) {
            return;
        }
        let line_now = self.chain.last().map_or(0, |link| link.line);
        for (at, line) in lines.iter().enumerate().skip(from) {
            let Ok(text) = std::str::from_utf8(line) else { continue };
            let text = text.strip_suffix('\r').unwrap_or(text);
            match content_of(text) {
                Some((content, _)) if content.starts_with('[') => break,
                Some((content, start)) if is_base(content) => {
                    self.set_line(at + 1);
                    self.option_or_error(text, content, start);
                }
                _ => {}
            }
        }
        self.set_line(line_now);
    }

    fn set_line(&mut self, line: usize) {
        if let Some(link) = self.chain.last_mut() {
            link.line = line;
        }
    }

    fn line(&mut self, text: &str) -> Result<(), Halt> {
        let Some((content, start)) = content_of(text) else { return Ok(()) };
        let all = start..start + content.len();
        if content.starts_with('[') {
            return self.section(text, content, all);
        }
        match self.section {
            Section::None => {
                let place = self.place(text, all);
                self.fail_outside(Some(place), Problem::NoSection);
                self.section = Section::Skipped;
                return Ok(());
            }
            Section::Skipped => return Ok(()),
            Section::Global | Section::Job(_) => {}
        }
        if let Some(file) = include_of(content) {
            let place = self.place(text, all);
            return self.include(file, place);
        }
        // The base has been set already.
        if !is_base(content) {
            self.option_or_error(text, content, start);
        }
        Ok(())
    }

    fn option_or_error(&mut self, text: &str, content: &str, start: usize) {
        if let Err((range, problem)) = self.option(text, content, start) {
            let place = self.place(text, range);
            self.fail(place, problem);
        }
    }

    fn section(&mut self, text: &str, content: &str, range: Range<usize>) -> Result<(), Halt> {
        let place = self.place(text, range);
        let name = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if self.chain.len() > 1 {
            let is_section = name.is_some();
            let problem = if is_section { Problem::SectionInInclude } else { Problem::OpenSection };
            self.fail(place, problem);
            return Err(Halt::File);
        }
        self.close();
        let Some(name) = name else {
            self.fail_outside(Some(place), Problem::OpenSection);
            self.section = Section::Skipped;
            return Ok(());
        };
        let name = name.trim();
        if self.assembly.is_left_out(name) {
            self.section = Section::Skipped;
            return Ok(());
        }
        if let Err(error) = self.assembly.open(name) {
            self.fail_outside(Some(place), Problem::Usage(error));
            return Err(Halt::All);
        }
        self.section = if is_global(name) { Section::Global } else { Section::Job(place) };
        Ok(())
    }

    /// Ends the section.
    fn close(&mut self) {
        let section = std::mem::replace(&mut self.section, Section::None);
        let Err(error) = self.assembly.close() else { return };
        let place = match section {
            Section::Job(place) => Some(place),
            _ => None,
        };
        self.fail_outside(place, Problem::Usage(error));
    }

    /// Sets an option of the section. `start` is where `content` begins in `text`.
    fn option(&mut self, text: &str, content: &str, start: usize) -> Result<(), Wrong> {
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
        let bare = value.is_none() && !found.is_log();
        let value = match value {
            Some(value) => expand::keywords(value, self.host).map_err(|p| (whole.clone(), p))?,
            None if found.is_flag() => "1".to_owned(),
            None if found.is_log() => JOB_NAME.to_owned(),
            None => {
                let (name, accepted) = (name.to_owned(), found.accepted());
                return Err(wrong(UsageError::MissingValue { name, accepted }));
            }
        };
        if is_job_name(found) {
            self.assembly.rename(&value);
            return Ok(());
        }
        let source = Source::File(self.file_place(self.place(text, whole)));
        self.assembly.set(found, name, &value, bare, source).map_err(|mut error| {
            if let (UsageError::BadValue { reason, .. }, Some(unset)) =
                (&mut error, expand::first_unset(content, self.host))
            {
                reason.push_str(&format!("; ${{{unset}}} is not set, so it is empty"));
            }
            wrong(error)
        })
    }

    fn include(&mut self, file: &str, place: Place) -> Result<(), Halt> {
        if file.is_empty() {
            self.fail(place, Problem::NoInclude);
            return Ok(());
        }
        self.nr_includes += 1;
        if self.nr_includes > INCLUDES_MAX {
            self.fail(place, Problem::TooManyIncludes { max: INCLUDES_MAX });
            return Err(Halt::All);
        }
        // `-` is a file here.
        let given = if file == "-" { Path::new("./-") } else { Path::new(file) };
        let beside = self.chain.last().and_then(|link| link.path.parent()).map(|p| p.join(given));
        let candidates = std::iter::once(given.to_owned()).chain(beside);
        let mut missing = String::new();
        for path in candidates {
            let is_cycle = self.chain.iter().any(|link| same_path(&link.path, &path));
            if is_cycle || self.chain.len() > NESTING_MAX {
                self.fail(place, Problem::Cycle(file.to_owned()));
                return Ok(());
            }
            match self.host.read(&path) {
                Ok(contents) => return self.included(path, &contents),
                Err(error) => missing = format!("{file}: {error}"),
            }
        }
        self.fail(place, Problem::Read(missing));
        Ok(())
    }

    /// Reads the lines of a file that is included.
    fn included(&mut self, path: PathBuf, contents: &[u8]) -> Result<(), Halt> {
        self.assembly.files.push(path.clone());
        self.chain.push(Link { name: path.display().to_string(), path, line: 0 });
        let read = self.lines(contents);
        self.chain.pop();
        read.or_else(|halt| if halt == Halt::File { Ok(()) } else { Err(halt) })
    }

    fn place(&self, text: &str, range: Range<usize>) -> Place {
        let line = self.chain.last().map_or(0, |link| link.line);
        Place { line, text: text.to_owned(), range }
    }

    fn file_place(&self, place: Place) -> FilePlace {
        let (file, included_from) = self.files();
        FilePlace { file, place, included_from }
    }

    /// Returns the file that is being read, and the `include` lines that lead to it.
    fn files(&self) -> (String, Vec<(String, usize)>) {
        let mut links = self.chain.iter().rev();
        let file = links.next().map(|link| link.name.clone()).unwrap_or_default();
        (file, links.map(|link| (link.name.clone(), link.line)).collect())
    }

    /// Records an error of the section.
    fn fail(&mut self, place: Place, problem: Problem) {
        let error = self.error(Some(place), problem);
        self.assembly.fail(error);
    }

    /// Records an error that belongs to no section that is open.
    fn fail_outside(&mut self, place: Option<Place>, problem: Problem) {
        let error = self.error(place, problem);
        self.assembly.fail_outside(error);
    }

    fn error(&self, place: Option<Place>, problem: Problem) -> JobFileError {
        let (file, included_from) = self.files();
        JobFileError { file, place, included_from, problem }
    }
}

/// Returns the part of a line before a comment, and where it begins; `None` if it is empty.
fn content_of(text: &str) -> Option<(&str, usize)> {
    let end = text.find([';', '#']).unwrap_or(text.len());
    let content = text[..end].trim();
    let start = end - text[..end].trim_start().len();
    (!content.is_empty()).then_some((content, start))
}

/// Returns whether a line sets `kb_base`.
fn is_base(content: &str) -> bool {
    let name = content.split('=').next().unwrap_or_default().trim();
    matches!(name, "kb_base" | "kb-base")
}

/// Returns the text after `include`, if the line begins with that.
fn include_of(content: &str) -> Option<&str> {
    let rest = content.strip_prefix("include")?;
    match rest.chars().next() {
        None => Some(""),
        Some(c) if c == '=' || c.is_whitespace() => Some(rest[c.len_utf8()..].trim()),
        Some(_) => None,
    }
}

/// Returns whether two paths are equal apart from `.` in them. Other cycles reach the limit on
/// nesting.
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

/// Returns an error for an unknown name: with a hint, if it is an option and a value without `=`.
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
