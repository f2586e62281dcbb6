//! The jobs of a command line and its job files, with what the whole run needs.

use std::path::PathBuf;
use std::sync::Arc;

use crate::job::{Job, RunOptions};
use crate::origin::Origin;

/// The jobs of a command line and its job files.
#[derive(Debug, Clone, PartialEq)]
pub struct JobList {
    /// Options of the run as a whole.
    pub run: RunOptions,
    /// The defaults that were given for all jobs: option and text, in the order given.
    pub global_options: Vec<(&'static str, String)>,
    /// The jobs, in the order given; at least one, unless nothing is to be run
    /// ([`RunOptions::parse_only`]).
    pub jobs: Vec<Job>,
    /// For each job, where its options were given, defaults included.
    pub origins: Vec<Vec<Arc<Origin>>>,
    /// Warnings about options that have no effect, a line each.
    pub warnings: Vec<String>,
    /// The job files that were read, with those that they include.
    pub files: Vec<PathBuf>,
}
