//! Scenario files of `forebay sim`.

use std::process::Output;

use crate::common::{folder, forebay, stderr, stdout};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/flaky-log.toml");

/// Runs the scenario of this text.
fn sim(text: &str, args: &[&str]) -> Output {
    let folder = folder();
    std::fs::write(folder.path().join("a.toml"), text).expect("a file");
    forebay(&folder).args(["sim", "a.toml"]).args(args).output().expect("it runs")
}

/// Returns the report of a scenario that breaks no rule, without the command that repeats it.
#[track_caller]
fn report(text: &str, args: &[&str]) -> String {
    let output = sim(text, args);
    assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
    let text = stdout(&output);
    text.split("  replay with").next().expect("a report").to_owned()
}

#[test]
fn example_meets_its_faults_and_events_and_breaks_no_rule() {
    let run = || forebay(&folder()).args(["sim", EXAMPLE]).output().expect("it runs");
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("20 seeds from 1: no rule is broken\n"), "{text}");
    assert!(text.contains("  bios         : 18000, "), "4 x 200 + 100 with each seed: {text}");
    let injected = text.lines().filter(|line| line.contains("  faults       : "));
    let injected: Vec<u32> = injected
        .map(|line| line.split_whitespace().nth(2).and_then(|nr| nr.parse().ok()).expect(line))
        .collect();
    assert!(injected.len() == 3 && injected.iter().all(|&nr| nr > 0), "{text}");
    assert!(text.contains("gates reopened=20,"), "{text}");
    assert!(text.contains("resizes=20,"), "{text}");
    assert!(text.contains("  at risk      : at 500 us, "), "{text}");
    assert!(text.ends_with("flaky-log.toml --seed 1 --seeds 20\n"), "{text}");
    assert_eq!(stdout(&run()), text, "the seeds determine everything");
}

/// A scenario in which every key can have an effect. The line to add goes into a table.
const BASE: &str = "seed = 3\n@top\n[disk]\ndevice = \"fixed\"\nsize = \"256k\"\n\
                    nr_hw_queues = 2\nqueue_depth = 6\n@disk\n[file]\npage_cache = true\n@file\n\
                    [interleaving]\n@interleaving\n[[task]]\ncount = 3\nbios = 300\n\
                    ops = { read = 30, write = 50, flush = 20 }\n@task\n[[task]]\nbios = 50\n\
                    max_blocks = 4\nmax_burst = 8\nbackground = 50\nfua = 50\nreserved = 50\n\
                    sequential = 90\nops = { read = 1, write = 1, flush = 1 }\n";

