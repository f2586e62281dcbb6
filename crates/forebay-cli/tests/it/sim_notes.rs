//! `forebay sim`: notes about settings without effect on the load, and reports without jobs.

use std::process::Output;

use serde_json::Value;

use crate::common::{folder, forebay, json, stderr, stdout};

const READS: &str = "[a]\nrw=randread\nsize=1m\niodepth=8\n";
const WRITES: &str = "[a]\nrw=randwrite\nsize=1m\niodepth=8\nfsync=16\n";

/// Runs a job file, or a scenario if the text has tasks.
fn sim(text: &str, args: &[&str]) -> Output {
    let folder = folder();
    let name = if text.contains("[[task]]") { "a.toml" } else { "a.fio" };
    std::fs::write(folder.path().join(name), text).expect("a file");
    forebay(&folder).args(["sim", name, "--seed", "3"]).args(args).output().expect("it runs")
}

/// Returns the notes of a run, and its figures.
#[track_caller]
fn notes(text: &str, args: &[&str]) -> (Vec<String>, [Value; 3]) {
    let output = sim(text, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    let layer = json(&output)["forebay"][0].take();
    let notes = layer["notes"].as_array().expect("a list").iter();
    let notes = notes.map(|note| note.as_str().expect("text").to_owned()).collect();
    (notes, ["virtual_time_ns", "latency_ns", "issued"].map(|key| layer[key].clone()))
}

#[test]
fn settings_without_effect_on_the_load_are_noted_and_change_no_figure() {
    for (text, args, note) in [
        (READS, &["--set", "elide=on"][..], "elide=on had no effect: the load has no flushes"),
        (
            READS,
            &["--device", "sata", "--set", "flush=tail"],
            "flush=tail had no effect: the load has no flushes",
        ),
        (
            READS,
            &["--set", "tag_need=parts"],
            "tag_need=parts had no effect: no I/O waited for a tag",
        ),
        (
            READS,
            &["--set", "reserved_tags=3"],
            "reserved_tags=3 had no effect: the load has no reserved I/O, and no I/O waited for a \
             tag",
        ),
        (
            READS,
            &["--set", "max_sectors_kb=1m"],
            "max_sectors_kb=1048576 is limited to 1280 KiB, the max_hw_sectors_kb of the device",
        ),
        (
            READS,
            &["--faults", "write+flush:io:nth=2"],
            "the fault rule write+flush:io:nth=2 had no effect: it matched no request",
        ),
        (
            READS,
            &["--faults", "read:io:after=1000"],
            "the fault rule read:io:after=1000 had no effect: it matched no request",
        ),
    ] {
        let (found, figures) = notes(text, args);
        assert_eq!(found, [note]);
        let base: &[&str] = if args[0] == "--device" { &args[..2] } else { &[] };
        let (none, of_base) = notes(text, base);
        assert_eq!((none, figures), (Vec::new(), of_base), "{args:?}");
    }
}

#[test]
fn reserved_tags_of_a_load_without_reserved_io_are_noted() {
    let (found, _) = notes(READS, &["--set", "reserved_tags=3", "--set", "queue_depth=6"]);
    let note = "reserved_tags=3 only leaves fewer tags: the load has no reserved I/O, so these \
                tags were never used; to limit the tags, use nr_requests";
    assert_eq!(found, [note]);
}

#[test]
fn settings_with_an_effect_are_not_noted() {
    for args in [
        &["--set", "queue_depth=4", "--set", "wake=batch"][..],
        &["--set", "queue_depth=4", "--device", "sata", "--set", "flush=tail"],
        &["--faults", "write:io:nth=9", "--faults", "flush:io:nth=2"],
        // A flush that has nothing to make durable is not always counted as elided.
        &["--set", "elide=on"],
    ] {
        assert_eq!(notes(WRITES, args).0, [""; 0], "{args:?}");
    }
    let elided = SCENARIO.replace("read = 1", "flush = 9");
    assert_eq!(notes(&elided, &["--set", "elide=on"]).0, [""; 0]);
}

#[test]
fn notes_are_in_the_text_and_below_the_table() {
    let text = stdout(&sim(READS, &["--set", "elide=on"]));
    let line = "  note         : elide=on had no effect: the load has no flushes\n";
    assert!(text.contains(line), "{text}");
    let args = ["--set", "elide=on", "--compare", "reserved_tags=3", "--compare", "queue_depth=4"];
    let text = stdout(&sim(READS, &args));
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("note: ")).collect();
    let expected = [
        "note: elide=on had no effect: the load has no flushes",
        "note: reserved_tags=3 had no effect: the load has no reserved I/O, and no I/O waited for \
         a tag",
    ];
    assert_eq!(lines, expected, "{text}");
}

const SCENARIO: &str = "crash_points = [\"100us\"]\n[disk]\nqueue_depth = 6\n[[task]]\ncount = 3\n\
                        bios = 50\nops = { read = 1, write = 1 }\n";

