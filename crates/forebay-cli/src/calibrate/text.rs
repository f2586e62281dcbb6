//! The model file: constants with intervals, and a comparison of each load with the model.

use std::fmt::Write;

use forebay_sim::calibrate::{Estimate, Figures, Fit, FittedConstant, Probe, measure};
use forebay_sim::{DeviceSpec, JobDisk};

use super::disk::Subject;
use super::real_time::Times;
use crate::failure::Failure;
use crate::table;

/// The seed of the model's random choices in the comparison.
const SEED: u64 = 1;

/// Returns the text of the file.
///
/// # Errors
/// The model cannot be simulated, which is a bug.
pub(super) fn model_file(
    subject: &Subject,
    times: &Times,
    repetitions: &[Vec<Figures>],
    fit: &Fit,
) -> Result<String, Failure> {
    let constants = constants(subject, fit);
    let device = DeviceSpec::from_model_file(&constants)
        .map_err(|error| Failure::Run(format!("internal error: the model file: {error}")))?;
    let disk = JobDisk::new(device);
    let loads = if subject.writes { "reads and writes" } else { "reads only" };
    let Times { seconds, repetitions: nr, .. } = times;
    let mut text = format!(
        "# Model of {}, by forebay calibrate: {loads}, {seconds} s, {nr} repetitions.\n#\n",
        subject.name.replace('\n', " ")
    );
    let heading = ["load", "IOPS", "model", "error", "p99 us", "model"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (at, probe) in subject.probes.iter().enumerate() {
        let runs: Vec<Figures> = repetitions.iter().map(|figures| figures[at]).collect();
        let model = measure(probe, &disk, SEED)
            .map_err(|error| Failure::Run(format!("internal error: {probe}: {error}")))?;
        rows.push(row(probe, &Figures::median(&runs), &model).to_vec());
    }
    text += &table::aligned(&rows, "# ");
    // Writing into a String does not fail.
    let _ = writeln!(text, "#\n# The root of the mean squared error of the IOPS, by family:");
    for (family, error) in &fit.errors {
        let _ = writeln!(text, "# {}: {:.1} %", family.name(), error * 100.0);
    }
    Ok(text + &constants)
}

/// Returns the lines that are not comments.
fn constants(subject: &Subject, fit: &Fit) -> String {
    let mut text = format!("family={}\n", fit.family.name());
    if fit.family.has_size() {
        // The simulator's limit.
        let size = subject.capacity_bytes.min(16 << 40) / 4096 * 4096;
        let _ = writeln!(text, "size={size}");
    }
    for FittedConstant { name, value, estimate } in &fit.constants {
        let _ = writeln!(text, "{name}={value} # {}", words(estimate));
    }
    text
}

fn words(estimate: &Estimate) -> String {
    match estimate {
        Estimate::Interval { low, high } => format!("{low} to {high}"),
        Estimate::NotDetermined { at_least, at_most } => {
            let bounds = match (at_least, at_most) {
                (None, None) => String::new(),
                (Some(low), None) => format!("; at least {low}"),
                (None, Some(high)) => format!("; at most {high}"),
                (Some(low), Some(high)) => format!("; between {low} and {high}"),
            };
            format!("not determined by this load{bounds}")
        }
    }
}

/// Returns the cells of a load.
fn row(probe: &Probe, measured: &Figures, model: &Figures) -> [String; 6] {
    let mark = if measured.is_of_processor() { " *" } else { "" };
    let check = if probe.is_check { " (not fitted)" } else { "" };
    let error = (model.iops / measured.iops - 1.0) * 100.0;
    [
        format!("{probe}{check}{mark}"),
        format!("{:.0}", measured.iops),
        format!("{:.0}", model.iops),
        format!("{error:+.1} %"),
        format!("{:.1}", measured.p99_ns / 1e3),
        format!("{:.1}", model.p99_ns / 1e3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_an_interval_or_the_bounds_of_a_constant_that_is_not_determined() {
        let open = |at_least, at_most| words(&Estimate::NotDetermined { at_least, at_most });
        assert_eq!(words(&Estimate::Interval { low: 7, high: 9 }), "7 to 9");
        assert_eq!(open(None, None), "not determined by this load");
        assert_eq!(open(Some(3), None), "not determined by this load; at least 3");
        assert_eq!(open(None, Some(5)), "not determined by this load; at most 5");
        assert_eq!(open(Some(3), Some(5)), "not determined by this load; between 3 and 5");
    }
}
