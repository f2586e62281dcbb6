//! The disks of each clone of a job: from fio's options to device specs. A clone with several files
//! has a target for each.
//!
//! Clones and jobs that name the same disk with the same settings share it. Keys that follow from
//! jobs and not from settings (`read_only`, `nr_bios`) do not separate them: they are derived from
//! all jobs of the disk.

mod file_lengths;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use forebay::{Policy, Spec, SpecError};
use forebay_fio::generator::Direction;
use forebay_fio::job::{Engine, Extent, Job};
use forebay_fio::units::Size;
use forebay_sim::DeviceSpec;

use super::owner::OwnerPlan;
use super::registration::Registration;
use super::{contradictions, filename, files_in};
use crate::failure::Failure;
use crate::file_id::FileId;

/// The size of a null device without a given size: 1 TiB.
const NULL_BYTES: u64 = 1 << 40;

/// A clone of a job, and one of its disks.
#[derive(Debug)]
pub(super) struct Target {
    /// Index of the job in the list of jobs.
    pub(super) job: usize,
    /// Number of the clone among the clones of its job.
    pub(super) clone: u32,
    /// Number of the disk among those of the clone: its file.
    pub(super) file: u16,
    /// The part of the disk that the clone asks for.
    pub(super) extent: Extent,
    /// Number of the disk; clones that share a disk have the same one.
    pub(super) disk: usize,
    /// Number of the file or device below the disk. Disks of one file with different settings or
    /// names have the same one.
    pub(super) place: u64,
    /// The disk.
    pub(super) spec: Spec,
    /// The owner of its I/O, if it has limits or a weight.
    pub(super) owner: Option<OwnerPlan>,
}

impl Target {
    /// Returns the disk's name in reports: its spec without keys.
    pub(super) fn name(&self) -> String {
        disk_name(&self.spec.to_string())
    }

    /// Returns the disk's name in logs of I/Os: the path of a file, or the spec without keys.
    pub(super) fn name_in_log(&self) -> String {
        match self.path() {
            Some(path) => filename::name_in_log(&path),
            None => self.name(),
        }
    }

    /// Returns whether the page cache is bypassed.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.spec.get("direct"), Some("on" | "1" | "yes" | "true"))
    }

    /// Returns the path of the file or block device, if the disk is one.
    pub(super) fn path(&self) -> Option<PathBuf> {
        file_below(&self.spec)
    }

    /// Returns the path of the model file, if the disk is a model that a file describes.
    pub(super) fn model_file(&self) -> Option<PathBuf> {
        let inner = innermost(&self.spec).filter(|spec| spec.driver() == "model")?;
        DeviceSpec::is_model_file(inner.target()).then(|| PathBuf::from(inner.target()))
    }
}

/// Returns a spec without its keys.
pub(super) fn disk_name(spec: &str) -> String {
    spec.split('?').next().unwrap_or(spec).to_owned()
}

/// Returns the targets of all clones of all jobs, in order.
pub(super) fn plan(jobs: &[Job]) -> Result<Vec<Target>, Failure> {
    let (mut numbers, mut places) = (HashMap::new(), HashMap::new());
    let mut needs: Vec<Needs> = Vec::new();
    let mut targets = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let owner = OwnerPlan::of(job)?;
        for clone in 0..job.numjobs {
            let specs = specs_of(job, clone)?;
            let nr_files = specs.len() as u32;
            for (file, spec) in (0..).zip(specs) {
                let disk = *numbers.entry(spec.to_string()).or_insert(needs.len());
                if disk == needs.len() {
                    needs.push(Needs::default());
                }
                needs[disk].add(job, owner);
                let path = file_below(&spec);
                let next = places.len() as u64;
                let id = path.as_deref().map(FileId::of).ok_or(disk);
                let place = *places.entry(id).or_insert(next);
                let extent = job.extent(clone, file.into(), nr_files, None);
                targets.push(Target { job: at, clone, file, extent, disk, place, spec, owner });
            }
        }
    }
    file_lengths::set_extents(jobs, &mut targets);
    for target in &mut targets {
        needs[target.disk].apply(&mut target.spec);
    }
    Ok(targets)
}

/// Returns the targets of each clone, in order.
pub(super) fn clones(targets: &[Target]) -> impl Iterator<Item = &[Target]> {
    targets.chunk_by(|a, b| (a.job, a.clone) == (b.job, b.clone))
}

/// Returns the numbers of the disks of a clone, each once.
pub(super) fn disks_of(clone: &[Target]) -> Vec<usize> {
    let mut disks: Vec<_> = clone.iter().map(|target| target.disk).collect();
    disks.sort_unstable();
    disks.dedup();
    disks
}

