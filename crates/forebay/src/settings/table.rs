//! The table of the settings of every disk: those of its policy, and those of its opening.
//!
//! Specs, `forebay info`, reports, comparisons, help texts and the simulator take keys, values and
//! descriptions from here. Keys of a single driver (`engine`, `seek_ns`) are not in the table.

use crate::info::{DiskInfo, ImageLock};
use forebay_core::{DefaultValue, KNOBS, Knob, Values};

/// A setting that every disk has, or every disk on a file: a key of its spec.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The key.
    pub key: &'static str,
    /// The values.
    pub values: Values,
    /// A description in a few words.
    pub help: &'static str,
    /// The condition under which it has an effect. Empty if it always has one.
    pub when: &'static str,
    source: Source,
}

/// The place where a setting has its default and its value.
#[derive(Clone, Copy, Debug)]
enum Source {
    Policy(&'static Knob),
    Disk { default: Fallback, get: fn(&DiskInfo) -> Option<String> },
}

/// The default of a setting that is no policy.
#[derive(Clone, Copy, Debug)]
enum Fallback {
    Fixed(&'static str),
    Depends(&'static str),
}

use Fallback::{Depends, Fixed};

const FILES: &str = "a file or block device";

fn switch(on: bool) -> Option<String> {
    Some(if on { "on" } else { "off" }.to_owned())
}

pub(crate) const MAX_SECTORS_KB: Setting = Setting::of_disk(
    "max_sectors_kb",
    Values::Number { min: 1, max: 1 << 20, what: "a number of KiB from 1 to 1048576" },
    "largest request, KiB",
    Depends("the device's"),
    |info| Some((info.limits.max_sectors / 2).to_string()),
);

pub(crate) const EXCLUSIVE: Setting = Setting::of_disk(
    "exclusive",
    Values::Switch,
    "keep other programs out: O_EXCL on a device, an advisory lock on a file",
    Fixed("off"),
    |info| switch(info.exclusive),
)
.when("a file, a block device or an image of rbd");

const LOCKS: [&str; 3] = {
    let [on, shared, off] = ImageLock::ALL;
    [on.name(), shared.name(), off.name()]
};

pub(crate) const LOCK: Setting = Setting::of_disk(
    "lock",
    Values::Words(&LOCKS),
    "QEMU's byte locks; on: other programs may only read the file; shared: they may write, too",
    Depends("on; off with exclusive=on on a file"),
    |info| info.lock.map(|lock| lock.name().to_owned()),
)
.when(FILES);

pub(crate) const TAKEOVER_WAIT_MS: Setting = Setting::of_disk(
    "takeover_wait_ms",
    Values::Number { min: 0, max: 3_600_000, what: "a number of milliseconds from 0 to 3600000" },
    "longest wait for I/O of a killed program that used the disk before, ms",
    Fixed("3000"),
    |info| info.takeover_wait_ms.map(|ms| ms.to_string()),
)
.when("a file or block device that is written to, and lock=on or exclusive=on");

pub(crate) const READ_ONLY: Setting = Setting::of_disk(
    "read_only",
    Values::Switch,
    "refuse everything that changes the disk",
    Fixed("off"),
    |info| switch(info.limits.read_only),
);

pub(crate) const FUA: Setting = Setting::of_disk(
    "fua",
    Values::Switch,
    "how a durable write is made; on: by the write itself; off: by a shared flush after it",
    Depends("as the device"),
    |info| switch(info.limits.fua).filter(|_| info.limits.volatile_cache),
)
.when("a volatile cache");

pub(crate) const SERVICE: Setting = Setting::of_disk(
    "service",
    Values::Switch,
    "a thread of the disk makes progress from the start; off: the first future starts it",
    Depends("on for model and with tag_set, else off"),
    |info| switch(info.service),
);

pub(crate) const TAG_SET: Setting = Setting::of_disk(
    "tag_set",
    Values::Name,
    "share one set of tags with the disks of the same name",
    Depends("none"),
    |info| info.tag_set.clone(),
);

const OF_DISK: [Setting; 8] =
    [MAX_SECTORS_KB, EXCLUSIVE, LOCK, TAKEOVER_WAIT_MS, READ_ONLY, FUA, SERVICE, TAG_SET];

/// All settings that every disk has, in the order of reports: those of its [`Policy`] first.
///
/// [`Policy`]: crate::Policy
pub static SETTINGS: [Setting; KNOBS.len() + OF_DISK.len()] = {
    let mut all = [OF_DISK[0]; KNOBS.len() + OF_DISK.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at < KNOBS.len() {
            true => Setting::of_policy(&KNOBS[at]),
            false => OF_DISK[at - KNOBS.len()],
        };
        at += 1;
    }
    all
};

impl Setting {
    const fn of_policy(knob: &'static Knob) -> Setting {
        let Knob { key, values, help, when, .. } = *knob;
        Setting { key, values, help, when, source: Source::Policy(knob) }
    }

    const fn of_disk(
        key: &'static str,
        values: Values,
        help: &'static str,
        default: Fallback,
        get: fn(&DiskInfo) -> Option<String>,
    ) -> Setting {
        Setting { key, values, help, when: "", source: Source::Disk { default, get } }
    }

    const fn when(self, when: &'static str) -> Setting {
        Setting { when, ..self }
    }

    /// Returns the setting with this key.
    pub fn named(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the field of the policy that the key sets, if it sets one.
    pub fn knob(&self) -> Option<&'static Knob> {
        match self.source {
            Source::Policy(knob) => Some(knob),
            Source::Disk { .. } => None,
        }
    }

    /// Returns the default.
    pub fn default_value(&self) -> DefaultValue {
        match self.source {
            Source::Policy(knob) => knob.default_value(),
            Source::Disk { default: Fixed(value), .. } => DefaultValue::Fixed(value.to_owned()),
            Source::Disk { default: Depends(what), .. } => DefaultValue::Depends(what),
        }
    }

    /// Returns whether this value is the default of every disk. `false` if the default depends on
    /// the disk.
    pub fn is_default(&self, value: &str) -> bool {
        match self.default_value() {
            DefaultValue::Fixed(default) => {
                let number = |value| self.values.number(value);
                number(value).is_some() && number(value) == number(&default)
            }
            DefaultValue::Depends(_) => false,
        }
    }

    /// Returns the value in force on a disk, as a spec takes it. `None` if the disk cannot have the
    /// setting, or has no value for it.
    pub fn get(&self, info: &DiskInfo) -> Option<String> {
        match self.source {
            Source::Policy(knob) => Some(knob.get(&info.policy)),
            Source::Disk { get, .. } => get(info),
        }
    }

    /// Returns whether the setting has an effect on a disk, as far as its properties show.
    pub fn applies(&self, info: &DiskInfo) -> bool {
        match self.source {
            Source::Policy(knob) => knob.applies(&info.policy, &info.limits),
            Source::Disk { get, .. } => get(info).is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
