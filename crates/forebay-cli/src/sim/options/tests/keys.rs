//! Every key of a disk spec either changes what is simulated or is refused by name.

use std::collections::BTreeSet;

use forebay_sim::machines;

use super::*;

/// A device so slow that the load takes several of the seconds after which kyber tunes its depths.
const SLOW_KYBER: &str = "device=fixed:latency_ns=100000000 scheduler=kyber device_depth=4";

/// A rotational disk, with requests that wait.
const ROTATIONAL_BFQ: &str = "device=hdd scheduler=bfq device_depth=1 nr_requests=64 max_budget=1";

/// The keys that are honoured, by the settings that they need to have an effect, and a value.
const HONOURED: &[(&str, &str, &str)] = &[
    ("device", "", "hdd"),
    ("plug", "", "none"),
    ("nomerges", "", "2"),
    ("wake", "queue_depth=2", "batch"),
    ("tag_need", "device=hdd queue_depth=4 max_sectors_kb=4", "one"),
    ("queue_depth", "", "2"),
    ("nr_requests", "", "2"),
    ("reserved_tags", "queue_depth=4", "2"),
    ("nr_hw_queues", "", "2"),
    ("scheduler", "", "mq-deadline"),
    ("device_depth", "scheduler=mq-deadline", "1"),
    ("async_depth", "scheduler=mq-deadline device_depth=1", "1"),
    ("fifo_batch", "scheduler=mq-deadline device_depth=1", "1"),
    ("read_expire", "scheduler=mq-deadline device_depth=1 fifo_batch=1", "0"),
    ("write_expire", "scheduler=mq-deadline device_depth=1 fifo_batch=1", "0"),
    ("writes_starved", "scheduler=mq-deadline device_depth=1 fifo_batch=1", "0"),
    ("front_merges", "scheduler=mq-deadline device_depth=1", "off"),
    ("prio_aging_expire", "scheduler=mq-deadline device_depth=1", "0"),
    ("read_lat_nsec", SLOW_KYBER, "3600000000000"),
    ("write_lat_nsec", SLOW_KYBER, "3600000000000"),
    ("slice_idle_us", "device=hdd scheduler=bfq", "0"),
    ("max_budget", "device=hdd scheduler=bfq", "1"),
    ("timeout_sync", "device=hdd scheduler=bfq", "0"),
    ("fifo_expire_sync", ROTATIONAL_BFQ, "0"),
    ("fifo_expire_async", ROTATIONAL_BFQ, "0"),
    ("weight_by", "queue_depth=1", "ios"),
    ("cost_read_io_ns", "queue_depth=1", "1000000"),
    ("cost_read_byte_ps", "queue_depth=1", "1000000"),
    ("cost_write_io_ns", "queue_depth=1", "1000000"),
    ("cost_write_byte_ps", "queue_depth=1", "1000000"),
    ("flush", "device=sata", "tail"),
    ("elide", "device=sata", "on"),
    ("max_sectors_kb", "", "16"),
    ("run_queue", "", "always"),
    ("io_timeout_ms", "device=fixed:latency_ns=5000000", "1"),
    ("io_timeout_grace_ms", "device=fixed:latency_ns=5000000 io_timeout_ms=1", "1"),
];

/// Values that are not the default, of keys that are refused.
const REFUSED: &[(&str, &str)] = &[
    ("kick", "per-request"),
    ("iostats", "off"),
    ("nr_bios", "7"),
    ("service", "off"),
    ("fua", "off"),
    ("flush_pending_ms", "7"),
    ("exclusive", "on"),
    ("read_only", "on"),
    ("data", "off"),
    ("logical_block_size", "512"),
];

/// A load with reads and writes that are adjacent, with flushes, and with random reads and writes.
const JOB: &str = "[a]\nrw=rw\nbs=16k\nsize=8m\nio_size=1m\niodepth=16\niodepth_batch=4\nfsync=1\n\
                   numjobs=2\n[b]\nrw=randrw\nbs=16k\nsize=1m\niodepth=16\n";

/// Two owners that read, for the keys that have an effect among owners.
const OWNERS: &str = "[a]\nrw=read\nbs=16k\nsize=8m\nio_size=1m\nweight=50\nnumjobs=2\n";

/// A load of owners with weights, of reads and writes of several sizes.
const WEIGHTED_JOB: &str = "[a]\nrw=randrw\nbsrange=4k-16k\nsize=1m\niodepth=16\nweight=50\n[b]\n\
                            rw=randrw\nbs=4k\nsize=1m\niodepth=16\nweight=200\n";

/// A load of two priority classes.
const CLASSES: &str = "[a]\nrw=randrw\nbs=16k\nsize=1m\niodepth=16\nprioclass=1\n[b]\n\
                       rw=randrw\nbs=16k\nsize=1m\niodepth=16\nprioclass=3\n";

/// Returns all counts of a run with these settings.
fn run(settings: &Settings) -> String {
    run_load(JOB, settings)
}

/// Returns all counts of a run of a load.
fn run_load(load: &str, settings: &Settings) -> String {
    let jobs = parse(load).jobs;
    let disk = settings.disk(Tasks::Jobs).expect("good settings");
    let run = run_jobs(&jobs, 7, &disk, None).expect("good jobs");
    format!("{:?}", run.expect("no rule is broken"))
}

/// Returns these settings, of which the device is `nvme` unless they say otherwise.
fn settings<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Settings {
    let mut settings = Settings::default();
    settings.add("device", "nvme");
    for pair in pairs {
        let (key, value) = settings::pair(pair).expect(pair);
        settings::check(&key, &value, Tasks::Jobs).expect(pair);
        settings.add(&key, &value);
    }
    settings
}