/// Returns the targets without clones that use the same disk as the clone before.
pub(super) fn distinct(targets: &[Target]) -> impl Iterator<Item = &Target> {
    let is_same =
        |a: &Target, b: &Target| (a.job, a.disk) == (b.job, b.disk) && a.extent == b.extent;
    targets.chunk_by(is_same).map(|clones| &clones[0])
}

/// Requirements on a disk by the jobs that share it.
#[derive(Debug, Default)]
struct Needs {
    writes: bool,
    iodepth: u32,
    registration: Registration,
    /// Whether a job has a weight.
    has_weight: bool,
}

impl Needs {
    fn add(&mut self, job: &Job, owner: Option<OwnerPlan>) {
        self.has_weight |= owner.is_some_and(OwnerPlan::has_weight);
        self.writes |= job.rw.has(Direction::Write) || job.rw.has(Direction::Trim);
        self.iodepth = self.iodepth.max(job.iodepth);
        self.registration.add(job);
    }

    /// Adds the requirements to the spec as keys, except keys that the spec already has.
    fn apply(&self, spec: &mut Spec) {
        if !self.writes && spec.get("read_only").is_none() && file_below(spec).is_some() {
            spec.set("read_only", "on");
        }
        if let Some(bytes) = self.registration.registered_bytes()
            && spec.get("fixed_buffers").is_none()
            && file_below(spec).is_some()
        {
            spec.set("fixed_buffers", &bytes.to_string());
        }
        // The layer's default is too small for deeper jobs.
        if self.iodepth > Policy::default().nr_bios && spec.get("nr_bios").is_none() {
            spec.set("nr_bios", &self.iodepth.to_string());
        }
        // Weights order the I/O of one context.
        if self.has_weight && spec.get("nr_hw_queues").is_none() {
            spec.set("nr_hw_queues", "1");
        }
    }
}

/// Returns the engine of each job for the header of the report: the driver, after fio's engine if a
/// different one was given, so that parsers of fio's header find the name that they expect.
pub(super) fn engine_names(targets: &[Target], jobs: &[Job]) -> Vec<String> {
    let name = |(at, job): (usize, &Job)| {
        let target = targets.iter().find(|target| target.job == at);
        let driver = target.map_or("file", |target| target.spec.driver());
        let insists = |target: &Target| target.spec.get("engine") == Some("io_uring");
        match job.ioengine {
            None => driver.to_owned(),
            Some(engine @ Engine::IoUring) if target.is_some_and(insists) => {
                engine.word().to_owned()
            }
            Some(engine) if driver == engine.word() => driver.to_owned(),
            Some(engine) => format!("{} ({driver})", engine.word()),
        }
    };
    jobs.iter().enumerate().map(name).collect()
}

/// Returns the specs of the disks of a clone.
fn specs_of(job: &Job, clone: u32) -> Result<Vec<Spec>, Failure> {
    let directory = job.directory(clone);
    if let Some(directory) = directory.as_deref().filter(|path| !Path::new(path).is_dir()) {
        return Err(Failure::Usage(format!(
            "{}: --directory={directory}: not a directory; create it, or check the path",
            job.name
        )));
    }
    let remote = job.remote.spec(job.ioengine).map_err(|option| {
        let engine = job.ioengine.map_or("", Engine::word);
        Failure::Usage(format!("{}: --ioengine={engine} needs --{option}", job.name))
    })?;
    if let Some(text) = remote {
        return Ok(vec![spec_of(job, &text)?]);
    }
    let mut texts = match (job.files_of_replay(), &job.filename) {
        (Some(names), _) => filename::specs_in_log(names, directory.as_deref())
            .map_err(|reason| Failure::Usage(format!("{}: {reason}", job.name)))?,
        (None, Some(given)) => {
            filename::spec_texts(given, directory.as_deref()).map_err(|reason| {
                Failure::Usage(format!("{}: --filename={given}: {reason}", job.name))
            })?
        }
        (None, None) if job.files.opendir.is_some() => Vec::new(),
        // Paths, even if the job's name looks like a spec.
        (None, None) => {
            let below = |name: String| match &directory {
                Some(directory) => {
                    format!("file:{}/{}", filename::escaped(directory), filename::escaped(&name))
                }
                None => format!("file:{}", filename::escaped(&name)),
            };
            job.default_filenames(clone).into_iter().map(below).collect()
        }
    };
    if let Some(directory) = &job.files.opendir {
        let found = files_in::all(Path::new(directory)).map_err(|reason| {
            Failure::Usage(format!("{}: --opendir={directory}: {reason}", job.name))
        })?;
        texts.extend(found.iter().map(|path| format!("file:{}", filename::escaped(path))));
    }
    /// The number of a file has 16 bits in an I/O.
    const FILES_MAX: usize = u16::MAX as usize;
    if texts.len() > FILES_MAX {
        let nr = texts.len();
        return Err(Failure::Usage(format!(
            "{}: a clone has at most {FILES_MAX} files, not {nr}",
            job.name
        )));
    }
    texts.iter().map(|text| spec_of(job, text)).collect()
}

