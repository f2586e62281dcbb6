//! Options of the whole run.

use std::path::PathBuf;
use std::time::Duration;

use crate::job::{OutputFormat, TerseVersion};

/// When to show a progress line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eta {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The options of the whole run, from any place on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// The file for the report; `None`: standard output.
    pub output: Option<PathBuf>,
    /// The format of the report.
    pub format: OutputFormat,
    /// The version of terse lines.
    pub terse_version: TerseVersion,
    /// When to show a progress line.
    pub eta: Eta,
    /// The interval at which a new progress line is started.
    pub eta_newline: Option<Duration>,
    /// The interval at which the whole report is printed while the jobs run.
    pub status_interval: Option<Duration>,
    /// The directory for a trace of all disks.
    pub trace: Option<PathBuf>,
    /// The socket at which the disks are shown while the jobs run.
    pub insight: Option<PathBuf>,
    /// Whether to check the options only.
    pub parse_only: bool,
    /// Whether to print the jobs as a command line only.
    pub showcmd: bool,
    /// Whether to refuse jobs that write.
    pub readonly: bool,
    /// Whether to treat warnings as errors.
    pub warnings_fatal: bool,
    /// The names of the jobs to run; all if empty.
    pub sections: Vec<String>,
}
