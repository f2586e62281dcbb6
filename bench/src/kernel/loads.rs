//! The same jobs with a scheduler of the guest's kernel, by fio, and with ours, by `forebay bench`.
//!
//! Both sides run in real time on the same modelled device. The guest's processor is emulated, so
//! the devices are slow enough for that to matter little: one that turns, and one that takes ten
//! times as long as `ssd-sas`. A figure is compared with that of the first row of its load, which
//! mostly has no scheduler.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::guest;
use crate::Options;
use crate::measure::say;

/// A disk of 7,200 turns per minute, without NCQ, as in the figure `sched`.
const HDD: &str = "model:hdd?seek_ns=1000000&stroke_ns=13500000&turn_ns=8333333&nr_sorted=1";

/// `ssd-sas`, ten times slower.
const FLASH: &str =
    "model:ssd-sas?bytes_per_s=112900000&commands_per_s=19800&latency_ns=900000&nr_channels=64";

/// A job before it counts, s.
const RAMP: u32 = 5;

/// Jobs on a device, and the settings that are compared.
struct Load {
    title: &'static str,
    device: &'static str,
    /// Jobs, and lines that they have in the guest and here.
    jobs: &'static str,
    lines: [(&'static str, [&'static str; 2]); 2],
    rows: &'static [Row],
}

struct Row {
    /// The requests that the device takes at once, beside the scheduler.
    depth: u32,
    /// Settings of the kernel's queue and scheduler.
    settings: &'static str,
}

/// Settings of the kernel's bfq that ours does not have.
const FOREIGN: [&str; 2] = ["low_latency=0", "strict_guarantees=1"];

impl Row {
    /// Returns the settings of our disk.
    fn ours(&self) -> String {
        let mut settings: Vec<&str> = self.settings.split_whitespace().collect();
        settings.retain(|setting| !FOREIGN.contains(setting));
        let key = if settings == ["scheduler=none"] { "queue_depth" } else { "device_depth" };
        format!("{}&{key}={}", settings.join("&"), self.depth)
    }
}

const NO_LINES: [(&str, [&str; 2]); 2] = [("{first}", ["", ""]), ("{second}", ["", ""])];

const NONE: Row = Row { depth: 256, settings: "scheduler=none" };
const NONE_SINGLY: Row = Row { depth: 1, settings: "scheduler=none" };
const DEADLINE: Row =
    Row { depth: 1, settings: "scheduler=mq-deadline nr_requests=64 async_depth=48" };

const LOADS: [Load; 5] = [
    Load {
        title: "A rotational disk without NCQ: 32 random 4k reads in flight",
        device: HDD,
        jobs: "[reads]\nrw=randread\nbs=4k\niodepth=32\n",
        lines: NO_LINES,
        rows: &[NONE, NONE_SINGLY, DEADLINE],
    },
    Load {
        title: "The same disk: a random 4k read at a time beside sequential 64k writes, depth 32",
        device: HDD,
        jobs: "[reads]\nrw=randread\nbs=4k\n[writes]\nnew_group\nrw=write\nbs=64k\niodepth=32\n",
        lines: NO_LINES,
        rows: &[NONE, NONE_SINGLY, DEADLINE],
    },
    Load {
        title: "The same beside sequential 8m writes, depth 32, in requests of 256k",
        device: HDD,
        jobs: "[reads]\nrw=randread\nbs=4k\n[writes]\nnew_group\nrw=write\nbs=8m\niodepth=32\n",
        lines: NO_LINES,
        rows: &[
            NONE,
            NONE_SINGLY,
            DEADLINE,
            Row {
                depth: 1,
                settings: "scheduler=mq-deadline nr_requests=64 async_depth=48 fifo_batch=64",
            },
        ],
    },
    Load {
        title: "The same disk: two sequential readers of 128k, of weights 1:4",
        device: HDD,
        jobs: "[light]\nrw=read\nbs=128k\nsize=400g\n{first}\n\
               [heavy]\nnew_group\nrw=read\nbs=128k\nsize=400g\noffset=450g\n{second}\n",
        // The kernel's bfq gives priorities weights: 10 for 7, and 40 for 4.
        lines: [
            ("{first}", ["prioclass=2\nprio=7", "weight=100"]),
            ("{second}", ["prioclass=2\nprio=4", "weight=400"]),
        ],
        rows: &[
            DEADLINE,
            Row { depth: 1, settings: "scheduler=bfq nr_requests=64 low_latency=0" },
            Row {
                depth: 1,
                settings: "scheduler=bfq nr_requests=64 low_latency=0 strict_guarantees=1",
            },
        ],
    },
    Load {
        title: "ssd-sas, ten times slower: a random 4k read at a time beside 64 jobs of random \
                256k writes, depth 8. The targets of kyber are ten times the defaults",
        device: FLASH,
        jobs: "[reads]\nrw=randread\nbs=4k\n\
               [writes]\nnew_group\nrw=randwrite\nbs=256k\niodepth=8\nnumjobs=64\n",
        lines: NO_LINES,
        rows: &[
            NONE,
            Row {
                depth: 256,
                settings: "scheduler=kyber nr_requests=256 read_lat_nsec=20000000 \
                         write_lat_nsec=100000000",
            },
            Row {
                depth: 256,
                settings: "scheduler=kyber nr_requests=1024 read_lat_nsec=20000000 \
                         write_lat_nsec=100000000",
            },
            Row {
                depth: 256,
                settings: "scheduler=kyber nr_requests=1024 read_lat_nsec=20000000 \
                         write_lat_nsec=5000000000",
            },
            Row {
                depth: 16,
                settings: "scheduler=kyber nr_requests=1024 read_lat_nsec=20000000 \
                         write_lat_nsec=100000000",
            },
        ],
    },
];

