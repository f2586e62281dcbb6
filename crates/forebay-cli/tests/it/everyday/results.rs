//! The results of a run: its report, its messages, and the files that it left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The results of a run.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) folder: PathBuf,
    pub(super) messages: String,
    /// The sizes of the files below the folder, by their paths.
    pub(super) files: BTreeMap<String, u64>,
    jobs: Vec<Job>,
    /// The specs of the disks.
    pub(super) disks: Vec<String>,
}

/// A job of the report.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) group: u64,
    pub(super) error: u64,
    pub(super) value: Value,
}

/// Bytes and I/Os of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) ios: u64,
}

impl Results {
    pub(super) fn new(folder: &Path, report: &Value, messages: String) -> Self {
        let list = |key: &str| report[key].as_array().cloned().unwrap_or_default();
        let jobs = list("jobs").into_iter().map(|value| Job {
            name: value["jobname"].as_str().expect("a name").to_owned(),
            group: value["groupid"].as_u64().expect("a group"),
            error: value["error"].as_u64().expect("an error"),
            value,
        });
        let spec = |disk: &Value| disk["spec"].as_str().expect("a spec").to_owned();
        let mut files = BTreeMap::new();
        list_files(folder, "", &mut files);
        Self {
            folder: folder.to_owned(),
            messages,
            files,
            jobs: jobs.collect(),
            disks: list("forebay").iter().map(spec).collect(),
        }
    }

    pub(super) fn job(&self, at: usize) -> &Job {
        &self.jobs[at]
    }

    /// Returns the name and the group of each job.
    pub(super) fn names(&self) -> Vec<(&str, u64)> {
        self.jobs.iter().map(|job| (job.name.as_str(), job.group)).collect()
    }

    /// Returns bytes and I/Os of each job in each direction.
    pub(super) fn all_moved(&self) -> Vec<[Moved; 3]> {
        self.jobs.iter().map(|job| ["read", "write", "trim"].map(|part| job.moved(part))).collect()
    }

    /// Returns the text of a file that the run has written.
    pub(super) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).expect(name)
    }
}

impl Job {
    pub(super) fn moved(&self, part: &str) -> Moved {
        let of = |key: &str| self.value[part][key].as_u64().expect("a count");
        Moved { bytes: of("io_bytes"), ios: of("total_ios") }
    }

    /// Returns the time of a direction, ms.
    pub(super) fn runtime_ms(&self, part: &str) -> u64 {
        self.value[part]["runtime"].as_u64().expect("a time")
    }

    /// Returns the percentage of I/Os at a depth.
    pub(super) fn at_depth(&self, depth: &str) -> f64 {
        self.value["iodepth_level"][depth].as_f64().expect("a percentage")
    }

    pub(super) fn nr_syncs(&self) -> u64 {
        self.value["sync"]["total_ios"].as_u64().expect("a count")
    }

    /// Returns the part of reads among reads and writes.
    pub(super) fn read_share(&self) -> f64 {
        let (reads, writes) = (self.moved("read").ios as f64, self.moved("write").ios as f64);
        reads / (reads + writes)
    }
}

fn list_files(folder: &Path, prefix: &str, files: &mut BTreeMap<String, u64>) {
    for entry in std::fs::read_dir(folder).expect("a directory").flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().expect("a file");
        match metadata.is_dir() {
            true => list_files(&entry.path(), &format!("{name}/"), files),
            false => drop(files.insert(name, metadata.len())),
        }
    }
}
