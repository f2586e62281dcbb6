//! `forebay bench --sweep`: the same jobs with each value of an option.
//!
//! - here: the option, the jobs of each value, and their runs;
//! - [`point`]: the figures of a value; [`charts`]: the pictures.

mod charts;
mod point;

use std::path::Path;

use forebay::Setting;
use forebay_fio::arguments;
use forebay_fio::cmdline::{self, Parsed};
use forebay_fio::errors::UsageError;
use forebay_fio::job::{Job, JobList, OutputFormat};
use forebay_fio::options::{Found, Kind, lookup};
use forebay_fio::units::parse_bytes;

use self::charts::About;
use self::point::Point;
use super::outputs::{self, Outputs};
use super::plan::{self, Target};
use super::stop::Stop;
use super::{compare, host, replay, run, workload};
use crate::failure::Failure;
use crate::figure::{Theme, files};
use crate::machine::{self, Machine};
use crate::output::{self, Sink};

/// The largest number of values.
const VALUES_MAX: usize = 1000;

/// An option and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sweep {
    pub(super) key: String,
    pub(super) values: Vec<String>,
}

impl Sweep {
    /// Reads `key=value,value,...`, where `a..b` stands for `a` doubled up to `b`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let form = "expected option=value,value,..., such as iodepth=1,2,4";
        let (key, list) = text.split_once('=').ok_or(form)?;
        let mut values: Vec<String> = Vec::new();
        for value in list.split(',') {
            match value.split_once("..") {
                Some((from, to)) => values.extend(doubled(from, to)?),
                None => values.push(value.to_owned()),
            }
        }
        if key.is_empty() || values.iter().any(String::is_empty) {
            return Err(form.to_owned());
        }
        if let Some(twice) = values.iter().enumerate().find(|(at, it)| values[..*at].contains(it)) {
            return Err(format!("the value {} is given twice", twice.1));
        }
        match values.len() {
            1 => Err("a sweep needs two values or more".to_owned()),
            2..=VALUES_MAX => Ok(Self { key: key.replace('-', "_"), values }),
            nr => Err(format!("{nr} values are too many; the limit is {VALUES_MAX}")),
        }
    }
}

/// Returns the numbers from `from` to `to`, each twice the one before. They keep the unit of the
/// first one.
fn doubled(from: &str, to: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{from}..{to}: expected two numbers, the lower one first");
    let start = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
    let (number, unit) = from.split_at(start);
    let number: u64 = number.parse().ok().filter(|&number| number > 0).ok_or_else(wrong)?;
    let (low, high) = (size(from).ok_or_else(wrong)?, size(to).ok_or_else(wrong)?);
    if low >= high {
        return Err(wrong());
    }
    let fits = |&at: &u32| low.checked_shl(at).is_some_and(|it| it >> at == low && it <= high);
    Ok((0..64).take_while(fits).map(|at| format!("{}{unit}", number << at)).collect())
}

/// Returns a number with an optional unit as bytes.
fn size(text: &str) -> Option<u64> {
    parse_bytes(text).ok()
}

/// The files to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    /// The figure of throughput against latency.
    pub(super) svg: Option<&'a Path>,
    /// The page.
    pub(super) html: Option<&'a Path>,
}

/// The jobs with one value.
#[derive(Debug)]
struct Step {
    command: JobList,
    targets: Vec<Target>,
}

