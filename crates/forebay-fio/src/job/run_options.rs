//! The options of the whole run.

use std::path::PathBuf;
use std::time::Duration;

use crate::job::OutputFormat;

/// When the progress line is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eta {
    /// On a terminal.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// The options that concern the whole run, wherever they stand on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// The file that the report goes to instead of standard output.
    pub output: Option<PathBuf>,
    /// How it is printed.
    pub format: OutputFormat,
    /// When the progress line is shown.
    pub eta: Eta,
    /// How often a new line is begun for it.
    pub eta_newline: Option<Duration>,
    /// How often the whole report is printed while the jobs run.
    pub status_interval: Option<Duration>,
    /// Whether the options are only read.
    pub parse_only: bool,
    /// Whether the jobs are only shown as a command line.
    pub showcmd: bool,
    /// Whether jobs that write are refused.
    pub readonly: bool,
    /// Whether a warning is an error.
    pub warnings_fatal: bool,
    /// The jobs that are run, by name; all, if it is empty.
    pub sections: Vec<String>,
}
