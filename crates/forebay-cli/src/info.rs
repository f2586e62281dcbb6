//! `forebay info`: a disk's limits, settings and features, with the reasons for missing ones.

use std::fmt::Write;

use forebay::{
    Disk, DiskInfo, FeatureState, KNOBS, OpenError, Policy, Property, PropertyGroup, PropertyValue,
    SETTINGS, SchedulerAdvice, Setting, Spec, Values,
};
use forebay_fio::report::number;
use serde_json::{Map, Value, json};

use crate::experiments;
use crate::failure::Failure;
use crate::output;

/// Opens the disk and prints its description.
pub(crate) fn main(text: &str, as_json: bool) -> Result<(), Failure> {
    output::stdout(&describe(text, as_json)?)
}

/// Opens the disk and returns its description. A disk without write permission is opened read-only,
/// and one that another program uses is opened without locks: a description writes nothing.
pub(crate) fn describe(text: &str, as_json: bool) -> Result<String, Failure> {
    let spec = Spec::parse(text).map_err(|error| Failure::Usage(format!("{text}: {error}")))?;
    let opened = Disk::open_spec(&spec).or_else(|error| {
        let Some((why, keys)) = without_rights(&error) else { return Err(error) };
        if keys.iter().any(|(key, _)| spec.get(key).is_some()) {
            return Err(error);
        }
        let mut reader = spec.clone();
        keys.iter().for_each(|(key, value)| reader.set(key, value));
        // If reading is not permitted either, the second error is about that.
        Disk::open_spec(&reader).inspect(|_| {
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let keys = keys.join("&");
            output::stderr(&format!("forebay: {text}: {why}; opened with {keys}\n"));
        })
    });
    let disk = opened.map_err(|error| Failure::open("", &error))?;
    let info = disk.info();
    output::notice(info);
    Ok(if as_json { format!("{:#}\n", json_of(info)) } else { text_of(info) })
}

/// Returns the reason for this error, and keys with which the disk needs fewer rights: read-only,
/// and without a lock if another program holds one.
fn without_rights(
    error: &OpenError,
) -> Option<(&'static str, &'static [(&'static str, &'static str)])> {
    match error {
        OpenError::NoPermission { .. } => {
            Some(("no permission to write to it", &[("read_only", "on")]))
        }
        OpenError::Locked { .. } | OpenError::ImageInUse { .. } => {
            Some(("another program uses it", &[("read_only", "on"), ("lock", "off")]))
        }
        _ => None,
    }
}

/// Returns the limits by their names in `/sys/block/X/queue`, without the capacity.
pub(crate) fn limits_of(info: &DiskInfo) -> impl Iterator<Item = (&'static str, Value)> {
    let limits = info.properties().filter(|property| property.group == PropertyGroup::Limit);
    limits.map(|Property { name, value, .. }| {
        let value = match value {
            PropertyValue::Flag(is_set) => is_set.into(),
            PropertyValue::Number(number) => number.into(),
            other => other.to_string().into(),
        };
        (name, value)
    })
}

/// Returns the settings in force, by their keys in a spec.
pub(crate) fn policy_of(info: &DiskInfo) -> Value {
    let known = SETTINGS.iter().filter_map(|it| Some((it.key.to_owned(), value_of(it, info)?)));
    Value::Object(known.collect())
}

/// Returns the value of a setting as JSON.
fn value_of(setting: &Setting, info: &DiskInfo) -> Option<Value> {
    let value = setting.get(info)?;
    Some(if setting.values == Values::Name { value.into() } else { json_value(value) })
}

/// Returns the settings of a policy, and the largest request, which is in sectors of 512 bytes.
pub(crate) fn settings_of(policy: &Policy, max_sectors: u32) -> Map<String, Value> {
    let knobs = KNOBS.iter().map(|knob| (knob.key.to_owned(), json_value(knob.get(policy))));
    knobs.chain([("max_sectors_kb".to_owned(), (max_sectors / 2).into())]).collect()
}

/// Returns a setting's value as JSON: a number if it is one, else text.
fn json_value(text: String) -> Value {
    text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from)
}

/// Returns whether the disk has the recommended scheduler.
fn is_followed(info: &DiskInfo, advice: &SchedulerAdvice) -> bool {
    let scheduler = info.policy.scheduler;
    scheduler == advice.scheduler || scheduler.is_none() && advice.scheduler.is_none()
}

/// Returns the remark on the scheduler of the disk: it is recommended, or another one is.
fn scheduler_remark(info: &DiskInfo) -> String {
    let advice = info.scheduler_advice();
    match is_followed(info, &advice) {
        true => format!(" (recommended: {})", advice.why),
        false => format!(" ({} is recommended: {})", advice.scheduler.name(), advice.why),
    }
}

fn json_of(info: &DiskInfo) -> Value {
    let limits = limits_of(info).map(|(name, value)| (name.to_owned(), value));
    let features = info.features.iter().map(|feature| {
        let (key, text) = match &feature.state {
            FeatureState::Present(how) => ("how", how),
            FeatureState::Missing(why) => ("why", why),
        };
        let present = matches!(feature.state, FeatureState::Present(_));
        (feature.name.to_owned(), json!({ "present": present, key: text }))
    });
    let advice = info.scheduler_advice();
    json!({
        "spec": info.spec,
        "driver": info.driver,
        "notice": info.notice,
        "capacity_bytes": info.limits.capacity_bytes,
        "read_only": info.limits.read_only,
        "volatile_cache": info.limits.volatile_cache,
        "flush_queueable": info.limits.flush_queueable,
        "limits": Map::from_iter(limits),
        "policy": policy_of(info),
        "experimental_settings": Map::from_iter(
            experiments::of(&info.policy).into_iter().map(|(key, why)| (key.to_owned(), why.into()))
        ),
        "scheduler_advice": {
            "scheduler": advice.scheduler.name(),
            "why": advice.why,
            "in_use": is_followed(info, &advice),
        },
        "features": Map::from_iter(features),
    })
}

fn text_of(info: &DiskInfo) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<28}{value}");
    };
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    line("disk", &info.spec);
    line("driver", info.driver);
    match info.limits.capacity_bytes {
        Some(bytes) => line("capacity", &format!("{bytes} bytes ({})", number::bytes(bytes))),
        None => line("capacity", "grows"),
    }
    line("read-only", yes(info.limits.read_only));
    line("volatile cache", yes(info.limits.volatile_cache));
    line("flush queueable", yes(info.limits.flush_queueable));
    line("limits", "");
    for (name, value) in limits_of(info) {
        line(&format!("  {name}"), &value.to_string());
    }
    line("settings", "");
    let experimental = experiments::of(&info.policy);
    if let Value::Object(policy) = policy_of(info) {
        for (name, value) in &policy {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let why = experimental.iter().find(|(key, _)| key == name);
            let idle = Setting::named(name).filter(|setting| !setting.applies(info));
            let why = match (why, idle) {
                (_, Some(setting)) => format!(" (no effect: needs {})", setting.when),
                (Some((_, why)), None) => format!(" ({why})"),
                (None, None) if name == "scheduler" => scheduler_remark(info),
                (None, None) => String::new(),
            };
            line(&format!("  {name}"), &format!("{shown}{why}"));
        }
    }
    line("features", "");
    for feature in &info.features {
        let state = match &feature.state {
            FeatureState::Present(how) => format!("yes: {how}"),
            FeatureState::Missing(why) => format!("no: {why}"),
        };
        line(&format!("  {}", feature.name), &state);
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
