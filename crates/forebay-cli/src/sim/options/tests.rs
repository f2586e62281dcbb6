//! Every option of the table either changes what is simulated or is refused by name.

mod keys;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use forebay_fio::host::Host;
use forebay_fio::jobfile;
use forebay_fio::options::OPTIONS;
use forebay_sim::run_jobs;

use super::*;
use crate::option_examples::EXAMPLES;

/// A file in memory.
struct Memory(String);

impl Host for Memory {
    fn read(&mut self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.clone().into_bytes())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn page_size_bytes(&self) -> u64 {
        4096
    }

    fn memory_mib(&self) -> u64 {
        1024
    }

    fn nr_cpus(&self) -> u64 {
        2
    }
}

fn parse(text: &str) -> JobList {
    let parsed = jobfile::parse(Path::new("a.fio"), &mut Memory(text.to_owned()));
    parsed.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns all counts of a simulated job file, with the hash of its trace, or the error.
fn simulate(lines: &str) -> Result<String, String> {
    let command = parse(&format!("[a]\n{}\n", lines.replace(' ', "\n")));
    let disk =
        check(&command, false).map_err(|error| error.to_string())?.disk(Tasks::Jobs).expect(lines);
    let run = run_jobs(&command.jobs, 7, &disk, None);
    let summary = run.expect(lines).expect("no rule is broken");
    Ok(format!("{summary:?}"))
}

/// Two owners on a rotational disk.
const READERS: &str = "filename=model:hdd rw=read iodepth=1 weight=50 scheduler=bfq";
/// A rotational disk, with requests that wait.
const DEEP: &str =
    "filename=model:hdd iodepth=16 scheduler=bfq device_depth=1 nr_requests=64 max_budget=1";

/// Clones with a weight that wait for one tag, whose I/Os have several sizes.
const WEIGHTS: &str = "queue_depth=1 weight=50 bsrange=4k-16k";

/// Two clones beside a third, on a device so slow that the load takes several windows of a goal.
const SLOW_PEERS: &str = "filename=model:nvme?latency_ns=100000000 queue_depth=4 [b] size=128k \
                          rw=randrw filename=model:nvme?latency_ns=100000000 queue_depth=4";

/// A device so slow that the load takes several of the seconds after which kyber tunes.
const SLOW_KYBER: &str =
    "filename=model:nvme?latency_ns=400000000 iodepth=16 scheduler=kyber device_depth=8";

/// A device that takes one request at a time, beside jobs of the usual priority.
const DEADLINE: &str = "iodepth=16 scheduler=mq-deadline device_depth=1 nr_requests=64 \
                        [b] size=128k rw=randrw iodepth=16 scheduler=mq-deadline device_depth=1 \
                        nr_requests=64 [c] size=128k rw=randrw iodepth=16 scheduler=mq-deadline \
                        device_depth=1 nr_requests=64";

/// I/O of two classes, of which more waits than the device takes.
const CLASSES: &str =
    "iodepth=16 scheduler=mq-deadline device_depth=1 nr_requests=64 cmdprio_percentage=50";

/// Neighbours of one class, half of them with another level.
const LEVELS: &str = "rw=read iodepth=16 iodepth_batch=16 cmdprio_percentage=50 cmdprio_class=2";

/// Examples that replace those for bench: the option, the options that it needs to have an
/// effect, and its value.
const IN_VIRTUAL_TIME: &[(&str, &str, &str)] = &[
    ("filename", "", "model:nvme"),
    ("wait_for", "[b] size=128k rw=randrw", "a"),
    ("uri", "ioengine=nbd", "nbd://localhost"),
    ("reserved_tags", "queue_depth=4", "2"),
    ("elide", "fsync=1", "on"),
    ("weight", "queue_depth=1", "50"),
    ("throttle_bps", "", "64k"),
    ("throttle_read_bps", "", "64k"),
    ("throttle_write_bps", "", "64k"),
    ("throttle_bps_burst", "throttle_bps=64k", "7"),
    ("throttle_read_bps_burst", "throttle_read_bps=64k", "7"),
    ("throttle_write_bps_burst", "throttle_write_bps=64k", "7"),
    ("throttle_latency_target_us", SLOW_PEERS, "1"),
    ("flush", "fsync=1 filename=model:sata", "tail"),
    ("nomerges", "rw=read iodepth_batch=4", "2"),
    ("plug", "rw=read iodepth_batch=4", "none"),
    ("max_sectors_kb", "bs=64k", "4"),
    ("io_timeout_ms", "filename=model:nvme?latency_ns=5000000", "1"),
    ("io_timeout_grace_ms", "filename=model:nvme?latency_ns=5000000 io_timeout_ms=1", "1"),
    ("scheduler", "iodepth=16 queue_depth=4", "mq-deadline"),
    ("device_depth", "iodepth=16 scheduler=mq-deadline", "1"),
    ("fifo_batch", "iodepth=16 scheduler=mq-deadline device_depth=1", "1"),
    ("read_expire", "iodepth=16 scheduler=mq-deadline device_depth=1 fifo_batch=1", "0"),
    ("write_expire", "iodepth=16 scheduler=mq-deadline device_depth=1 fifo_batch=1", "0"),
    ("writes_starved", "iodepth=16 scheduler=mq-deadline device_depth=1 fifo_batch=1", "0"),
    (
        "front_merges",
        "rw=randread iodepth=32 scheduler=mq-deadline device_depth=1 nr_requests=64",
        "off",
    ),
    ("prio_aging_expire", CLASSES, "0"),
    ("prioclass", DEADLINE, "1"),
    ("cmdprio_percentage", DEADLINE, "20,40"),
    ("cmdprio_bssplit", DEADLINE, "4k/20:8k/50/3/1"),
    ("cmdprio_class", CLASSES, "3"),
    // Levels change no order, but I/Os of different ones do not merge.
    ("prio", LEVELS, "0"),
    ("cmdprio", LEVELS, "4"),
    ("async_depth", "iodepth=16 scheduler=mq-deadline device_depth=1", "1"),
    ("read_lat_nsec", SLOW_KYBER, "3600000000000"),
    ("write_lat_nsec", SLOW_KYBER, "3600000000000"),
    ("slice_idle_us", READERS, "0"),
    ("max_budget", READERS, "16"),
    ("timeout_sync", READERS, "0"),
    ("fifo_expire_sync", DEEP, "0"),
    ("fifo_expire_async", DEEP, "0"),
    ("tag_need", "bs=16k queue_depth=5 max_sectors_kb=4", "parts"),
    ("weight_by", WEIGHTS, "ios"),
    ("cost_read_io_ns", WEIGHTS, "1000000"),
    ("cost_read_byte_ps", WEIGHTS, "1000000"),
    ("cost_write_io_ns", WEIGHTS, "1000000"),
    ("cost_write_byte_ps", WEIGHTS, "1000000"),
];

#[test]
fn every_option_changes_the_simulation_or_is_refused() {
    /// Options whose example matches the simulator's fixed behaviour.
    const AS_IT_IS: &[&str] = &["direct", "buffered", "thread", "group_reporting", "stonewall"];
    let base = "size=128k rw=randrw iodepth=4 numjobs=2";
    let mut runs = HashMap::new();
    for spec in OPTIONS.iter().filter(|spec| !spec.is_of_run() && spec.name != "name") {
        let (_, needs, value) = IN_VIRTUAL_TIME
            .iter()
            .chain(EXAMPLES)
            .find(|(name, ..)| *name == spec.name)
            .unwrap_or_else(|| panic!("{} has no example", spec.name));
        let value = match spec.name {
            "direct" => "1",
            "buffered" => "0",
            _ => value,
        };
        // A needed option may be refused too, so the check compares the option's own line.
        let without = format!("{base} {needs}").trim_end().to_owned();
        let run_without = runs.entry(without.clone()).or_insert_with(|| simulate(&without).ok());
        let with = simulate(&format!("{without} {}={value}", spec.name));
        match with {
            Err(error) => {
                // The section and four lines of the base precede it.
                let nr = 6 + needs.split_whitespace().count();
                let place = format!("a.fio:{nr}:1: {}={value}: not simulated", spec.name);
                assert!(error.contains(&place), "{}: {error}", spec.name);
            }
            Ok(_) if AS_IT_IS.contains(&spec.name) => {}
            // Only the report as JSON has it.
            Ok(_) if spec.name == "description" => {}
            Ok(run) => {
                let is_same = Some(&run) == run_without.as_ref();
                assert!(!is_same, "{}={value} has no effect", spec.name);
            }
        }
    }
}

#[test]
fn all_refused_options_are_named_at_once_with_their_places() {
    let text = "[global]\nfilename=disk.img\nplug=per-level\n[a]\nkick=per-request\nrate=1m\n\
                [b]\nbuffered=1\nwrite_lat_log=x\n";
    let error = check(&parse(text), false).expect_err("five options").to_string();
    let lines: Vec<_> = error.lines().filter(|line| line.starts_with("a.fio")).collect();
    let expected = [
        "a.fio:2:1: filename=disk.img: not simulated: expected a modelled device, such as \
         model:nvme; remove this line, and give --device if you want another device",
        "a.fio:5:1: kick=per-request: not simulated: committing a batch takes no virtual time; \
         leave it out",
        "a.fio:6:1: rate=1m: not simulated; leave it out",
        "a.fio:8:1: buffered=1: not simulated: the simulated device has no page cache; leave it \
         out",
        "a.fio:9:1: write_lat_log=x: not simulated: forebay sim has its own report, of all jobs; \
         leave it out",
    ];
    assert_eq!(lines, expected);
    assert!(error.contains("\n  2 | filename=disk.img\n    | ^^^^^^^^^^^^^^^^^\n"), "{error}");
}

#[test]
fn values_that_repeat_the_default_behaviour_are_accepted() {
    let text = "[a]\ndirect=1\nthread\ngroup_reporting\nstonewall\nloops=1\nfsync=0\nverify=0\n\
                ioengine=psync\nkick=deferred\niostats=1\nexclusive=0\nkick=loop-end\n";
    let error = check(&parse(text), false).expect_err("kick").to_string();
    assert_eq!(error.matches("a.fio:").count(), 1, "{error}");
    assert!(error.starts_with("a.fio:13:1: kick=loop-end: not simulated: "), "{error}");
}

#[test]
fn options_do_not_contradict_keys_of_a_filename() {
    for (lines, nr) in [
        ("filename=model:nvme?wake=batch\nwake=single", 3),
        ("wake=single\nfilename=model:nvme?wake=batch", 2),
    ] {
        for has_device in [false, true] {
            let error = check(&parse(&format!("[a]\n{lines}\n")), has_device);
            let error = error.expect_err("two values").to_string();
            let expected = format!(
                "a.fio:{nr}:1: wake=single: contradicts the key wake=batch in the filename: leave \
                 one of them out\n"
            );
            assert!(error.starts_with(&expected), "{error}");
        }
    }
    let same = "[a]\nfilename=model:nvme?queue_depth=1k\nqueue_depth=1024\n";
    check(&parse(same), false).expect("the same value twice");
}

#[test]
fn given_device_replaces_the_filename() {
    let command = parse("[a]\nfilename=disk.img\n");
    assert_eq!(check(&command, true).expect("the device is given"), Settings::default());
}

#[test]
fn given_device_keeps_the_settings_of_a_filename() {
    let kept = |spec: &str| check(&parse(&format!("[a]\nfilename={spec}\n")), true);
    for spec in ["model:hdd?seek_ns=9&wake=batch", "disk.img?wake=batch", "ram:64M?wake=batch"] {
        let settings = kept(spec).expect(spec);
        assert_eq!((settings.get("wake"), settings.get("device")), (Some("batch"), None), "{spec}");
    }
    for (spec, expected) in [
        ("model:nvme?nonsense=3", "nonsense=3: unknown setting; the simulated disk has "),
        ("model:nvme?seek_ns=3", "seek_ns=3: unknown constant; nvme has size, "),
        ("disk.img?direct=on", "direct=on: "),
    ] {
        let error = kept(spec).expect_err(spec).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let jobs = "[a]\nfilename=x?wake=batch\n[b]\nfilename=y\n";
    let error = check(&parse(jobs), true).expect_err("one device for all jobs").to_string();
    assert!(error.contains("filename differs between them"), "{error}");
    let jobs = "[a]\nfilename=x?wake=batch\n[b]\nfilename=y?wake=batch\n";
    assert_eq!(check(&parse(jobs), true).expect("they agree").get("wake"), Some("batch"));
}

#[test]
fn settings_of_the_device_are_the_same_for_all_jobs() {
    let both = "[global]\nwake=batch\nqueue_depth=1k\nfilename=model:nvme\n[a]\n[b]\n";
    let settings = check(&parse(both), false).expect("they agree");
    let values = ["wake", "queue_depth", "device"].map(|key| settings.get(key));
    assert_eq!(values, [Some("batch"), Some("1k"), Some("nvme")]);
    let error = |text: &str| check(&parse(text), false).expect_err(text).to_string();
    let text = error("[a]\nwake=batch\n[b]\n");
    let expected = "a.fio:2:1: wake=batch: not simulated: all jobs share one device, and wake \
                    differs between them; give it in [global]\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(error("[a]\nwake=lifo\n").contains("expected fair, batch, stash, single or"));
    assert!(error("[a]\nqueue_depth=0\n").contains("expected a number from 1 to 10240"));
}
