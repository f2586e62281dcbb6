//! Scenario files: `forebay sim SCENARIO.toml`.
//!
//! A file describes a disk, tasks and timed events, of the same kinds as the random scenarios have.
//! [`fields`] has the keys.

mod fields;
mod report;

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::ops::Range;
use std::path::Path;

use forebay_fio::errors::Place;
use forebay_fio::origin::FilePlace;
use forebay_sim::{
    EventSpec, FaultRule, FileSpec, Interleaving, JobDisk, Priority, ScenarioSpec, Scheduling,
    TaskSpec, run_scenario,
};
use toml::{Spanned, Value};

use self::fields::{
    Event, File, FileTable, InterleavingTable, Number, PriorityText, Size, Task, Time,
};
use self::report::Report;
use super::comparison::Comparison;
use super::notes::Kinds;
use super::run::LoadOf;
use super::seeds::Seeds;
use super::settings::{self, Settings, Tasks};
use super::variants::{self, Variant};
use super::{Args, check_swept, given};
use crate::failure::Failure;
use crate::output;

/// The scenario of a file, its disks, and its seeds.
#[derive(Debug)]
pub(super) struct ScenarioFile {
    /// The scenario, on the first of the disks.
    spec: ScenarioSpec,
    comparison: Comparison,
    pub(super) first_seed: Option<u64>,
    pub(super) nr_seeds: Option<u64>,
}