fn with(table: &str, line: &str) -> String {
    let text = BASE.replace(&format!("@{table}\n"), &format!("{line}\n"));
    text.lines().filter(|line| !line.starts_with('@')).map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn every_key_changes_the_run() {
    let base = report(&with("none", ""), &[]);
    for (table, line) in [
        ("top", "faults = [\"read:io:nth=9\"]"),
        ("top", "crash_points = [\"100us\"]"),
        ("top", "seeds = 2"),
        ("disk", "block_size = 512"),
        ("disk", "wake = \"batch\""),
        ("disk", "max_sectors_kb = 4"),
        ("disk", "reserved_tags = 2"),
        ("disk", "async_depth = 1"),
        ("disk", "plug = \"none\""),
        ("disk", "nomerges = 2"),
        ("disk", "nr_requests = 2"),
        ("disk", "elide = true"),
        ("disk", "run_queue = \"always\""),
        ("file", "write_back_errors = 100"),
        ("file", "write_back_errors = 100\nforeign_syncs = 1000"),
        ("interleaving", "switches = 1024"),
        ("interleaving", "naps = 50"),
        ("interleaving", "step_ns = 500"),
        ("task", "bios_per_s = 1000"),
        ("task", "area = \"16k\""),
        ("task", "area = 16384"),
        ("task", "max_blocks = 8"),
        ("task", "max_burst = 40"),
        ("task", "sequential = 90"),
        ("task", "fua = 90"),
        ("task", "preflush = 90"),
        ("task", "up_to = 90"),
        ("task", "sequential = 90\nmax_burst = 8\nnomerge = 90"),
        ("task", "nowait = 90"),
        ("task", "max_blocks = 4\nsegments = 90"),
        ("task", "max_burst = 8\nopen_plugs = 90"),
        ("task", "gates = 20"),
        ("task", "resizes = 20"),
        ("task", "reopens = 50"),
    ] {
        // The lines before the last one are needed for its effect.
        let needed = line.rsplit_once('\n').map_or("", |(needed, _)| needed);
        let without = report(&with(table, needed), &[]);
        assert_ne!(report(&with(table, line), &[]), without, "{line}");
    }
    // These replace what the base has.
    for (old, new) in [
        ("count = 3", "count = 2"),
        ("bios = 300", "bios = 299"),
        ("size = \"256k\"", "size = \"128k\""),
        ("page_cache = true", "page_cache = false"),
        ("device = \"fixed\"", "device = \"flaky\""),
        ("seed = 3", "seed = 4"),
        ("flush = 20 }", "flush = 20, discard = 9 }"),
        ("flush = 20 }", "flush = 20, write_zeroes = 9 }"),
        ("read = 30", "read = 3"),
    ] {
        let text = with("none", "");
        assert!(text.contains(old), "{old}");
        assert_ne!(report(&text.replacen(old, new, 1), &[]), base, "{new}");
    }
    let classes = "queue_depth = 6\nreserved_tags = 1\nasync_depth = 1";
    let with_classes =
        |line| report(&with("task", line).replacen("queue_depth = 6", classes, 1), &[]);
    for line in ["reserved = 90", "background = 90"] {
        assert_ne!(with_classes(line), with_classes(""), "{line}");
    }
    // The policies of flushes differ on a device that takes a flush only by itself.
    let sata =
        with("none", "").replacen("\"fixed\"\nsize = \"256k\"\nnr_hw_queues = 2", "\"sata\"", 1);
    let tail = sata.replacen("\"sata\"", "\"sata\"\nflush = \"tail\"", 1);
    assert_ne!(report(&tail, &[]), report(&sata, &[]));
    for event in ["freeze = \"1ms\"", "quiesce = \"1ms\"", "stop = \"1ms\"", "resize = 1"] {
        let text = with("none", "") + &format!("[[event]]\nat = \"50us\"\n{event}\n");
        assert_ne!(report(&text, &[]), base, "{event}");
    }
}

#[test]
fn priorities_and_changes_of_the_scheduler_change_the_run() {
    // The device takes one request at a time, so the scheduler decides.
    let one_context =
        with("task", "max_burst = 8\n# priority").replacen("queues = 2", "queues = 1", 1);
    let set = "device_depth = 1, fifo_batch = 1";
    let scheduled = |priority: &str, more: &str| {
        let disk = "queue_depth = 64\nscheduler = \"mq-deadline\"\ndevice_depth = 1";
        let text = one_context.replacen("# priority", priority, 1);
        report(&text.replacen("queue_depth = 6", &format!("{disk}{more}"), 1), &[])
    };
    let high = "priority = \"realtime/0\"";
    assert_ne!(scheduled(high, ""), scheduled("", ""));
    let mixed = "priorities = 50";
    assert_ne!(scheduled(mixed, ""), scheduled("", ""));
    assert_ne!(scheduled(mixed, "\nprio_aging_expire = 0"), scheduled(mixed, ""));
    let changed = |event: &str| {
        let text = one_context.replacen("# priority", "", 1);
        report(&(text + &format!("[[event]]\nat = \"50us\"\n{event}\n")), &[])
    };
    let deadline = format!("set = {{ scheduler = \"mq-deadline\", {set} }}");
    let kyber = "set = { scheduler = \"kyber\", device_depth = 1 }";
    assert_ne!(changed(&deadline), changed("resize = 6"));
    assert_ne!(changed(&deadline), changed(kyber));
}

#[track_caller]
fn check_refused(text: &str, message: &str) {
    let output = sim(text, &[]);
    assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
    assert!(stderr(&output).contains(message), "{text}: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn time_limits_change_the_run() {
    let slow = |keys: &str| {
        let text = with("none", "").replacen("\"fixed\"", "\"fixed:latency_ns=3000000\"", 1);
        report(&text.replacen("queue_depth = 6", &format!("queue_depth = 6\n{keys}"), 1), &[])
    };
    assert_ne!(slow("io_timeout_ms = 1"), slow(""));
    let with_grace = slow("io_timeout_ms = 1\nio_timeout_grace_ms = 1");
    assert_ne!(with_grace, slow("io_timeout_ms = 1"));
    assert!(with_grace.contains("devices given up="), "{with_grace}");
}

#[test]
fn request_of_a_scenario_may_hang_if_there_is_a_time_limit() {
    let text = with("top", "faults = [\"read:hang:nth=9\"]");
    check_refused(&text, "faults: read:hang:nth=9: expected io_timeout_ms: without a time limit");
    let text =
        report(&text.replacen("queue_depth = 6", "queue_depth = 6\nio_timeout_ms = 2", 1), &[]);
    assert!(text.contains("timeouts=") && !text.contains("devices given up="), "{text}");
}

#[test]
fn unknown_keys_are_refused_by_name_and_line() {
    for (table, line, message) in [
        ("top", "speed = 1", "a.toml:2:1: unknown field `speed`, expected one of `seed`, `seeds`"),
        ("disk", "colour = 1", "a.toml:7:1: colour: unknown setting; the simulated disk has"),
        (
            "disk",
            "latency_ns = 5",
            "a.toml:7:1: latency_ns=5: a constant of the device; use --device",
        ),
        ("disk", "seed = 5", "a.toml:7:1: seed: not simulated: use `seed` at the top of the file"),
        ("disk", "kick = \"loop-end\"", "a.toml:7:1: kick: not simulated: committing a batch"),
        ("file", "sync = 1", "a.toml:9:1: unknown field `sync`, expected one of `page_cache`"),
        ("interleaving", "nap = 1", "a.toml:10:1: unknown field `nap`, expected one of"),
        ("task", "depth = 1", "a.toml:14:1: unknown field `depth`, expected one of `count`"),
    ] {
        check_refused(&with(table, line), message);
    }
    let text = with("none", "") + "[[event]]\nat = \"1ms\"\nfreez = \"1ms\"\n";
    check_refused(&text, ":1: unknown field `freez`, expected one of `at`, `freeze`");
    let text = with("none", "").replacen("read = 30", "reads = 30", 1);
    check_refused(&text, "unknown field `reads`, expected one of `read`, `write`");
    let shown = "\n  2 | speed = 1\n    | ^^^^^\n";
    check_refused(&with("top", "speed = 1"), shown);
}

#[test]
fn wrong_values_are_refused_with_their_places() {
    for (table, line, message) in [
        ("top", "faults = [\"read:oops\"]", "a.toml:2:11: expected a status such as io"),
        ("top", "faults = [\"flush:lie\"]", "a.toml: faults: flush:lie: not simulated: "),
        ("top", "crash_points = [\"5\"]", "a.toml:2:16: expected a time with its unit, such as"),
        ("top", "seeds = 0", "a.toml:2:9: expected a whole number from 1 to"),
        ("disk", "wake = \"lifo\"", "a.toml:7:1: wake: expected fair, batch, stash, single or"),
        ("disk", "block_size = 513", "a.toml:7:14: block_size: expected 512 or 4096"),
        (
            "disk",
            "nr_requests = 7",
            "a.toml:7:1: nr_requests=7: expected a number from 1 to queue_depth",
        ),
        ("file", "foreign_syncs = 1001", "a.toml:9:17: expected a whole number from 0 to 1000"),
        ("task", "fua = 101", "a.toml:14:7: expected a whole number from 0 to 100"),
        ("task", "priority = \"rt\"", "a.toml:14:12: unknown class `rt`: expected one of realtime"),
        ("task", "area = \"1g\"", "task 1: area: expected a multiple of 4096 up to the size of"),
        ("task", "max_blocks = 65", "task 1: max_blocks: expected a number from 1 to 64"),
    ] {
        check_refused(&with(table, line), message);
    }
    for (old, new, message) in [
        ("read = 30, write = 50, flush = 20", "", "task 1: ops: expected at least one operation"),
        ("bios = 300\n", "", "missing field `bios`"),
        ("count = 3", "count = \"3\"", "expected a whole number from 1 to 256"),
        ("read = 30", "read = 101", "a.toml:13:16: expected a weight from 0 to 100"),
        ("\"fixed\"", "\"nvme\"", "size: the device has a size of its own"),
        ("\"fixed\"\nsize = \"256k\"", "\"nvme\"", "file: expected a device with a volatile cache"),
        ("\"256k\"", "\"255\"", "size: 255 is not a positive multiple of 4096"),
    ] {
        check_refused(&with("none", "").replacen(old, new, 1), message);
    }
    let event = |keys: &str| with("none", "") + &format!("[[event]]\nat = \"1ms\"\n{keys}\n");
    let one = "expected one of freeze, quiesce, stop, resize and set beside at";
    check_refused(&event(""), one);
    check_refused(&event("resize = 1\nfreeze = \"1us\""), one);
    check_refused(
        &event("resize = 7"),
        "resize = 7: expected a number from 1 to queue_depth, which is 6",
    );
    for (set, message) in [
        (
            "scheduler = \"cfq\"",
            "set: scheduler=cfq: expected auto, none, mq-deadline, kyber or bfq",
        ),
        ("speed = 1", "set: speed=1: expected one of the keys scheduler, device_depth"),
        ("scheduler = [1]", "set: scheduler: expected a number, text, true or false"),
        ("scheduler = \"kyber\"", "set: scheduler=kyber: the disk has nr_hw_queues=2; expected 1"),
        ("scheduler = \"auto\"", "set: scheduler=auto: expected none, mq-deadline, kyber or bfq"),
        ("device_depth = 7", "set: device_depth=7: expected a number from 1 to queue_depth"),
    ] {
        check_refused(&event(&format!("set = {{ {set} }}")), message);
    }
    let number = with("none", "") + "[[event]]\nat = 300\nfreeze = \"1us\"\n";
    check_refused(&number, ":6: expected a time with its unit, such as \"500us\"");
    check_refused("seed = 3\n", "0 tasks: expected 1 to 256");
}

#[test]
fn options_of_the_command_line_override_the_file() {
    let base = report(&with("none", ""), &[]);
    assert_eq!(report(&with("none", ""), &["--seed", "3"]), base);
    assert_eq!(
        report(&with("none", ""), &["--seed", "5"]),
        report(&with("none", "").replacen("seed = 3", "seed = 5", 1), &[])
    );
    assert_eq!(
        report(&with("none", ""), &["--set", "plug=none", "--faults", "read:io:nth=9"]),
        report(&with("top", "faults = [\"read:io:nth=9\"]"), &["--set", "plug=none"])
    );
    assert!(report(&with("none", ""), &["--seeds", "2"]).starts_with("2 seeds from 3: "));
}

#[test]
fn broken_rule_of_a_scenario_is_named_and_can_be_replayed() {
    // The known fault of this policy: threads sleep while tags are free.
    let text = "[disk]\nqueue_depth = 16\nwake = \"stash-v1\"\n[[task]]\ncount = 48\nbios = 1\n\
                ops = { read = 1 }\n";
    let output = sim(text, &["--seed", "1", "--seeds", "20"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("\nbroken rule: T"), "{text}");
    assert!(text.contains("\nreplay with: forebay sim a.toml --seed "), "{text}");
}
