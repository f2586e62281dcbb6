//! Unit tests of `settings`.

use super::*;

fn settings(pairs: &[&str]) -> Settings {
    let pairs = pairs.iter().map(|text| pair(text).expect("a pair"));
    Settings(pairs.collect())
}

#[test]
fn later_settings_replace_earlier_ones_and_the_device_sets_the_depth() {
    let disk =
        settings(&["device=nvme", "wake=batch", "wake=stash"]).disk(Tasks::Jobs).expect("a disk");
    assert_eq!((disk.wake().name(), disk.policy.queue_depth), ("stash", 1023));
    let base = settings(&["queue_depth=8"]);
    let disk = base.then(&settings(&["device=hdd", "max_sectors_kb=64"])).disk(Tasks::Jobs);
    let disk = disk.expect("a disk");
    assert_eq!((disk.policy.queue_depth, disk.max_sectors), (8, Some(128)));
}

#[test]
fn processor_cost_turns_on_the_others_with_their_defaults() {
    let cpu = |pairs: &[&str]| settings(pairs).disk(Tasks::Jobs).expect("a disk").cpu;
    assert_eq!(cpu(&["queue_depth=8"]), None);
    let turn_ns = 2000;
    assert_eq!(cpu(&["cpu_turn_ns=2000"]), Some(CpuCosts { turn_ns, ..CpuCosts::OF_NULL }));
    let scenario = settings(&["cpu_wake_ns=5000"]).disk(Tasks::Scenario).expect("a disk");
    assert_eq!(scenario.cpu.map(|cpu| cpu.wake_ns), Some(5000));
    let wrong = settings(&["cpu_reap_ns=x"]).disk(Tasks::Jobs).expect_err("no number");
    assert_eq!(wrong, "cpu_reap_ns=x: expected a number of ns from 0 to 1000000000");
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let refused = |pairs: &[&str]| settings(pairs).disk(Tasks::Jobs).expect_err("wrong");
    assert!(refused(&["kick=loop-end"]).starts_with("kick=loop-end: not simulated: committing"));
    assert!(refused(&["colour=red"]).contains("has device, plug, nomerges, run_queue, wake"));
    assert_eq!(refused(&["wakes=fair"]), "wakes=fair: unknown setting; did you mean wake?");
    let cpu = refused(&["cpu_turns_ns=7"]);
    assert_eq!(cpu, "cpu_turns_ns=7: unknown setting; did you mean cpu_turn_ns?");
    assert!(refused(&["device=floppy"]).starts_with("device=floppy: unknown device"));
    assert!(refused(&["latency_ns=3"]).contains("use --device fixed:latency_ns=3, or --compare"));
    assert!(refused(&["device=nvme", "size=2g"]).contains("use --device nvme:size=2g, or"));
    let follows = "size=2g: the size of fixed follows from the jobs; leave it out, or use --device";
    assert!(refused(&["size=2g"]).starts_with(follows));
    assert!(refused(&["seek_ns=2"]).ends_with("no such constant; use --device hdd:seek_ns=2"));
    let few = refused(&["queue_depth=4", "nr_requests=5"]);
    assert_eq!(few, "nr_requests=5: expected a number from 1 to queue_depth, which is 4");
    assert!(refused(&["plug=maybe"]).contains("expected outermost, per-level or none"));
    let queues = refused(&["device=sata", "nr_hw_queues=4"]);
    assert!(queues.starts_with("nr_hw_queues=4: expected 1, because sata accepts"), "{queues}");
}

#[test]
fn every_key_of_a_modelled_disk_is_simulated_or_refused_with_a_reason() {
    let error = forebay::Disk::open("model:nvme?colour=red").expect_err("no such key");
    let text = error.to_string();
    let keys = text.split_once("valid keys: ").expect(&text).1;
    for key in keys.split(", ") {
        let error = settings(&[&format!("{key}=")]).disk(Tasks::Jobs).expect_err(key);
        assert!(!error.contains("unknown setting"), "{key}: {error}");
    }
}

#[test]
fn settings_override_the_constants_of_a_model_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("my.model").display().to_string();
    std::fs::write(&path, "family=nvme\nlatency_ns=7000\nsize=2g\n").expect("a file");
    let device = format!("device={path}");
    let disk = settings(&[&device, "latency_ns=9000", "wake=batch"]).disk(Tasks::Jobs);
    let disk = disk.expect("a disk");
    assert_eq!(disk.wake().name(), "batch");
    assert_eq!(Ok(disk.device), "nvme:latency_ns=9000,size=2g".parse());
    let mut found = Settings::default();
    add_spec(&mut found, &format!("model:{path}?size=1g")).expect("a spec");
    let device = found.disk(Tasks::Jobs).expect("a disk").device;
    assert_eq!(Ok(device), "nvme:latency_ns=7000,size=1g".parse());
    std::fs::write(&path, "family=flaky\nfail=1\n").expect("a file");
    let disk = settings(&[&format!("device={path}"), "fail=7"]).disk(Tasks::Jobs);
    assert_eq!(Ok(disk.expect("a disk").device), "flaky:fail=7".parse());
    std::fs::write(&path, "family=nvme\n").expect("a file");
    for (wrong, why) in [
        ("seek_ns=1", "seek_ns=1: unknown constant seek_ns; nvme has size, "),
        ("nr_channels=0", "nr_channels=0: expected a number from 1"),
    ] {
        let error = found.then(&settings(&[wrong])).disk(Tasks::Jobs).expect_err(wrong);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn refusals_in_a_scenario_are_about_tasks_and_not_about_jobs() {
    for (key, why) in [
        ("fua", "durable writes are set by `fua` of a task"),
        ("seed", "use `seed` at the top of the file"),
        ("read_only", "give tasks without writes"),
        ("logical_block_size", "use block_size"),
    ] {
        let error = check(key, "7", Tasks::Scenario).expect_err(key);
        assert!(error.starts_with(&format!("not simulated: {why}")), "{error}");
    }
    for key in SETTINGS.iter().map(|setting| setting.key).chain(["seed", "data"]) {
        if let Err(error) = check(key, "?", Tasks::Scenario) {
            assert!(!error.contains("job"), "{key}: {error}");
        }
    }
    let unknown = check("colour", "red", Tasks::Scenario).expect_err("no such key");
    for key in ["async_depth", "flush_pending_ms", "size and block_size"] {
        assert!(unknown.contains(key), "{unknown}");
    }
    check("async_depth", "4", Tasks::Scenario).expect("it has an effect");
}

#[test]
fn spec_of_a_modelled_device_sets_device_and_policy() {
    let mut found = Settings::default();
    add_spec(&mut found, "model:nvme?latency_ns=9000&wake=batch&size=2g").expect("a spec");
    assert_eq!(found, settings(&["device=nvme:latency_ns=9000,size=2g", "wake=batch"]));
    for (spec, why) in [
        ("disk.img", "expected a modelled device"),
        ("model:fixed", "unknown device; expected one of hdd, "),
        ("model:./none", "cannot read the model file: No such file"),
        ("model:hdd?seek_ns=x", "seek_ns=x: expected a whole number"),
        ("model:hdd?service=off", "service=off: not simulated: the jobs' threads"),
        ("model:hdd?colour=red", "colour=red: unknown setting"),
        ("model:hdd?latency_ns=1", "latency_ns=1: unknown constant; hdd has size, seek_ns, "),
        ("model:nvme?device=hdd", "device=hdd: unknown key"),
    ] {
        let error = add_spec(&mut Settings::default(), spec).expect_err(spec);
        assert!(error.contains(why), "{spec}: {error}");
    }
}