/// Returns whether a file is a scenario, by its name.
pub(super) fn is_scenario(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Reads a scenario. Settings and faults of the command line are added to those of the file.
///
/// # Errors
/// The file cannot be read, or a key or a value is wrong.
pub(super) fn read(
    path: &Path,
    args: &Args,
    more_faults: Vec<FaultRule>,
) -> Result<ScenarioFile, Failure> {
    let name = path.display().to_string();
    let text = read_to_string(path)
        .map_err(|error| Failure::Run(format!("{name}: cannot read the file: {error}")))?;
    let source = Source { name: &name, text: &text };
    let file: File = toml::from_str(&text).map_err(|error| match error.span() {
        Some(span) => source.refuse(span, error.message().to_owned()),
        None => Failure::Usage(format!("{name}: {}", error.message())),
    })?;
    let (first_seed, nr_seeds) = (file.seed, file.seeds.map(|Number(nr)| nr.into()));
    let given = given(args, Tasks::Scenario)?;
    check_swept(&args.sweep, &given)?;
    let own = source.disk_table(&file)?;
    let settings = own.settings.then(&given);
    let is_compared = !args.compare.is_empty() || !args.sweep.is_empty();
    let mut disk = source.disk(&file, &settings, &given, is_compared)?;
    disk.faults = source.faults(&file.faults)?;
    disk.faults.extend(more_faults);
    let spec = source.spec(&file, disk, &own)?;
    let mut variants = variants::of(&settings, Tasks::Scenario, &args.compare, &args.sweep)?;
    let has = |rate: fn(&TaskSpec) -> u32| spec.tasks.iter().any(|task| rate(task) > 0);
    let has_reserved = has(|task| task.reserved);
    let kinds = Kinds {
        has_reserved,
        has_background: has(|task| task.background),
        has_priorities: spec.tasks.iter().any(has_priority),
        has_classes: has_classes(&spec.tasks),
    };
    for variant in &mut variants {
        variant.disk.faults.clone_from(&spec.disk.faults);
        variant.kinds = kinds;
    }
    let comparison = Comparison::new(path, &[path.to_owned()], variants, args)?;
    Ok(ScenarioFile { spec, comparison, first_seed, nr_seeds })
}

/// Runs a scenario with each seed, and prints the sums, or the comparison of the disks.
pub(super) fn main(args: &Args, file: &ScenarioFile, seeds: Seeds) -> Result<(), Failure> {
    let comparison = &file.comparison;
    let mut report = Report::new(seeds);
    let run = |variant: &Variant, seed| {
        let spec = ScenarioSpec { disk: variant.disk.clone(), ..file.spec.clone() };
        run_scenario(&spec, seed)
            .map_err(|why| Failure::Usage(format!("{}: {why}", comparison.path.display())))
    };
    let is_text = !comparison.is_json && !comparison.is_compared(args);
    let outcome = comparison.run(args, seeds, run, |_, summary| {
        if is_text {
            report.add(summary);
        }
        Ok(())
    });
    report.clear_line();
    let runs = outcome?;
    if is_text {
        return output::stdout(&report.text(&comparison.variants[0], &seeds.replay(args)));
    }
    comparison.report(args, seeds, &runs, LoadOf::Scenario)
}

/// The table `[disk]` of a file.
#[derive(Debug)]
struct DiskTable {
    settings: Settings,
    size_bytes: Option<u64>,
    block_size: u32,
}

/// The text of a file.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// Returns an error about a part of the text, which shows the line.
    fn refuse(self, span: Range<usize>, reason: String) -> Failure {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(line_start..).unwrap_or_default();
        let line = line.lines().next().unwrap_or_default();
        let range = (start - line_start).min(line.len())..(span.end - line_start).min(line.len());
        let number = before.matches('\n').count() + 1;
        let place = Place { line: number, text: line.to_owned(), range };
        let place = FilePlace { file: self.name.to_owned(), place, included_from: Vec::new() };
        Failure::Usage(place.refuse(reason).to_string())
    }

    fn disk_table(self, file: &File) -> Result<DiskTable, Failure> {
        let (mut settings, mut size_bytes, mut block_size) = (Settings::default(), None, 4096);
        for (key, value) in &file.disk {
            let name = key.get_ref().as_str();
            let wrong = |reason: String| self.refuse(value.span(), format!("{name}: {reason}"));
            match name {
                "size" => {
                    let size = Size::try_from(value.get_ref().clone());
                    size_bytes = Some(size.map_err(|why| wrong(why.to_owned()))?.0);
                }
                "block_size" => {
                    block_size = match value.get_ref() {
                        Value::Integer(512) => 512,
                        Value::Integer(4096) => 4096,
                        _ => return Err(wrong("expected 512 or 4096".to_owned())),
                    };
                }
                _ => {
                    let text = text_of(value.get_ref()).ok_or_else(|| {
                        wrong("expected a number, text, true or false".to_owned())
                    })?;
                    settings::check(name, &text, Tasks::Scenario)
                        .map_err(|why| self.refuse(key.span(), format!("{name}: {why}")))?;
                    settings.add(name, &text);
                }
            }
        }
        Ok(DiskTable { settings, size_bytes, block_size })
    }

    /// Returns the disk of these settings, which include `more`, those of the command line. In a
    /// comparison, a setting may have no effect on the base disk.
    fn disk(
        self,
        file: &File,
        settings: &Settings,
        more: &Settings,
        is_compared: bool,
    ) -> Result<JobDisk, Failure> {
        let disk = match is_compared {
            true => settings.disk_with_idle(Tasks::Scenario),
            false => settings.disk(Tasks::Scenario),
        };
        disk.map_err(|why| {
            let wrong =
                why.split_once('=').map(|(key, _)| key).filter(|key| more.get(key).is_none());
            match file.disk.keys().find(|key| Some(key.get_ref().as_str()) == wrong) {
                Some(key) => self.refuse(key.span(), why),
                None => Failure::Usage(format!("{}: {why}", self.name)),
            }
        })
    }

    fn spec(self, file: &File, disk: JobDisk, own: &DiskTable) -> Result<ScenarioSpec, Failure> {
        let crash_points = file.crash_points.iter().map(|Time(at)| (*at, EventSpec::CrashPoint));
        let events: Result<Vec<_>, _> =
            file.events.iter().map(|event| self.event(&disk, event)).collect();
        Ok(ScenarioSpec {
            disk,
            size_bytes: own.size_bytes,
            block_size: own.block_size,
            file: file.file.as_ref().map(file_spec),
            interleaving: interleaving(&file.interleaving),
            tasks: file.tasks.iter().map(task_spec).collect(),
            events: events?.into_iter().chain(crash_points).collect(),
        })
    }

    fn faults(self, texts: &[Spanned<String>]) -> Result<Vec<FaultRule>, Failure> {
        let rule = |text: &Spanned<String>| {
            FaultRule::parse(text.get_ref())
                .map_err(|why| self.refuse(text.span(), format!("expected {why}")))
        };
        texts.iter().map(rule).collect()
    }

    fn event(self, disk: &JobDisk, event: &Spanned<Event>) -> Result<(u64, EventSpec), Failure> {
        let Event { at: Time(at_ns), resize, .. } = event.get_ref();
        let gates = event.get_ref().gates().map(|(gate, Time(ns))| EventSpec::Close(gate, ns));
        let resize = resize.iter().map(|&Number(nr)| EventSpec::Resize(nr));
        let set = event.get_ref().set.as_ref().map(|set| {
            let scheduling = scheduling_of(disk.policy.scheduling(), set);
            scheduling.map_err(|why| self.refuse(event.span(), format!("set: {why}")))
        });
        let set = set.transpose()?.map(EventSpec::Scheduler);
        let events: Vec<_> = gates.chain(resize).chain(set).collect();
        match events[..] {
            [event] => Ok((*at_ns, event)),
            _ => {
                let why =
                    "expected one of freeze, quiesce, stop, resize and set beside at".to_owned();
                Err(self.refuse(event.span(), why))
            }
        }
    }
}