/// The place of a row: its load, and its number there.
type Place = (usize, usize);

/// The rows of a guest: those with the same device and depth.
type Rows = Vec<(Place, &'static Load, &'static Row)>;

/// The figures of a job.
#[derive(Debug)]
struct Figures {
    job: String,
    iops: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Appends the section of the page.
pub(super) fn render(text: &mut String, forebay: &Path, options: &Options) -> Result<()> {
    writeln!(
        text,
        "## Jobs\n\n\
         {} s after {RAMP} s. Each cell has the figure of Linux and that of Forebay. In brackets: \
         the figure over that of the same job in the first row. The depth is the number of \
         requests at the device at once: `queue_depth` of the kernel's driver, and \
         `device_depth` here, or without a scheduler `queue_depth`. The other settings have the \
         same names, but ours has no `low_latency` and `strict_guarantees`.",
        options.seconds
    )?;
    let kernel = in_guests(forebay, options)?;
    for (nth, load) in LOADS.iter().enumerate() {
        writeln!(
            text,
            "\n{}.\n\n| settings | depth | job | IOPS | p50, ms | p99, ms |\n\
             |---|---|---|---|---|---|",
            load.title
        )?;
        let mut first: Option<[Vec<Figures>; 2]> = None;
        for (row_nth, row) in load.rows.iter().enumerate() {
            say(&format!("{}: {}: {}", super::NAME, load.title, row.ours()));
            let theirs = figures(&kernel[&(nth, row_nth)])?;
            let ours = figures(&bench(forebay, load, row, options)?)?;
            ensure!(theirs.len() == ours.len(), "a report lacks a job");
            for (job, pair) in theirs.iter().zip(&ours).enumerate() {
                let bases = first.as_ref().map(|[theirs, ours]| (&theirs[job], &ours[job]));
                let cell = |of: fn(&Figures) -> f64, digits| cell(pair, bases, of, digits);
                writeln!(
                    text,
                    "| `{}` | {} | {} | {} | {} | {} |",
                    row.settings,
                    row.depth,
                    pair.0.job,
                    cell(|figures| figures.iops, 1),
                    cell(|figures| figures.p50_ms, 1),
                    cell(|figures| figures.p99_ms, 1),
                )?;
            }
            first.get_or_insert([theirs, ours]);
        }
    }
    Ok(())
}

/// Returns a figure of both sides, each over that of its first row, if there is one.
fn cell(
    (theirs, ours): (&Figures, &Figures),
    bases: Option<(&Figures, &Figures)>,
    of: fn(&Figures) -> f64,
    digits: usize,
) -> String {
    let one = |figures: &Figures, base: Option<&Figures>| {
        let value = of(figures);
        let ratio = base.map(|base| format!(" ({:.2})", value / of(base)));
        format!("{value:.digits$}{}", ratio.unwrap_or_default())
    };
    format!("{}; {}", one(theirs, bases.map(|b| b.0)), one(ours, bases.map(|b| b.1)))
}

/// Returns the job file of a load.
fn job_file(load: &Load, side: usize, disk: &str, options: &Options) -> String {
    let jobs = load
        .lines
        .iter()
        .fold(load.jobs.to_owned(), |jobs, (place, lines)| jobs.replace(place, lines[side]));
    format!(
        "[global]\nfilename={disk}\ndirect=1\nthread=1\ngroup_reporting\nnorandommap\n\
         zero_buffers\ntime_based\nruntime={}\nramp_time={RAMP}\nsize=900g\n\
         percentile_list=50:99\n{}{jobs}",
        options.seconds,
        if side == 0 { "ioengine=libaio\n" } else { "" },
    )
}

/// Measures all rows in guests, one for each device and depth. Returns fio's reports.
fn in_guests(forebay: &Path, options: &Options) -> Result<HashMap<Place, Value>> {
    let rows = LOADS.iter().enumerate().flat_map(|(nth, load)| {
        load.rows.iter().enumerate().map(move |(row_nth, row)| ((nth, row_nth), load, row))
    });
    let mut boots: Vec<((&str, u32), Rows)> = Vec::new();
    for (place, load, row) in rows {
        let key = (load.device, row.depth);
        match boots.iter_mut().find(|boot| boot.0 == key) {
            Some((_, rows)) => rows.push((place, load, row)),
            None => boots.push((key, vec![(place, load, row)])),
        }
    }
    let mut reports = HashMap::new();
    for ((device, depth), rows) in boots {
        let mut calls = String::new();
        for ((load_nth, row_nth), load, row) in &rows {
            let jobs = job_file(load, 0, "/dev/vda", options);
            let name = format!("{load_nth}.{row_nth}");
            writeln!(calls, "cat > /tmp/{name} <<END\n{jobs}END")?;
            writeln!(calls, "load load-{name} /tmp/{name} {}", row.settings)?;
        }
        say(&format!("{}: {device}, depth {depth}, in the guest", super::NAME));
        let work = Duration::from_secs(u64::from(options.seconds + RAMP + 10) * rows.len() as u64);
        let spec = format!("{device}&data=off&scheduler=none");
        let console = guest::run(forebay, &spec, depth, &calls, work)?;
        for (place, ..) in rows {
            let name = format!("load-{}.{}", place.0, place.1);
            let report = console.section(&name)?;
            let start = report.find('{').with_context(|| format!("{name}: no report"))?;
            let report = serde_json::from_str(&report[start..]).context(name)?;
            reports.insert(place, report);
        }
    }
    Ok(reports)
}

/// Runs the jobs with our scheduler.
fn bench(forebay: &Path, load: &Load, row: &Row, options: &Options) -> Result<Value> {
    let file = tempfile::NamedTempFile::new()?;
    let disk = format!("{}&data=off&{}", load.device, row.ours());
    std::fs::write(file.path(), job_file(load, 1, &disk, options))?;
    let mut command = Command::new(forebay);
    command.args(["bench", "--output-format=json"]).arg(file.path());
    crate::sched::json(&mut command)
}

/// Returns the figures of each job of a report.
fn figures(report: &Value) -> Result<Vec<Figures>> {
    let jobs = report["jobs"].as_array().context("a report with jobs")?;
    jobs.iter()
        .map(|job| {
            let name = job["jobname"].as_str().unwrap_or_default();
            let part = crate::sched::part(job).with_context(|| format!("{name}: no I/O"))?;
            let number = |value: &Value| value.as_f64().context("a number");
            let ms =
                |key| Ok::<f64, anyhow::Error>(number(&part["clat_ns"]["percentile"][key])? / 1e6);
            Ok(Figures {
                job: name.to_owned(),
                iops: number(&part["iops"])?,
                p50_ms: ms("50.000000")?,
                p99_ms: ms("99.000000")?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_has_both_figures_and_their_ratios() {
        let of = |iops| Figures { job: String::new(), iops, p50_ms: 0.0, p99_ms: 0.0 };
        let (theirs, ours) = (of(30.0), of(60.0));
        let iops = |figures: &Figures| figures.iops;
        assert_eq!(cell((&theirs, &ours), None, iops, 1), "30.0; 60.0");
        let bases = Some((&ours, &ours));
        assert_eq!(cell((&theirs, &ours), bases, iops, 0), "30 (0.50); 60 (1.00)");
    }

    #[test]
    fn lines_of_one_side_are_in_its_job_file() {
        let file = |side| job_file(&LOADS[3], side, "disk", &Options::default());
        assert!(file(0).contains("[light]\nrw=read\nbs=128k\nsize=400g\nprioclass=2\nprio=7\n"));
        assert!(file(1).contains("offset=450g\nweight=400\n") && !file(1).contains("prio"));
    }
}