/// Returns the keys of all drivers that need nothing outside this program.
fn keys_of_specs() -> BTreeSet<String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("a length");
    let path = file.path().display().to_string();
    let files = ["file:", "aio:", "psync:"].map(|driver| format!("{driver}{path}"));
    let models = machines::ALL.iter().map(|preset| format!("model:{}", preset.name));
    let others = ["ram:1M", "null:1M", "fault:ram:1M"].map(str::to_owned);
    let mut keys = BTreeSet::new();
    for spec in models.chain(others).chain(files) {
        let error = forebay::Disk::open(&format!("{spec}?colour=red")).expect_err("no such key");
        let text = error.to_string();
        let list = text.split_once("valid keys: ").unwrap_or_else(|| panic!("{text}")).1;
        keys.extend(list.split(", ").map(str::to_owned));
    }
    keys
}

#[test]
fn every_key_of_a_spec_changes_the_run_or_is_refused() {
    let keys = keys_of_specs();
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys.iter().map(String::as_str).chain(["device"]) {
        if let Some((_, needs, value)) = HONOURED.iter().find(|(name, ..)| *name == key) {
            let needs = || needs.split_whitespace();
            let pair = format!("{key}={value}");
            let among_owners = ["slice_idle_us", "max_budget", "timeout_sync"].contains(&key);
            let is_of_weights = key == "weight_by" || key.starts_with("cost_");
            let load = match (among_owners, is_of_weights) {
                (true, _) => OWNERS,
                (_, true) => WEIGHTED_JOB,
                _ if key == "prio_aging_expire" => CLASSES,
                _ => JOB,
            };
            let with = run_load(load, &settings(needs().chain([pair.as_str()])));
            assert!(with != run_load(load, &settings(needs())), "{pair} has no effect");
            continue;
        }
        let value = REFUSED.iter().find(|(name, _)| *name == key).map_or("1", |(_, value)| value);
        let mut disk = settings([]);
        disk.add(key, value);
        let why = disk.disk(Tasks::Jobs).expect_err(key);
        let of_preset = machines::ALL.iter().any(|preset| preset.place_of(key).is_some());
        let is_constant = of_preset || key == "size";
        let expected = match key {
            _ if is_constant => "--device ",
            _ if settings::is_known(key) => "not simulated: ",
            // A key of another driver.
            _ => "unknown setting; the simulated disk has device, ",
        };
        let is_expected = match is_constant {
            true => why.starts_with(&format!("{key}={value}: ")) && why.contains(expected),
            false => why.starts_with(&format!("{key}={value}: {expected}")),
        };
        assert!(is_expected, "{why}");
        if is_constant {
            continue;
        }
        let spec = format!("model:nvme?{key}={value}");
        let error = settings::add_spec(&mut Settings::default(), &spec).expect_err(&spec);
        assert!(error.starts_with(&format!("{key}={value}: ")), "{spec}: {error}");
    }
}

#[test]
fn every_constant_of_a_device_changes_the_run() {
    for preset in &machines::ALL {
        let run = |constants: &str| {
            let mut settings = Settings::default();
            let spec = format!("model:{}{constants}", preset.name);
            settings::add_spec(&mut settings, &spec).expect(&spec);
            run(&settings)
        };
        let base = run("");
        for parameter in preset.parameters {
            let default = parameter.default;
            // A default of 0 has no multiples.
            let values = [parameter.min, default / 4, default.saturating_mul(4), default + 10_000];
            let values = values.map(|value| value.clamp(parameter.min, parameter.max));
            let changes = |&value: &u64| run(&format!("?{}={value}", parameter.name)) != base;
            let (device, name) = (preset.name, parameter.name);
            assert!(values.iter().any(changes), "{device}: {name} has no effect");
        }
    }
}

#[test]
fn every_constant_of_a_device_without_a_machine_changes_the_run() {
    // The rates of flaky are so high that some command of the load meets each fault.
    for (base, constants) in [
        ("fixed", &["latency_ns=9000", "channels=2"][..]),
        (
            "flaky:fail=0,busy=0,short=0,bad_block=0,straggler=0",
            &[
                "min_ns=9",
                "mean_ns=9",
                "fail=90k",
                "offline=90k",
                "refuse=90k",
                "busy=90k",
                "short=900k",
                "none=90k",
                "bad_block=90k",
                "straggler=90k",
            ],
        ),
    ] {
        let run = |device: &str| run(&settings([format!("device={device}").as_str()]));
        for constant in constants {
            let (key, _) = constant.split_once('=').expect("a constant");
            let others = base.split([':', ',']).filter(|it| !it.starts_with(&format!("{key}=")));
            let name = base.split(':').next().expect("a name");
            let others: Vec<_> = others.skip(1).chain([*constant]).collect();
            let device = format!("{name}:{}", others.join(","));
            assert!(run(&device) != run(base), "{device} has no effect");
        }
    }
}

#[test]
fn options_of_the_whole_run_are_refused_in_a_job_file() {
    let options = OPTIONS.iter().filter(|spec| spec.is_of_run()).map(|spec| spec.name);
    let mut nr = 0;
    for name in options {
        let text = format!("[a]\n{name}=1\n");
        let parsed = jobfile::parse(Path::new("a.fio"), &mut Memory(text));
        let error = parsed.expect_err(name).to_string();
        assert!(error.starts_with("a.fio:2:1: ") && error.contains(name), "{name}: {error}");
        nr += 1;
    }
    assert!(nr > 5, "{nr}");
}
