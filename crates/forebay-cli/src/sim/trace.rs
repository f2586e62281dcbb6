//! The trace of a simulated run, in the files that a real one has.

use forebay::IoError;
use forebay_sim::{TraceOfSource, TraceSource};
use forebay_trace::directory::{self, DEVICES, LOCAL_MAJOR, device, device_line, file_path};
use forebay_trace::writer::{Place, TraceFile};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;

/// The name of the simulated disk in its trace.
const NAME: &str = "sim";

/// Refuses a directory that cannot take a trace, before the run.
pub(super) fn prepare(dir: &Path) -> Result<(), Failure> {
    directory::create(dir).map_err(|error| Failure::Run(format!("--write-trace: {error}")))
}

/// Writes the trace of a run on a device. Virtual time begins at 0, and so does its calendar.
pub(super) fn write(dir: &Path, spec: &str, traces: &[TraceOfSource]) -> Result<(), Failure> {
    write_files(dir, spec, traces)
        .map_err(|error| Failure::Run(format!("--write-trace: {}: {error}", dir.display())))
}

fn write_files(dir: &Path, spec: &str, traces: &[TraceOfSource]) -> io::Result<()> {
    let number = device(LOCAL_MAJOR, 0);
    fs::write(dir.join(DEVICES), device_line(number, NAME, spec))?;
    for (index, trace) in (0..).zip(traces) {
        let out = BufWriter::new(File::create_new(file_path(dir, NAME, index))?);
        let errno_of = |status| IoError::Ended(status).errno();
        let mut file = TraceFile::new(out, Place { device: number, index, errno_of });
        let (pid, name) = match trace.source {
            TraceSource::Context(at) => (0, format!("context {at}")),
            TraceSource::Task(id) => (id as u32 + 1, format!("task {id}")),
        };
        let first_ns = trace.records.first().map_or(2, |record| record.time_ns);
        let before_ns = first_ns.saturating_sub(2);
        file.begin(pid, &name, before_ns, Duration::from_nanos(before_ns))?;
        trace.records.iter().try_for_each(|record| file.write(record))?;
        file.flush()?;
    }
    Ok(())
}