/// Runs the jobs with each value, and prints the figures.
pub(super) fn main(command: &JobList, sweep: &Sweep, asked: Files<'_>) -> Result<(), Failure> {
    check(command)?;
    asked.svg.iter().try_for_each(|path| files::check_figure("--svg", path))?;
    let steps = sweep.values.iter().map(|value| {
        let about = format!("--sweep={}={value}: ", sweep.key);
        step(command, &sweep.key, value).map_err(|failure| failure.with_context(&about))
    });
    let steps = steps.collect::<Result<Vec<Step>, _>>()?;
    // Everything that can be refused is refused before the first run.
    let mut notices: Vec<String> = Vec::new();
    let outputs = Outputs {
        job_files: &command.files,
        report: command.run.output.as_deref(),
        page: asked.html,
        figure: asked.svg,
        ..Outputs::default()
    };
    for (step, value) in steps.iter().zip(&sweep.values) {
        let checked = || {
            outputs::check(&step.command.jobs, &step.targets, outputs)?;
            super::prepare(&step.command.jobs, &step.targets, command.run.readonly)
        };
        let about = format!("--sweep={}={value}: {}", sweep.key, about_key(&sweep.key));
        let (_, more) = checked().map_err(|failure| failure.with_context(&about))?;
        more.into_iter().for_each(|notice| {
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        });
    }
    notices.iter().for_each(super::note);
    let mut sink = Sink::open(command.run.output.as_deref())?;
    asked.svg.iter().try_for_each(|path| files::prepare_file("--svg", path))?;
    asked.html.iter().try_for_each(|path| files::prepare_file("--html", path))?;
    let stop = Stop::on_signals()?;
    let mut points = Vec::new();
    let mut has_failed = false;
    for (step, value) in steps.iter().zip(&sweep.values) {
        let Some(point) = run_step(step, value, &stop, (points.len() + 1, sweep))? else {
            has_failed = true;
            break;
        };
        points.push(point);
    }
    if !points.is_empty() {
        let about = About {
            key: &sweep.key,
            load: without_key(
                &workload::describe(&steps[0].command.jobs, &steps[0].targets, None),
                &sweep.key,
            ),
            disks: disks(&steps),
            machine: host::describe(),
            command: format!("forebay bench {}", arguments::line(&command.jobs)),
        };
        sink.write(&match command.run.format {
            OutputFormat::JSON => point::json(&sweep.key, &points),
            _ => charts::text(&about, &points),
        })?;
        if let Some(path) = asked.svg {
            let chart = charts::throughput_and_latency(&about, &points);
            files::write("--svg", path, &chart.svg(Theme::Auto))?;
        }
        if let Some(path) = asked.html {
            files::write("--html", path, &charts::page(&about, &points))?;
        }
    }
    match has_failed || stop.is_set() {
        true => Err(Failure::Told { usage: false }),
        false => Ok(()),
    }
}

/// Returns the beginning of an error about a key that is not an option: an option may be meant.
fn about_key(key: &str) -> String {
    match lookup(key) {
        Err(UsageError::UnknownOption { nearest: Some(near), .. })
            if Setting::named(key).is_none() =>
        {
            format!(
                "not an option of bench (did you mean {near}?), so it is taken as a key of the \
                 disk: "
            )
        }
        _ => String::new(),
    }
}

/// Runs the jobs with one value. Returns `None`, after a message, if a signal arrives or a job
/// fails.
fn run_step(
    step: &Step,
    value: &str,
    stop: &Stop,
    (nr, sweep): (usize, &Sweep),
) -> Result<Option<Point>, Failure> {
    let Step { command, targets } = step;
    let key = &sweep.key;
    if run::is_shown(command.run.eta) {
        let nr_all = sweep.values.len();
        output::stderr(&format!("forebay: {key}={value} ({nr} of {nr_all})\n"));
    }
    let (layout, _) = super::prepare(&command.jobs, targets, command.run.readonly)?;
    let filling = layout.run(stop, |line| {
        output::stderr(line);
        Ok(())
    })?;
    let outcomes = run::run(command, targets, &filling, stop, false, &mut |_| {})?;
    super::print_errors(&outcomes.clones);
    let is_whole = outcomes.clones.iter().all(|outcome| outcome.report.error.is_none());
    let is_whole = is_whole && !stop.is_set();
    Ok(is_whole.then(|| Point::of(value, &outcomes)))
}

