//! fio as the other side: its version, and the jobs for it.

use std::io::ErrorKind;
use std::process::Command;

use forebay::{Setting, Spec};
use forebay_fio::job::{Engine, Job};
use forebay_fio::units::{Size, parse_bytes};

use crate::bench::plan::Target;
use crate::failure::Failure;

/// The first fio whose JSON has latencies in nanoseconds.
const OLDEST: (u32, u32) = (3, 0);
/// The first fio with the engine io_uring.
const OLDEST_WITH_IO_URING: (u32, u32) = (3, 13);

/// Keys of files that become options of fio ([`twin_of_file`]), that have no effect on the load, or
/// that cause notes ([`notes`]).
const OF_FILES: &[&str] =
    &["direct", "logical_block_size", "engine", "fixed_buffers", "sqpoll", "sqpoll_idle_ms"];

/// Keys that need io_uring, in Forebay and in fio.
const OF_RINGS: [&str; 2] = ["fixed_buffers", "sqpoll"];

/// Returns whether a key is a setting of every disk. fio has no layer, so its job is the same
/// without it.
fn is_of_the_layer(key: &str) -> bool {
    Setting::named(key).is_some()
}

/// Returns the equivalent jobs for fio.
///
/// # Errors
/// A job on a device that fio does not support.
pub(super) fn twins(jobs: &[Job], targets: &[Target]) -> Result<Vec<Job>, Failure> {
    let twin = |(at, job): (usize, &Job)| {
        // Clones differ only in their default file, which fio names in the same way.
        let target = targets.iter().find(|target| target.job == at);
        let target = target.ok_or_else(|| Failure::Usage(format!("{}: no clones", job.name)))?;
        twin(job, &target.spec)
            .map_err(|reason| Failure::Usage(format!("--compare=fio: {}: {reason}", job.name)))
    };
    jobs.iter().enumerate().map(twin).collect()
}

/// Returns descriptions of the disks of fio's side: the engine, the file, and options about it.
pub(super) fn descriptions(twins: &[Job], targets: &[Target]) -> Vec<String> {
    let describe = |target: &Target| {
        let twin = &twins[target.job];
        let mut parts: Vec<String> =
            twin.ioengine.map(|engine| engine.word().to_owned()).into_iter().collect();
        if twin.ioengine != Some(Engine::Null) {
            parts.push(target.spec.target().to_owned());
        }
        let options = [
            ("direct", twin.direct),
            ("fixedbufs", twin.fixedbufs),
            ("sqthread_poll", twin.sqthread_poll),
        ];
        let given = options.into_iter().filter(|(_, value)| *value == Some(true));
        parts.extend(given.map(|(name, _)| format!("{name}=1")));
        parts.join(", ")
    };
    targets.iter().map(describe).collect()
}

/// Returns notes about differences between the sides for which fio has no option.
pub(super) fn notes(twins: &[Job], targets: &[Target]) -> Vec<String> {
    let mut notes = Vec::new();
    if twins.iter().any(|job| job.ioengine == Some(Engine::Null)) {
        notes.push(
            "fio's engine null completes an I/O in the call that submits it: the comparison shows \
             what the layer costs."
                .to_owned(),
        );
    }
    if targets.iter().any(|target| target.spec.get("sqpoll_idle_ms").is_some()) {
        notes.push(
            "fio has no counterpart of sqpoll_idle_ms: its polling thread sleeps after the \
             kernel's default of 1 s without work."
                .to_owned(),
        );
    }
    notes
}