/// Returns a value as the text of a setting.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(is_on) => Some(if *is_on { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}

/// Returns these settings of a scheduler with those of an event.
fn scheduling_of(
    mut scheduling: Scheduling,
    set: &BTreeMap<String, Value>,
) -> Result<Scheduling, String> {
    for (key, value) in set {
        let text = text_of(value)
            .ok_or_else(|| format!("{key}: expected a number, text, true or false"))?;
        scheduling.set_key(key, &text).map_err(|bad| bad.to_string())?;
    }
    Ok(scheduling)
}

/// Returns whether a task submits I/O of another priority than the usual one.
fn has_priority(task: &TaskSpec) -> bool {
    task.priorities > 0 || task.priority != Priority::default()
}

/// Returns whether the tasks submit I/O of several classes.
fn has_classes(tasks: &[TaskSpec]) -> bool {
    let first = tasks.first().map(|task| task.priority.class());
    tasks.iter().any(|task| task.priorities > 0 || Some(task.priority.class()) != first)
}

fn file_spec(table: &FileTable) -> FileSpec {
    FileSpec {
        has_page_cache: table.page_cache,
        write_back_errors: table.write_back_errors.0,
        foreign_syncs: table.foreign_syncs.0,
    }
}

fn interleaving(table: &InterleavingTable) -> Interleaving {
    let default = Interleaving::default();
    Interleaving {
        switches: table.switches.map_or(default.switches, |Number(nr)| nr),
        naps: table.naps.map_or(default.naps, |Number(nr)| nr),
        step_ns: table.step_ns.map_or(default.step_ns, |Number(nr)| nr.into()),
    }
}

fn task_spec(task: &Task) -> TaskSpec {
    TaskSpec {
        count: task.count.0,
        nr_bios: task.bios.0,
        ops: task.ops.weights(),
        bios_per_s: task.bios_per_s.map(|Number(rate)| rate),
        area_bytes: task.area.map(|Size(bytes)| bytes),
        max_blocks: task.max_blocks.0.into(),
        max_burst: task.max_burst.0.into(),
        sequential: task.sequential.0,
        fua: task.fua.0,
        preflush: task.preflush.0,
        up_to: task.up_to.0,
        nomerge: task.nomerge.0,
        nowait: task.nowait.0,
        reserved: task.reserved.0,
        background: task.background.0,
        priority: task.priority.map_or_else(Priority::default, |PriorityText(priority)| priority),
        priorities: task.priorities.0,
        segments: task.segments.0,
        open_plugs: task.open_plugs.0,
        gates: task.gates.0,
        resizes: task.resizes.0,
        reopens: task.reopens.0,
    }
}