#[test]
fn scenario_has_json_with_its_events_and_no_jobs() {
    let output = sim(SCENARIO, &["--json", "--seeds", "2"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let value = json(&output);
    assert_eq!(value.get("jobs"), None);
    let [first, second] = &value["forebay"].as_array().expect("a list")[..] else {
        panic!("an object for each seed: {value}")
    };
    assert_eq!((&first["seed"], &second["seed"]), (&3.into(), &4.into()));
    assert_eq!(first["checked"]["bios"], 150);
    assert_eq!(first["crash_points"][0]["at_ns"], 100_000);
    assert_eq!(first["events"]["resizes"], 0);
    assert!(first["latency_ns"]["p99"].as_u64() > Some(0), "{first}");
    let again = sim(SCENARIO, &["--json", "--seeds", "2"]);
    assert_eq!(stdout(&output), stdout(&again), "the seeds determine everything");
}

#[test]
fn scenario_is_compared_on_several_disks() {
    let output = sim(SCENARIO, &["--compare", "queue_depth=1", "--compare", "elide=on"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let expected = ["setting", "(base)", "queue_depth=1", "elide=on", "note:", "replay"];
    assert_eq!(names, expected, "{text}");
    let args = ["--sweep", "queue_depth=1,2", "--seeds", "2", "--json"];
    let value = json(&sim(SCENARIO, &args));
    let rows = value["forebay"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[1]["setting"]), (2, &"queue_depth=2".into()));
    assert_eq!(rows[0]["seeds"].as_array().map(Vec::len), Some(2));
    for (args, message) in [
        (&["--compare", "queue_depth=6"][..], "--compare=queue_depth=6: the same disk as (base)"),
        (&["--compare", "nr_bios=7"], "nr_bios=7: not simulated: `max_burst` limits the I/Os"),
        (
            &["--sweep", "queue_depth=1,2", "--queue-depth", "3"],
            "the command line also sets queue_depth=3; leave one of the two out",
        ),
    ] {
        let output = sim(SCENARIO, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn background_setting_of_a_scenario_without_background_io_is_noted() {
    let text = SCENARIO.replace("queue_depth = 6", "queue_depth = 64\nasync_depth = 2");
    let note = "  note         : async_depth=2 had no effect: the load has no background I/O, and \
                no I/O waited for a tag\n";
    let report = stdout(&sim(&text, &[]));
    assert!(report.contains(note), "{report}");
    let report = stdout(&sim(&text.replace("bios = 50", "bios = 50\nbackground = 50"), &[]));
    assert!(!report.contains("note"), "{report}");
}

#[test]
fn priorities_that_change_no_order_are_noted() {
    let one = "queue_depth = 64\nnr_hw_queues = 1\nscheduler = \"mq-deadline\"";
    let text = SCENARIO.replace("queue_depth = 6", one);
    let aging = text.replacen("queue_depth", "prio_aging_expire = 1\nqueue_depth", 1);
    let note =
        "  note         : prio_aging_expire=1 had no effect: the load has one priority class\n";
    let report = stdout(&sim(&aging, &[]));
    assert!(report.contains(note), "{report}");
    let several = |text: &str| text.replace("bios = 50", "bios = 50\npriorities = 50");
    let report = stdout(&sim(&several(&aging), &[]));
    assert!(!report.contains("note"), "{report}");
    let note = "  note         : the I/O priorities changed no order: only scheduler=mq-deadline";
    let report = stdout(&sim(&several(&text.replace("mq-deadline", "kyber")), &[]));
    assert!(report.contains(note), "{report}");
}

#[test]
fn random_scenarios_have_json_of_their_sums() {
    let run = |args: &[&str]| forebay(&folder()).arg("sim").args(args).output().expect("it runs");
    let value = json(&run(&["--random", "--seed", "1", "--seeds", "3", "--json"]));
    let sums = &value["forebay"][0];
    assert_eq!((&sums["seed"], &sums["seeds"]), (&1.into(), &3.into()));
    assert!(sums["checked"]["bios"].as_u64() > Some(0), "{sums}");
    assert_eq!(sums["replay"], "forebay sim --random --seed 1 --seeds 3");
}

#[test]
fn options_that_the_seed_overrides_are_refused_with_the_reason() {
    for (args, expected) in [
        (
            &["--random", "--compare", "wake=batch", "--set", "plug=none"][..],
            "forebay: --set has no effect with --random: the seed chooses the disk and its \
             faults; leave the option out, or give a job file or a scenario file\n\
             forebay: --compare has no effect with --random: the seed chooses the disk and \
             its faults; leave the option out, or give a job file or a scenario file\n",
        ),
        (
            &["--nbd", "--json"],
            "forebay: --json has no effect with --nbd: the report has only sums; leave it out\n",
        ),
        (
            &["--nbd", "--queue-depth", "4"],
            "forebay: --queue-depth has no effect with --nbd: the seed chooses the sessions \
             and the server; leave the option out, or give a job file or a scenario file\n",
        ),
    ] {
        let output = forebay(&folder()).arg("sim").args(args).output().expect("it runs");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), expected));
    }
}
