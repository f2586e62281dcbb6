//! Execution of the requests at the control socket.

use super::describe::{describe, describe_all, describe_trace};
use super::policy;
use super::request::{Add, AddDevice, Request, Set};
use crate::closing::Drain;
use crate::config::{DeviceOptions, DeviceSocket, ExportOptions};
use crate::export::Export;
use crate::export_limits::ExportLimits;
use crate::exports::Found;
use crate::handle::reload_certificates;
use crate::image_format::{image_warning, warning_of_open};
use crate::log::LogLevel;
use crate::managed::Managed;
use crate::metrics::last_part;
use crate::resize;
use forebay::now_ns;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Runs a request, and returns the reply.
pub(super) fn run(
    server: &Managed,
    request: Request,
    descriptors: Vec<OwnedFd>,
) -> Result<Value, ErrorReply> {
    match request {
        Request::Exports => {
            let mut reply = json!({ "exports": describe_all(server) });
            let trace = describe_trace(server);
            if !trace.is_null() {
                reply["trace"] = trace;
            }
            Ok(reply)
        }
        Request::Stats => Ok(server.shared.counters.describe(&server.process)),
        Request::Limits { export, client, set } => Ok(limits(server, &export, client, &set)?),
        Request::Policy { export, set } => {
            let export = named(server, &export)?.export;
            if !set.is_empty() {
                policy::change(&export, &set)?;
            }
            Ok(policy::describe(&export))
        }
        Request::Resize { export } => Ok(resize(server, export.as_deref())?),
        Request::Add(request) => add(server, request, descriptors),
        Request::Remove { export, force } => remove(server, &export, force),
        Request::Drain { force } => {
            let drain = if force { Drain::AtOnce } else { Drain::Waits };
            let what = match drain {
                Drain::AtOnce => "draining: the connections are closed",
                _ => "draining: no more connections are accepted, and the last one ends the server",
            };
            server.shared.log.line(now_ns(), what);
            server.shared.closing.drain(drain);
            Ok(json!({ "draining": true }))
        }
        Request::ReloadCertificates => match reload_certificates(&server.shared) {
            Ok(Some(directory)) => Ok(json!({ "reloaded": directory.display().to_string() })),
            Ok(None) => {
                Err("this server has no certificates: start it with --tls".to_owned().into())
            }
            Err(error) => Err(error.to_string().into()),
        },
        Request::LogLevel { level } => {
            let log = &server.shared.log;
            if let Some(level) = level {
                let parsed = level.parse::<LogLevel>();
                log.set_level(parsed.map_err(|expected| format!("level {level:?}: {expected}"))?);
            }
            Ok(json!({ "log_level": log.level().name() }))
        }
        Request::Trace { on } => Ok(trace(server, on)?),
        Request::Record => Ok(record(server, descriptors)?),
    }
}

/// The reply to a request that has failed.
#[derive(Debug)]
pub(super) struct ErrorReply(pub(super) Value);

impl From<String> for ErrorReply {
    fn from(error: String) -> ErrorReply {
        ErrorReply(json!({ "error": error }))
    }
}

/// Adds an export, perhaps with a device.
fn add(server: &Managed, mut add: Add, mut descriptors: Vec<OwnedFd>) -> Result<Value, ErrorReply> {
    let device = add.device.take().map(|device| of_device(device, &mut descriptors));
    let (device, options) = (device.transpose()?, options(add)?);
    let warning = match descriptors.first() {
        Some(file) => warning_of_open(&options.spec, file),
        None => image_warning(&options.spec),
    };
    let (mut reply, is_done) = match server.add(&options, device, descriptors) {
        Ok(export) => (Ok(describe(server, &export)), true),
        Err(failed) => (Err(ErrorReply(json!({ "error": failed.why }))), failed.is_done),
    };
    let (Ok(fields) | Err(ErrorReply(fields))) = &mut reply;
    if fields["error"].is_string() && is_done {
        fields["added"] = true.into();
    }
    if let Some(warning) = warning.filter(|_| is_done) {
        server.shared.log.warn(now_ns(), format_args!("export {:?}: {warning}", options.name));
        fields["warning"] = warning.into();
    }
    reply
}

/// Removes an export.
fn remove(server: &Managed, export: &str, force: bool) -> Result<Value, ErrorReply> {
    // If a removal is repeated, a label must not name another export than before.
    let found = exactly_named(server, export)?;
    let sockets = server.device_sockets(&found.export);
    let (error, is_done) = match server.remove(&found, force) {
        Ok(()) => (None, true),
        Err(failed) => (Some(failed.why), failed.is_done),
    };
    let mut reply = json!({});
    if is_done {
        reply["removed"] = export.into();
        if !sockets.is_empty() {
            reply["sockets"] = sockets.into();
        }
    }
    match error {
        None => Ok(reply),
        Some(error) => {
            reply["error"] = error.into();
            Err(ErrorReply(reply))
        }
    }
}

/// Begins or ends a trace in the server's directory.
fn trace(server: &Managed, on: Option<bool>) -> Result<Value, String> {
    let shared = &server.shared;
    match on {
        None => {}
        Some(true) => shared.traces.switch_on(|| shared.exports.all())?,
        Some(false) => drop(shared.traces.switch_off().ok_or("no trace runs")?),
    }
    Ok(json!({ "trace": describe_trace(server) }))
}

