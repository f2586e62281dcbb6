//! Writes the log files.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;

use super::outcome::Outcome;
use crate::output;

/// Writes the logs of all clones. Prints an error for each log that cannot be written. Returns
/// whether all were written. The report does not depend on it.
pub(super) fn write(outcomes: &mut [Outcome]) -> bool {
    let mut names = BTreeSet::new();
    let mut all_well = true;
    for (at, outcome) in outcomes.iter_mut().enumerate() {
        // Frees the logs of each clone before the next text is built.
        let Some(logs) = outcome.logs.take() else { continue };
        for (name, text) in logs.files(at + 1) {
            // Jobs that share a file append to it; lines of an earlier run are removed.
            let is_first = names.insert(name.clone());
            let mut options = OpenOptions::new();
            match is_first {
                true => options.create(true).write(true).truncate(true),
                false => options.append(true),
            };
            let written = options.open(&name).and_then(|mut file| file.write_all(text.as_bytes()));
            if let Err(error) = written {
                all_well = false;
                let job = &outcome.report.name;
                output::stderr(&format!(
                    "forebay: {job}: cannot write the log {name}: {error}; check \
                     --write_bw_log, --write_lat_log, --write_iops_log and --write_hist_log\n"
                ));
            }
        }
    }
    all_well
}
