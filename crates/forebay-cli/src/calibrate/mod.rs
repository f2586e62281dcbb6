//! `forebay calibrate`: a model of a device, fitted to measurements.
//!
//! - [`disk`]: the disk to measure, and the loads that it permits;
//! - [`empty`]: checks before a load writes;
//! - [`real_time`]: the loads, run by the engine of `bench`;
//! - [`text`]: the model file.
//!
//! The loads and the fit are in [`forebay_sim::calibrate`].

mod disk;
mod empty;
mod real_time;
mod text;

use clap::Args as ClapArgs;
use forebay_sim::calibrate::{Family, Figures, Fit, FitError, fit};

use self::disk::Subject;
use self::real_time::Times;
use crate::bench::stop::Stop;
use crate::completed_values::completing;
use crate::failure::Failure;
use crate::number;
use crate::output;

/// A larger root of the mean squared error is reported.
const POOR: f64 = 0.1;

/// The end of `forebay calibrate --help`.
const NOTES: &str = "\
Each load runs alone: random reads of 4k with 1 to 256 in flight, larger random reads, sequential
reads. One repetition runs every load once. A file or block device is opened with direct=on, unless
the spec has that key. Standard output receives a model file: the family and its constants, each
with the interval of the repetitions or the words 'not determined by this load'. Comments compare
each load with the model, including one load that was left out of the fit. For example:
  forebay calibrate /dev/vdb > my.model
  forebay sim JOB.fio --device my.model --compare plug=none
  forebay bench --filename='model:my.model?data=off' --rw=randread
A load marked with * was limited by a processor. It only shows that the device is not slower.

--write adds writes and flushes, which destroy the data of the disk. It needs a block device or file
that is not mounted, contains only zeroes, and can be opened with exclusive=on. Zero a device with
`blkdiscard -z` first. Create a file with `dd if=/dev/zero of=FILE bs=1M count=4096`.";

/// The arguments after `calibrate`.
#[derive(Debug, ClapArgs)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The disk: see forebay help specs
    spec: String,
    /// Time for all loads in seconds, 1 to 86400; more repetitions need more
    #[arg(long, value_name = "S", default_value_t = 120)]
    #[arg(value_parser = number::parse::<1, 86_400>)]
    seconds: u64,
    /// How often each load is repeated, 2 to 100; intervals span the repetitions
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = number::parse::<2, 100>)]
    repetitions: u64,
    /// The family of models: fixed, nvme, virtio-ram, hdd, ssd-sas or, with --write, sata
    /// [default: the one that fits best; if several fit about equally, the one with the fewest
    /// constants]
    #[arg(long, value_name = "FAMILY", hide_possible_values = true)]
    #[arg(value_parser = completing(family, Family::ALL.map(Family::name)))]
    family: Option<Family>,
    /// Also measure writes and flushes, which destroys the data of the disk [default: reads only]
    #[arg(long)]
    write: bool,
}

fn family(name: &str) -> Result<Family, String> {
    Family::named(name).ok_or_else(|| {
        let names: Vec<_> = Family::ALL.iter().map(|family| family.name()).collect();
        format!("unknown family; expected one of {}", names.join(", "))
    })
}

/// Measures the disk, and prints its model file.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if let Some(family) = args.family.filter(|family| family.needs_writes() && !args.write) {
        let why = FitError::NeedsWrites(family);
        return Err(Failure::Usage(format!("--family={}: {why}; add --write", family.name())));
    }
    let subject = Subject::of(&args.spec, args.write)?;
    let times = Times::new(args.seconds, args.repetitions, subject.probes.len())?;
    output::stderr(&format!(
        "forebay: {} loads, {} times each, {} s in total\n",
        subject.probes.len(),
        args.repetitions,
        args.seconds
    ));
    let stop = Stop::on_signals()?;
    let repetitions = real_time::measure(&subject, &times, &stop)?;
    let fit = fit(args.family, &subject.probes, &repetitions)
        .map_err(|error| Failure::Run(format!("{}: {error}", subject.name)))?;
    for warning in warnings(&fit, &repetitions) {
        output::stderr(&format!("forebay: warning: {warning}\n"));
    }
    output::stdout(&text::model_file(&subject, &times, &repetitions, &fit)?)
}

/// Returns the reasons to distrust a fit to the figures of these repetitions.
fn warnings(fit: &Fit, repetitions: &[Vec<Figures>]) -> Vec<String> {
    let nr_loads = repetitions.first().map_or(0, Vec::len);
    let is_of_processor = |at: usize| {
        let runs: Vec<_> = repetitions.iter().map(|figures| figures[at]).collect();
        Figures::median(&runs).is_of_processor()
    };
    let mut warnings = Vec::new();
    if (0..nr_loads).all(is_of_processor) {
        warnings.push(
            "a processor limited every load, so the file only gives an upper bound of the \
             latency: check that the disk is not cached or sparse"
                .to_owned(),
        );
    }
    if fit.error > POOR {
        warnings.push(format!(
            "the IOPS of family {} are off by {:.0} % (root mean square): the machine may have \
             been busy, or the family does not describe the device; compare the loads in the file",
            fit.family.name(),
            fit.error * 100.0
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poor_fit_and_loads_that_only_a_processor_limited_are_reported() {
        let figures =
            |busy: f64| Figures { iops: 9e5, p99_ns: 1e4, spread: 1.0, cpu_ns: 1e3, busy };
        let (free, full) = (vec![figures(0.1), figures(1.0)], vec![figures(1.0), figures(1.0)]);
        let fit =
            |error| Fit { family: Family::Nvme, constants: Vec::new(), error, errors: Vec::new() };
        assert!(warnings(&fit(0.05), &[free.clone(), free.clone()]).is_empty());
        let all = warnings(&fit(0.05), &[full.clone(), full]);
        assert!(all[0].starts_with("a processor limited every load, so"), "{all:?}");
        let poor = warnings(&fit(0.25), &[free]);
        let expected = "the IOPS of family nvme are off by 25 % (root mean square): ";
        assert!(poor.len() == 1 && poor[0].starts_with(expected), "{poor:?}");
    }
}