fn twin(job: &Job, spec: &Spec) -> Result<Job, String> {
    let shown = spec.to_string();
    let (place, keys) = shown.split_once('?').unwrap_or((&shown, ""));
    let mut twin = Job { policies: Vec::new(), ..job.clone() };
    let harmless: &[&str] = match spec.driver() {
        "file" | "aio" | "psync" => OF_FILES,
        "null" => &["logical_block_size"],
        "nbd" => {
            let is_of_uri = |pair: &&str| pair.starts_with("socket=") || pair.starts_with("tls-");
            let pairs: Vec<&str> = keys.split('&').filter(is_of_uri).collect();
            let query =
                if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
            return Err(format!(
                "comparisons do not support fio's engine for NBD; run it by itself, with \
                 --ioengine=nbd --uri='{place}{query}', or compare with another spec, such as \
                 --compare='?plug=none'"
            ));
        }
        _ => {
            return Err(format!(
                "fio has no device like {place}; compare with another spec, such as \
                 --compare='?plug=none' or --compare=null:1G, or give the job a file (in /dev/shm, \
                 if it is to be memory)"
            ));
        }
    };
    let names = keys.split('&').filter_map(|pair| pair.split('=').next());
    let mut names = names.filter(|name| !name.is_empty());
    if let Some(name) = names.find(|name| !harmless.contains(name) && !is_of_the_layer(name)) {
        return Err(format!("fio has no counterpart of the key `{name}` of {place}; leave it out"));
    }
    if spec.driver() == "null" {
        let capacity = parse_bytes(spec.target()).map_err(|error| error.to_string())?;
        twin.ioengine = Some(Engine::Null);
        twin.filename = None;
        twin.direct = None;
        // fio's engine null does not support them.
        (twin.fixedbufs, twin.sqthread_poll) = (None, None);
        // The whole device, because fio cannot determine its size.
        let rest = capacity.saturating_sub(job.offset.of(capacity));
        twin.size = job.size.filter(|size| matches!(size, Size::Bytes(1..))).or(match job.size {
            Some(percent @ Size::Percent(_)) => Some(Size::Bytes(percent.of(capacity).min(rest))),
            _ => Some(Size::Bytes(rest)),
        });
        twin.offset = Size::Bytes(job.offset.of(capacity));
        return Ok(twin);
    }
    twin_of_file(twin, spec).map_err(|key| {
        let engine = job.ioengine.map_or("", Engine::word);
        format!(
            "fio's engine {engine} has no counterpart of the key `{key}` of {place}; leave it out, \
             or use --ioengine=io_uring"
        )
    })
}

/// Returns the job on the file of `spec`, with the keys of the file as options of fio.
///
/// # Errors
/// A key for which the job's fio engine has no equivalent.
fn twin_of_file(job: Job, spec: &Spec) -> Result<Job, &'static str> {
    let is_on = |value: &str| matches!(value, "on" | "1" | "yes" | "true");
    let mut twin = job;
    let engine = match (spec.driver(), spec.get("engine")) {
        ("aio", _) | (_, Some("aio")) => Engine::Libaio,
        ("psync", _) | (_, Some("psync")) => Engine::Psync,
        _ => Engine::IoUring,
    };
    let engine = *twin.ioengine.get_or_insert(engine);
    // fio separates files by colons.
    twin.filename = twin.filename.is_some().then(|| spec.target().replace(':', "\\:"));
    twin.direct = spec.get("direct").map(is_on).or(twin.direct);
    if engine != Engine::IoUring {
        // fio's other engines do not support these options.
        (twin.fixedbufs, twin.sqthread_poll) = (None, None);
        let is_used = |key: &&str| spec.get(key).is_some_and(|value| value != "off");
        return OF_RINGS.into_iter().find(is_used).map_or(Ok(twin), Err);
    }
    if spec.get("fixed_buffers").is_some() {
        // All jobs on the disk use its registered memory, unless they opt out.
        twin.fixedbufs = twin.fixedbufs.or(Some(true));
    }
    twin.sqthread_poll = spec.get("sqpoll").map(is_on).or(twin.sqthread_poll);
    Ok(twin)
}

/// Returns the version of fio, such as `fio-3.33`, if it is installed and can run these jobs.
pub(super) fn version(jobs: &[Job]) -> Result<String, Failure> {
    let output = Command::new("fio").arg("--version").output().map_err(|error| {
        Failure::Run(match error.kind() {
            ErrorKind::NotFound => {
                "--compare=fio: no program fio in PATH; install it (apt install \
                                    fio, dnf install fio), or compare with another spec"
                    .to_owned()
            }
            _ => format!("--compare=fio: fio --version: {error}"),
        })
    })?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let uses_io_uring = jobs.iter().any(|job| job.ioengine == Some(Engine::IoUring));
    is_new_enough(&version, uses_io_uring).map_err(Failure::Run)?;
    Ok(version)
}

fn is_new_enough(version: &str, uses_io_uring: bool) -> Result<(), String> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let mut parts = version.strip_prefix("fio-").unwrap_or_default().split(['.', '-']);
    let (Some(major), minor) = (number(parts.next()), number(parts.next())) else {
        return Err(format!(
            "--compare=fio: fio --version prints {version:?}, which is not a version of fio"
        ));
    };
    let found = (major, minor.unwrap_or(0));
    let (oldest, reason) = match uses_io_uring {
        true => (OLDEST_WITH_IO_URING, "its engine io_uring; --ioengine=libaio does with less"),
        false => (OLDEST, "latencies in nanoseconds"),
    };
    match found < oldest {
        true => Err(format!(
            "--compare=fio: {version} is too old: {}.{} or newer is needed for {reason}",
            oldest.0, oldest.1
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
