//! USDT probes of the program: their notes, and a tracer that observes them.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::common::{folder, forebay, skip, skip_without, stderr, stdout};

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay");

/// All probes, in the order of their names.
const PROBES: [&str; 17] = [
    "back_merge",
    "complete",
    "flush_done",
    "flush_elided",
    "flush_join",
    "flush_wait",
    "front_merge",
    "get_tag",
    "insert",
    "issue",
    "limit_wait",
    "plug",
    "queue",
    "requeue",
    "sleep",
    "split",
    "unplug",
];

#[test]
fn notes_name_each_stage_once_with_five_arguments_and_one_semaphore() {
    let test = "notes_name_each_stage_once_with_five_arguments_and_one_semaphore";
    let readelf = |args: &[&str]| match Command::new("readelf").args(args).arg(PROGRAM).output() {
        Ok(output) => Some(stdout(&output)),
        Err(_) => {
            skip_without("readelf", test);
            None
        }
    };
    let Some(notes) = readelf(&["-n"]) else { return };
    let of = |key: &'static str| {
        let lines = notes.lines().map(str::trim);
        lines.filter_map(move |line| line.strip_prefix(key)).map(str::trim).collect::<Vec<_>>()
    };
    let mut names = of("Name:");
    names.sort();
    assert_eq!(names, PROBES, "{notes}");
    assert!(of("Provider:").iter().all(|provider| *provider == "forebay"), "{notes}");
    assert!(of("Arguments:").iter().all(|it| it.split(' ').count() == 5), "{notes}");
    let places: BTreeSet<_> = of("Location:").into_iter().map(|it| it.split(',').next()).collect();
    assert_eq!(places.len(), PROBES.len(), "each has its own place: {notes}");
    let semaphores: BTreeSet<_> =
        of("Location:").iter().filter_map(|it| it.split("Semaphore: 0x").nth(1)).collect();
    assert_eq!(semaphores.len(), 1, "{notes}");
    // The kernel writes to it, so it is in memory that the file backs.
    let sections = readelf(&["-SW"]).expect("it ran before");
    let probes = sections.lines().find(|line| line.contains(" .probes ")).expect(&sections);
    let address = semaphores.first().expect("one").trim_start_matches('0');
    assert!(probes.contains("PROGBITS") && probes.contains("WA"), "{probes}");
    assert!(probes.contains(address), "{probes}, the semaphore is at {address}");
}

#[test]
fn tracer_of_the_system_counts_the_stages_of_a_running_program() {
    let test = "tracer_of_the_system_counts_the_stages_of_a_running_program";
    // It needs a kernel with uprobes, and rights that a container may lack.
    let works = Command::new("bpftrace").args(["-e", "BEGIN { exit(); }"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        return skip(test, "bpftrace is not installed, or may not run here");
    }
    let folder = folder();
    let args = "bench --filename=ram:1M --rw=write --bs=4k --iodepth=4 --runtime=60 --time_based";
    let mut bench = forebay(&folder);
    let bench = bench.args(args.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = bench.spawn().expect("it can be run");
    let probe = |name: &str| {
        format!(
            "usdt:{PROGRAM}:forebay:{name} {{ @n[\"{name}\", str(arg0), str(arg1), arg3, arg4] = \
             count(); }}\n"
        )
    };
    let script = ["queue", "issue", "complete"].map(probe).concat()
        + "usdt:PROGRAM:forebay:complete { @nr += 1; if (@nr > 200) { exit(); } }\n";
    let script = script.replace("PROGRAM", PROGRAM) + "interval:s:50 { exit(); }\n";
    let traced = Command::new("timeout").args(["55", "bpftrace", "-e", &script]).output();
    let output = traced.expect("it can be run");
    bench.kill().expect("it runs");
    bench.wait().expect("a child");
    let text = stdout(&output) + &stderr(&output);
    for name in ["queue", "issue", "complete"] {
        let key = format!("@n[{name}, ram:1M, write, 4096, 0]: ");
        let count = text.lines().find_map(|line| line.strip_prefix(&key));
        let count: u64 = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        assert!(count > 100, "{name}: {text}");
    }
}
