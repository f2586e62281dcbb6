//! The counters of the processes that have run.

use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_run::area::{AREA_BYTES, Counter, Process, processes};

use crate::failure::Failure;
use crate::output;

/// Writes the counters to a file, to standard output (`-`), or to standard error.
pub(super) fn write(area: &File, to: Option<&Path>) -> Result<(), Failure> {
    let mut bytes = vec![0; AREA_BYTES];
    area.read_exact_at(&mut bytes, 0)
        .map_err(|error| Failure::Run(format!("run: cannot read the counters: {error}")))?;
    let text = text_of(&processes(&bytes));
    match to {
        None => {
            output::stderr(&text);
            Ok(())
        }
        Some(path) if path == Path::new("-") => output::stdout(&text),
        Some(path) => std::fs::write(path, text).map_err(|error| {
            Failure::Run(format!("run: --stats {}: cannot be written: {error}", path.display()))
        }),
    }
}

/// Returns a line for each process, and one for their sum if there are several.
pub(super) fn text_of(all: &[Process]) -> String {
    if all.is_empty() {
        return String::from("forebay run: no process has submitted an iocb through libaio\n");
    }
    let mut text = String::from("forebay run: iocbs of libaio, and requests that the kernel got\n");
    writeln!(
        text,
        "{:>8} {:<15} {:>12} {:>12} {:>12}",
        "pid", "name", "iocbs", "requests", "merged"
    )
    .expect("a string");
    let mut line = |pid: &str, name: &str, counters: [u64; Counter::ALL.len()]| {
        let [iocbs, requests, merges, ..] = counters;
        writeln!(text, "{pid:>8} {name:<15} {iocbs:>12} {requests:>12} {merges:>12}")
            .expect("a string");
    };
    for process in all {
        line(&process.pid.to_string(), &process.name, process.counters);
    }
    if all.len() > 1 {
        let sum = |nth: usize| all.iter().map(|process| process.counters[nth]).sum();
        line("sum", "", std::array::from_fn(sum));
    }
    text
}
