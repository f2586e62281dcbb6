//! Settings of an export's disk that can change while it is in use: the scheduler with its keys,
//! the measure of weights, and `nr_requests`.

use crate::export::Export;
use forebay::{Disk, Knob, Policy, SCHEDULER_KEYS, WEIGHT_KEYS};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The key that limits the tags of each hardware context.
const NR_REQUESTS: &str = "nr_requests";

/// Longest wait for I/O in flight, which must end before a scheduler changes.
const FREEZE: Duration = Duration::from_secs(10);

/// Returns the settings in force, by key. `nr_requests` is there once it was set.
pub(super) fn describe(export: &Export) -> Value {
    let policy = policy_of(&export.disk);
    let keys = SCHEDULER_KEYS.iter().chain(&WEIGHT_KEYS);
    let knobs = keys.filter_map(|key| Knob::named(key));
    let mut settings: Map<String, Value> =
        knobs.map(|knob| (knob.key.to_owned(), knob.get(&policy).into())).collect();
    if let Some(nr) = export.nr_requests.get() {
        settings.insert(NR_REQUESTS.to_owned(), nr.to_string().into());
    }
    json!({ "export": export.name, "policy": settings })
}

/// Changes settings. All are checked by themselves before any is changed.
///
/// # Errors
/// Returns the reason. Nothing has changed then.
pub(super) fn change(export: &Export, set: &[(String, Option<String>)]) -> Result<(), String> {
    let disk = &export.disk;
    let (mut policy, mut nr_requests) = (policy_of(disk), None);
    let (mut has_scheduling, mut has_weights) = (false, false);
    for (key, value) in set {
        let value = value.as_deref().unwrap_or("null");
        if key == NR_REQUESTS {
            let number = value.parse().ok().filter(|nr: &u32| *nr > 0);
            let depth = disk.info().policy.queue_depth;
            let number = number.filter(|nr| *nr <= depth).ok_or_else(|| {
                format!("{key}={value}: expected a number from 1 to {depth}, the queue_depth")
            })?;
            nr_requests = Some(number);
            continue;
        }
        let keys = if WEIGHT_KEYS.contains(&key.as_str()) {
            has_weights = true;
            &WEIGHT_KEYS[..]
        } else {
            has_scheduling = true;
            &SCHEDULER_KEYS[..]
        };
        policy.set_key_in(keys, key, value).map_err(|bad| match Knob::named(key) {
            Some(_) if keys.contains(&key.as_str()) => bad.to_string(),
            _ => unknown(key, value),
        })?;
    }
    // Only this may fail: the number of requests was checked above.
    if has_scheduling {
        let changed = disk.set_scheduler_timeout(policy.scheduling(), FREEZE);
        changed.map_err(|error| error.to_string())?;
    }
    if has_weights {
        disk.set_weight_by(policy.weight_by, policy.cost);
    }
    if let Some(nr) = nr_requests {
        disk.set_nr_requests(nr).map_err(|error| error.to_string())?;
        export.nr_requests.set(nr);
    }
    Ok(())
}

/// Returns a policy with the present settings of a disk that can change.
fn policy_of(disk: &Disk) -> Policy {
    let (by, cost) = disk.weight_by();
    Policy::default().with_scheduling(disk.scheduling()).weight_by(by).cost(cost)
}

/// Returns the error for a key that does not exist, or belongs to a setting that cannot change.
fn unknown(key: &str, value: &str) -> String {
    let keys: Vec<_> = [NR_REQUESTS].iter().chain(&SCHEDULER_KEYS).chain(&WEIGHT_KEYS).collect();
    let keys = keys.into_iter().copied().collect::<Vec<_>>().join(", ");
    let why = match Knob::named(key) {
        Some(_) => "this setting is fixed when the disk is opened; those that can change are ",
        None => "expected one of the settings ",
    };
    format!("{key}={value}: {why}{keys}")
}
