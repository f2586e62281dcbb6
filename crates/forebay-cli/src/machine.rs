//! The machine as job files see it: files, the environment, and values such as `$pagesize`.

use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;

use forebay::Spec;
use forebay_fio::cmdline::{CommandError, CommandErrors};
use forebay_fio::errors::{self, Problem};
use forebay_fio::host::Host;
use forebay_fio::job::Job;

use crate::failure::Failure;
use crate::output;

/// Maximum number of bytes read from a job file. It exceeds the size limit of job files, so that a
/// device or an endless file is refused as too large.
const BYTES_MAX: u64 = 2 << 20;

/// This machine.
#[derive(Debug)]
pub(crate) struct Machine;

impl Host for Machine {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        match path.as_os_str() == "-" {
            true => io::stdin().lock().take(BYTES_MAX).read_to_end(&mut contents)?,
            false => {
                let file = std::fs::File::open(path).map_err(|error| with_hint(path, error))?;
                file.take(BYTES_MAX).read_to_end(&mut contents)?
            }
        };
        Ok(contents)
    }

    fn variable(&self, name: &str) -> Option<String> {
        // The standard library panics for names that no variable can have.
        let possible = !name.is_empty() && !name.contains(['=', '\0']);
        possible.then(|| std::env::var_os(name)).flatten()?.into_string().ok()
    }

    fn page_size_bytes(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    fn memory_mib(&self) -> u64 {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        kib.unwrap_or(0_u64) / 1024
    }

    fn nr_cpus(&self) -> u64 {
        std::thread::available_parallelism().map_or(1, NonZero::get) as u64
    }
}

/// Adds the option for disks to the error of a missing job file whose name is that of a disk.
fn with_hint(path: &Path, error: io::Error) -> io::Error {
    let is_image = path.extension().is_some_and(|it| it == "img" || it == "raw" || it == "qcow2");
    let spec = path.to_str().and_then(|text| Spec::parse(text).ok());
    let is_disk = is_image || spec.is_some_and(|spec| spec.driver() != "file");
    match error.kind() == io::ErrorKind::NotFound && is_disk {
        true => {
            let disk = path.display();
            let hint = format!(
                "this argument is a job file; for a disk, use forebay bench --filename={disk}"
            );
            io::Error::new(error.kind(), format!("{error}; {hint}"))
        }
        false => error,
    }
}

/// Returns the failure of a command line and its job files. A file that cannot be read is not wrong
/// usage.
pub(crate) fn failure(all: &CommandErrors) -> Failure {
    let is_unread = |error: &CommandError| match error {
        CommandError::JobFile(error) => {
            error.place.is_none() && matches!(error.problem, Problem::Read(_))
        }
        CommandError::Usage(_) => false,
    };
    let usage = !all.list().iter().all(is_unread);
    let mut messages: Vec<_> = all.list().iter().map(ToString::to_string).collect();
    if all.is_cut() {
        messages.push(errors::CUT.to_owned());
    }
    Failure::Several { messages, usage }
}

/// Prints the warnings of jobs: options that have no effect in them.
pub(crate) fn print_job_warnings(jobs: &[Job]) {
    for job in jobs {
        for warning in &job.warnings {
            output::stderr(&format!("forebay: {}: {warning}\n", job.name));
        }
    }
}

/// Prints the warnings of a command line.
pub(crate) fn print_warnings(warnings: &[String]) {
    for warning in warnings {
        output::stderr(&format!("forebay: warning: {warning}\n"));
    }
}
