//! Options of the process: background, PID file, command, log.

use super::ServeArgs;
use crate::completed_values::completing;
use crate::failure::Failure;
use clap::Args;
use forebay_serve::{LogFormat, LogLevel};
use rustix::fs::{FileType, fstat};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Options of `forebay serve` for its process.
#[derive(Args, Debug)]
pub(crate) struct MannerArgs {
    /// Continue in the background: the command returns 0 when the sockets listen, or prints the
    /// error and returns its exit code. Log lines are discarded unless standard error is a file or
    /// the journal
    #[arg(long, conflicts_with_all = ["run", "fd", "print_capabilities"])]
    pub(super) fork: bool,
    /// Write the process ID to this file when the sockets listen, and remove the file at exit
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Run this shell command when the sockets listen, stop the server when it exits, and return
    /// its exit code. The variables $uri, $unixsocket, $port, $exportname and $nbd are set as
    /// nbdkit sets them. Without --nbd, the server listens on a private Unix socket. If the server
    /// stops first, the command keeps running
    #[arg(long, value_name = "COMMAND")]
    pub(super) run: Option<String>,
    /// Stop when the last client has disconnected, after at least one has opened an export
    #[arg(long)]
    pub(super) exit_last: bool,
    /// Directory whose files `forebay ctl add` may export later; may be repeated. The server is
    /// confined by Landlock: after its start it cannot open files elsewhere
    #[arg(long, value_name = "DIR", requires = "control")]
    pub(super) allow_path: Vec<PathBuf>,
    /// Lowest severity to log: error, warning or info
    #[arg(long, value_name = "LEVEL", default_value = "info", hide_possible_values = true)]
    #[arg(value_parser = completing(str::parse::<LogLevel>, LogLevel::ALL.map(LogLevel::name)))]
    pub(super) log_level: LogLevel,
    /// Format of the log: text (with times), json (an object in each line) or journald (with
    /// priorities) [default: journald if standard error is the journal of systemd, otherwise text]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(value_parser = completing(str::parse::<LogFormat>, LogFormat::ALL.map(LogFormat::name)))]
    log_format: Option<LogFormat>,
}

impl MannerArgs {
    /// Checks the options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.allow_path.iter().find(|path| !path.is_dir()) {
            Some(path) => {
                let path = path.display();
                Err(Failure::Usage(format!("--allow-path {path}: expected a directory")))
            }
            None => self.pid_file.as_deref().map_or(Ok(()), refuse_other_file),
        }
    }

    /// Returns the format of the log.
    pub(super) fn format(&self) -> LogFormat {
        self.log_format.unwrap_or(if is_journal() { LogFormat::Journald } else { LogFormat::Text })
    }

    /// Writes the PID file, if there is one.
    pub(super) fn write_pid_file(&self) -> Result<Option<PidFile>, Failure> {
        let Some(path) = &self.pid_file else { return Ok(None) };
        let failed = |error: io::Error| {
            Failure::Run(format!("{}: cannot write the PID file: {error}", path.display()))
        };
        refuse_other_file(path)?;
        // The process may change its directory.
        let path = std::path::absolute(path).map_err(failed)?;
        // Renamed into its place, so that no reader finds a part, and no link is followed.
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}", std::process::id()));
        let written = || -> io::Result<(u64, u64)> {
            let mut file = File::create_new(&new)?;
            writeln!(file, "{}", std::process::id())?;
            fs::rename(&new, &path)?;
            let metadata = file.metadata()?;
            Ok((metadata.dev(), metadata.ino()))
        };
        let id = written().map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(error)
        })?;
        Ok(Some(PidFile { path, id }))
    }
}

/// Refuses a path whose file is not a PID file: the PID file would replace it, and the exit of the
/// server would remove it. An empty file is accepted.
fn refuse_other_file(path: &Path) -> Result<(), Failure> {
    /// More than the longest process ID and a line feed.
    const LEN_MAX: u64 = 32;
    let is_pid_file = |metadata: &fs::Metadata| {
        let is_short = metadata.is_file() && metadata.len() <= LEN_MAX;
        let text = if is_short { fs::read_to_string(path).ok() } else { None };
        text.is_some_and(|text| text.trim_end().bytes().all(|byte| byte.is_ascii_digit()))
    };
    match fs::metadata(path) {
        Ok(metadata) if !is_pid_file(&metadata) => Err(Failure::Usage(format!(
            "--pid-file {}: this path exists and is not a PID file: choose another path, or move \
             the file away",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// A PID file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    /// The device and inode of the file.
    id: (u64, u64),
}

impl PidFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // An administrator may have removed it, or another server replaced it.
        // Landlock lets the process see the status of the file, and not its contents.
        if fs::metadata(&self.path).is_ok_and(|it| (it.dev(), it.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a line to standard error, in the format of the log.
pub(super) fn note(args: &ServeArgs, level: LogLevel, text: &str) {
    if level <= args.manners.log_level {
        crate::output::stderr(&args.manners.format().line(level, SystemTime::now(), text));
    }
}

/// Returns whether standard error remains open in the background: a file, or the journal. A
/// terminal or a pipe would keep a program waiting that has started this one.
pub(super) fn keeps_standard_error() -> bool {
    let stat = fstat(io::stderr());
    is_journal()
        || stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::RegularFile)
}

/// Returns whether standard error is the journal of systemd.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr().as_fd()).is_ok_and(|it| stream == format!("{}:{}", it.st_dev, it.st_ino))
}