/// Begins a trace that is sent to the client.
fn record(server: &Managed, descriptors: Vec<OwnedFd>) -> Result<Value, String> {
    let shared = &server.shared;
    let mut descriptors = descriptors.into_iter();
    let (Some(socket), None) = (descriptors.next(), descriptors.next()) else {
        let why = "expected one descriptor with the request: a socket for the files of the trace";
        return Err(why.to_owned());
    };
    shared.traces.send(|| shared.exports.all(), socket)?;
    Ok(json!({ "trace": describe_trace(server) }))
}

/// Returns the export with this name. If no export has or had it, it may also be a
/// [label](labels_of_default) of the default export, whose name is empty. The name of a removed
/// export would else reach another disk than its user expects.
fn named(server: &Managed, name: &str) -> Result<Found, String> {
    let default = || {
        let exports = &server.shared.exports;
        let found = exports.named("").filter(|_| !exports.was_removed(name))?;
        labels_of_default(server, &found).iter().any(|label| label == name).then_some(found)
    };
    exactly_named(server, name).or_else(|error| default().ok_or(error))
}

/// Returns the export that has this name itself.
fn exactly_named(server: &Managed, name: &str) -> Result<Found, String> {
    let exports = &server.shared.exports;
    exports.named(name).ok_or_else(|| {
        let describe = |export: &Arc<Export>| match export.name.as_str() {
            "" => format!("\"\" (the default export, {})", last_part(&export.spec)),
            name => format!("{name:?}"),
        };
        let names: Vec<_> = exports.all().iter().map(describe).collect();
        match names.is_empty() {
            true => format!("there is no export {name:?}: this server has none; add one first"),
            false => format!("there is no export {name:?}; there are: {}", names.join(", ")),
        }
    })
}

/// Returns the names under which the default export is shown: by `forebay top` and metrics, and in
/// errors.
fn labels_of_default(server: &Managed, found: &Found) -> Vec<String> {
    let label = server.shared.counters.label(found.index);
    label.into_iter().chain([last_part(&found.export.spec).to_owned()]).collect()
}

fn limits(server: &Managed, name: &str, client: Option<u64>, set: &Set) -> Result<Value, String> {
    let export = named(server, name)?.export;
    match client {
        Some(id) => export.tenant.change_client(id, set)?,
        None if set.is_empty() => {}
        None => export.tenant.change_limits(set).map_err(|error| error.to_string())?,
    }
    Ok(describe(server, &export))
}

fn resize(server: &Managed, name: Option<&str>) -> Result<Value, String> {
    let found = name.map(|name| named(server, name)).transpose()?;
    if let Some(Found { is_withdrawn: true, export, .. }) = &found {
        return Err(format!("export {:?} is being removed", export.name));
    }
    let resized = resize::reread(&server.shared, found.as_ref().map(|found| found.index));
    resized.map_err(|error| error.to_string())?;
    let exports: Vec<Arc<Export>> = match found {
        Some(found) => vec![found.export],
        None => server.shared.exports.all(),
    };
    let exports: Vec<_> = exports.iter().map(|export| describe(server, export)).collect();
    Ok(json!({ "exports": exports }))
}

/// Returns the options of a device to be added, whose socket is the first of the descriptors.
fn of_device(device: AddDevice, descriptors: &mut Vec<OwnedFd>) -> Result<DeviceOptions, String> {
    if descriptors.is_empty() {
        let why = "vhost_user_blk: expected a descriptor with the request: a unix socket that \
                   listens";
        return Err(why.to_owned());
    }
    let AddDevice { num_queues, queue_size, block_size, serial } = device;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let max = DeviceOptions::MAX_QUEUES;
    let nr_queues = match num_queues {
        None => processors.min(max.into()) as u16,
        Some(nr) => narrow("num_queues", nr)?,
    };
    Ok(DeviceOptions {
        export: 0,
        socket: DeviceSocket::Passed(descriptors.remove(0)),
        nr_queues,
        queue_size: queue_size
            .map_or(Ok(DeviceOptions::MAX_QUEUE_SIZE), |size| narrow("queue_size", size))?,
        block_size: block_size.map(|size| narrow("block_size", size)).transpose()?,
        serial: serial.unwrap_or_default(),
    })
}

/// Returns a number in the type of its option. The device checks the range.
fn narrow<T: TryFrom<u64>>(key: &str, number: u64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{key}: {number}: too large"))
}

/// Returns the options of an export to be added.
fn options(add: Add) -> Result<ExportOptions, String> {
    let Add { export, spec, description, read_only, limits: set, priority, .. } = add;
    let mut limits = ExportLimits::default();
    limits.change(&set).map_err(|bad| format!("limits not set: {bad}"))?;
    let priority = match priority {
        None => Default::default(),
        Some(text) => text.parse().map_err(|error| format!("priority {text:?}: {error}"))?,
    };
    let name = export;
    let options = ExportOptions { spec, name, description, ..ExportOptions::default() };
    Ok(ExportOptions { read_only, limits, priority, ..options })
}