/// Refuses options that a sweep cannot honour.
fn check(command: &JobList) -> Result<(), Failure> {
    let jobs = &command.jobs;
    let mut messages = Vec::new();
    if !matches!(command.run.format, OutputFormat::NORMAL | OutputFormat::JSON) {
        messages.push("--output-format: a sweep is printed as normal or as json".to_owned());
    }
    if command.run.trace.is_some() {
        messages.push("--trace: each run would need a directory; trace one run".to_owned());
    }
    if command.run.status_interval.is_some() {
        messages.push("--status-interval has no effect: leave it out".to_owned());
    }
    if let Some(job) = jobs.iter().find(|job| job.stage != jobs[0].stage) {
        let name = &job.name;
        messages
            .push(format!("{name}: jobs after a stonewall have rates of their own; leave it out"));
    }
    if let Some(job) = jobs.iter().find(|job| job.logs.is_any()) {
        let name = &job.name;
        messages.push(format!(
            "{name}: each run would overwrite the logs of the one before; leave out write_bw_log, \
             write_lat_log, write_iops_log and write_hist_log"
        ));
    }
    if let Some(job) = jobs.iter().find(|job| job.replay.write.is_some()) {
        let name = &job.name;
        messages.push(format!("{name}: each run would overwrite the log; leave out write_iolog"));
    }
    match messages.is_empty() {
        true => Ok(()),
        false => {
            let messages = messages.into_iter().map(|text| format!("--sweep: {text}")).collect();
            Err(Failure::Several { messages, usage: true })
        }
    }
}

/// Returns the jobs with this value of an option, or of a key of the disk.
fn step(command: &JobList, key: &str, value: &str) -> Result<Step, Failure> {
    let jobs = match lookup(key) {
        Ok(Found::Supported(option))
            if option.is_of_run() || matches!(option.kind, Kind::JobName) =>
        {
            return Err(Failure::Usage("the option applies to the whole run".to_owned()));
        }
        Ok(Found::Supported(option)) if !matches!(option.kind, Kind::Policy { .. }) => {
            parsed(command, option.name, value)?
        }
        Ok(Found::Ignored(_, why) | Found::Refused(_, why)) => {
            return Err(Failure::Usage(why.to_owned()));
        }
        _ => {
            let with = |job: &Job| compare::with_keys(job, &[(key, value)]);
            command.jobs.iter().map(with).collect::<Result<_, _>>().map_err(Failure::Usage)?
        }
    };
    let mut jobs = jobs;
    replay::load(&mut jobs, command.run.readonly)?;
    let targets = plan::plan(&jobs)?;
    Ok(Step { command: JobList { jobs, ..command.clone() }, targets })
}

/// Returns the jobs with one more option, which counts more than the same option before it.
fn parsed(command: &JobList, name: &str, value: &str) -> Result<Vec<Job>, Failure> {
    let option = format!("--{name}={value}");
    // With the option, a job that would write is refused here too.
    let readonly = command.run.readonly.then(|| "--readonly".to_owned());
    let args = command.jobs.iter().flat_map(|job| {
        let own = arguments::of(job).into_iter().chain(arguments::policies(job));
        own.chain([option.clone()]).collect::<Vec<_>>()
    });
    let args = readonly.into_iter().chain(args).map(Into::into).collect::<Vec<_>>();
    match cmdline::parse_with(args, &mut Machine).map_err(|errors| machine::failure(&errors))? {
        Parsed::Run(command) => Ok(command.jobs),
        Parsed::Help(_) => Err(Failure::Usage("the option is no option of a job".to_owned())),
    }
}

/// Returns the description of a load without the swept option.
fn without_key(load: &str, key: &str) -> String {
    let is_other = |part: &&str| part.split('=').next() != Some(key);
    load.split(", ").filter(is_other).collect::<Vec<_>>().join(", ")
}

/// Returns the names of all disks.
fn disks(steps: &[Step]) -> String {
    let mut names: Vec<String> = Vec::new();
    for target in steps.iter().flat_map(|step| &step.targets) {
        let name = target.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests;