fn spec_of(job: &Job, text: &str) -> Result<Spec, Failure> {
    let wrong = |text: &str, error: &dyn std::fmt::Display| {
        Failure::Usage(format!("{}: --filename={text}: {error}", job.name))
    };
    let parse = |text: &str| Spec::parse(text).map_err(|error| wrong(text, &error));
    let mut spec = parse(text)?;
    if let Some(contradiction) = contradictions::find(job, &spec) {
        return Err(wrong(job.filename.as_deref().unwrap_or_default(), &contradiction));
    }
    if job.ioengine == Some(Engine::Null) && spec.driver() != "null" {
        let size = match spec.driver() {
            "ram" => spec.target().to_owned(),
            _ => null_bytes(job, &spec).to_string(),
        };
        spec = parse(&format!("null:{size}?logical_block_size=1"))?;
    }
    if let Some(engine) = job.ioengine {
        let given = job.filename.as_deref().unwrap_or_default();
        spec = with_engine(spec, engine).map_err(|error| wrong(given, &error))?;
    }
    // Sorted, so that equal settings make equal specs.
    let mut policies: Vec<_> = job.policies.iter().collect();
    policies.sort();
    for (key, value) in policies {
        spec.set(key, value);
    }
    if let Some(direct) = job.direct.filter(|_| file_below(&spec).is_some()) {
        spec.set("direct", if direct { "on" } else { "off" });
    }
    if let Some(polls) = job.sqthread_poll.filter(|_| file_below(&spec).is_some()) {
        spec.set("sqpoll", if polls { "on" } else { "off" });
    }
    Ok(spec)
}

/// Returns the spec with the driver of fio's engine. A driver or an engine that the spec itself
/// names is kept.
fn with_engine(mut spec: Spec, engine: Engine) -> Result<Spec, SpecError> {
    let driver = match engine {
        Engine::Libaio | Engine::Posixaio => "aio",
        engine if engine.is_blocking() => "psync",
        _ => "file",
    };
    let plain = innermost(&spec).is_some_and(|inner| inner.driver() == "file");
    if !plain || driver == "file" && engine != Engine::IoUring || spec.get("engine").is_some() {
        return Ok(spec);
    }
    if engine == Engine::IoUring {
        spec.set("engine", "io_uring");
        return Ok(spec);
    }
    let text = spec.to_string();
    let (fault, path) = match text.strip_prefix("fault:") {
        Some(path) => ("fault:", path),
        None => ("", text.as_str()),
    };
    Spec::parse(&format!("{fault}{driver}:{}", path.strip_prefix("file:").unwrap_or(path)))
}

/// Returns the size of a null device: the given size, or that of the file that it replaces.
fn null_bytes(job: &Job, spec: &Spec) -> u64 {
    let existing = || {
        let metadata = file_below(spec).and_then(|path| std::fs::metadata(path).ok());
        metadata.map(|metadata| metadata.len()).filter(|&len| len > 0)
    };
    match (job.offset, job.size) {
        (Size::Bytes(offset), Some(Size::Bytes(size))) if size > 0 => offset.saturating_add(size),
        _ => existing().unwrap_or(NULL_BYTES),
    }
}

/// Returns the path of the innermost disk, if that is a file or block device.
pub(crate) fn file_below(spec: &Spec) -> Option<PathBuf> {
    let inner = innermost(spec)?;
    let is_path = matches!(inner.driver(), "file" | "aio" | "psync");
    is_path.then(|| Path::new(inner.target()).to_owned())
}

/// Returns the spec of the disk inside wrappers such as `fault:`.
pub(super) fn innermost(spec: &Spec) -> Option<Spec> {
    match spec.driver() {
        "fault" => innermost(&Spec::parse(spec.target()).ok()?),
        _ => Some(spec.clone()),
    }
}

#[cfg(test)]
mod tests;
