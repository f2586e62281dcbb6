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
.when(FILES);

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

const OF_DISK: [Setting; 7] = [MAX_SECTORS_KB, EXCLUSIVE, LOCK, READ_ONLY, FUA, SERVICE, TAG_SET];

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
mod tests {
    use super::*;
    use crate::Disk;
    use std::collections::BTreeSet;
    use std::fmt::Write;

    /// Returns the table of the docs of [`Spec`](crate::Spec).
    fn page() -> String {
        let mut page = "| key | values | default | effect |\n|---|---|---|---|\n".to_owned();
        for setting in &SETTINGS {
            let Setting { key, values, help, when, .. } = setting;
            let when = if when.is_empty() { String::new() } else { format!(" (needs {when})") };
            let (values, default) = (values.expected(), setting.default_value());
            writeln!(page, "| `{key}` | {values} | {default} | {help}{when} |").expect("memory");
        }
        page
    }

    #[test]
    fn docs_of_specs_have_the_table() {
        let page = page();
        let is_current = include_str!("table.md") == page;
        assert!(is_current, "write this to crates/forebay/src/settings/table.md:\n{page}");
    }

    #[test]
    fn each_setting_is_found_by_its_key_once() {
        let keys: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), SETTINGS.len());
        for setting in &SETTINGS {
            assert_eq!(Setting::named(setting.key).expect("in the table").help, setting.help);
            assert_eq!(
                setting.knob().map(|knob| knob.key),
                Knob::named(setting.key).map(|k| k.key)
            );
        }
        assert!(Setting::named("direct").is_none());
    }

    #[test]
    fn a_setting_takes_the_value_that_a_disk_reports() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        file.as_file().set_len(1 << 20).expect("room for it");
        let path = file.path().to_str().expect("a path in UTF-8");
        let specs = ["ram:1M?tag_set=reported", &format!("psync:{path}"), "model:sata?fua=off"];
        let mut reported = BTreeSet::new();
        for spec in specs {
            let disk = Disk::open(spec).expect(spec);
            for setting in &SETTINGS {
                let Some(value) = setting.get(disk.info()) else { continue };
                let is_taken = setting.values.number(&value).is_some();
                assert!(is_taken || setting.values == Values::Name, "{}={value}", setting.key);
                reported.insert(setting.key);
            }
        }
        assert_eq!(reported.len(), SETTINGS.len(), "{reported:?}");
    }

    #[test]
    fn only_fixed_defaults_are_defaults_of_every_disk() {
        let named = |key| Setting::named(key).expect("in the table");
        assert!(named("exclusive").is_default("no") && !named("exclusive").is_default("on"));
        assert!(named("wake").is_default("fair") && !named("wake").is_default("nonsense"));
        assert!(named("nr_bios").is_default("4k") && !named("nr_bios").is_default("1"));
        assert!(!named("service").is_default("off"), "it is on for some disks");
        assert_eq!(named("tag_set").default_value().to_string(), "none");
    }

    #[test]
    fn defaults_that_depend_on_the_disk_are_those_of_open_disks() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        file.as_file().set_len(1 << 20).expect("room for it");
        let path = file.path().to_str().expect("a path in UTF-8");
        let many = std::thread::available_parallelism().expect("processors").get() + 1;
        let check = |spec: &str, key: &str, expected: Option<&str>| {
            let disk = Disk::open(spec).expect(spec);
            let setting = Setting::named(key).expect("in the table");
            assert_eq!(setting.get(disk.info()).as_deref(), expected, "{key} of {spec}");
        };
        let default = |key| Setting::named(key).expect("in the table").default_value().to_string();
        assert_eq!(default("service"), "on for model and with tag_set, else off");
        assert_eq!(
            default("nr_hw_queues"),
            "processors + 1; 1 with service=on or run_queue=always"
        );
        for (spec, service, nr_hw_queues) in [
            ("ram:1M", "off", many),
            (path, "off", many),
            ("ram:1M?service=on", "on", 1),
            ("ram:1M?run_queue=always", "off", 1),
            ("ram:1M?tag_set=defaults", "on", 1),
            ("model:nvme", "on", 1),
            ("model:nvme?service=off", "off", many),
        ] {
            check(spec, "service", Some(service));
            check(spec, "nr_hw_queues", Some(&nr_hw_queues.to_string()));
        }
        assert_eq!(default("lock"), "on; off with exclusive=on on a file");
        check(path, "lock", Some("on"));
        check(&format!("{path}?exclusive=on"), "lock", Some("off"));
        check("ram:1M", "lock", None);
        assert_eq!(default("elide"), "on for ram and null, else off");
        for (spec, elide) in
            [("ram:1M", "on"), ("null:1M", "on"), (path, "off"), ("model:sata", "off")]
        {
            check(spec, "elide", Some(elide));
        }
        assert_eq!(default("queue_depth"), "256, or as the modelled device");
        check("ram:1M", "queue_depth", Some("256"));
        check("model:nvme", "queue_depth", Some("1023"));
    }

    #[test]
    fn settings_without_effect_on_a_disk_are_known() {
        let applies = |spec: &str, key: &str| {
            let disk = Disk::open(spec).expect(spec);
            Setting::named(key).expect("in the table").applies(disk.info())
        };
        assert!(applies("ram:1M", "tag_need") && !applies("ram:1M?wake=batch", "tag_need"));
        assert!(applies("model:sata", "flush") && !applies("ram:1M", "flush"));
        assert!(applies("model:sata", "fua") && !applies("ram:1M", "fua"));
        assert!(applies("ram:1M?io_timeout_ms=5", "io_timeout_grace_ms"));
        assert!(!applies("ram:1M", "io_timeout_grace_ms") && !applies("ram:1M", "lock"));
    }
}
