//! Unit tests of `table`.

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
    let is_current = include_str!("../table.md") == page;
    assert!(is_current, "write this to crates/forebay/src/settings/table.md:\n{page}");
}

#[test]
fn each_setting_is_found_by_its_key_once() {
    let keys: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    assert_eq!(keys.len(), SETTINGS.len());
    for setting in &SETTINGS {
        assert_eq!(Setting::named(setting.key).expect("in the table").help, setting.help);
        assert_eq!(setting.knob().map(|knob| knob.key), Knob::named(setting.key).map(|k| k.key));
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
        "processors + 1; 1 with service=on, a scheduler, or run_queue=always"
    );
    for (spec, service, nr_hw_queues) in [
        ("ram:1M", "off", many),
        (path, "off", many),
        ("ram:1M?service=on", "on", 1),
        ("ram:1M?run_queue=always", "off", 1),
        ("ram:1M?tag_set=defaults", "on", 1),
        ("ram:1M?scheduler=mq-deadline", "off", 1),
        ("model:nvme", "on", 1),
        ("model:nvme?service=off", "off", many),
    ] {
        check(spec, "service", Some(service));
        check(spec, "nr_hw_queues", Some(&nr_hw_queues.to_string()));
    }
    assert_eq!(default("scheduler"), "mq-deadline on rotational models and back ends, else none");
    for (spec, scheduler, device_depth, nr_requests) in [
        ("model:hdd", "mq-deadline", "32", "64"),
        ("model:hdd?scheduler=none", "none", "32", "256"),
        ("model:hdd?wake=batch", "none", "32", "256"),
        ("model:hdd?nr_hw_queues=2", "none", "32", "256"),
        ("model:nvme", "none", "512", "1023"),
        ("ram:1M", "none", "128", "256"),
        (path, "none", "128", "256"),
        ("ram:1M?scheduler=mq-deadline", "mq-deadline", "128", "256"),
        ("ram:1M?scheduler=mq-deadline&device_depth=1", "mq-deadline", "1", "64"),
    ] {
        check(spec, "scheduler", Some(scheduler));
        if scheduler != "none" {
            check(spec, "device_depth", Some(device_depth));
        }
        check(spec, "nr_requests", Some(nr_requests));
    }
    assert_eq!(default("lock"), "on; off with exclusive=on on a file");
    check(path, "lock", Some("on"));
    check(&format!("{path}?exclusive=on"), "lock", Some("off"));
    check("ram:1M", "lock", None);
    assert_eq!(default("elide"), "on for ram and null, else off");
    for (spec, elide) in [("ram:1M", "on"), ("null:1M", "on"), (path, "off"), ("model:sata", "off")]
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
