//! `forebay lab`: rows for programs, tables, and refused options.

use std::process::Output;

use crate::common::{folder, forebay, json, stderr, stdout};

fn lab(args: &str) -> Output {
    let folder = folder();
    forebay(&folder).arg("lab").args(args.split_whitespace()).output().expect("it can be run")
}

#[test]
fn json_is_an_array_of_rows() {
    let output = lab("run --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = json(&output);
    let rows = rows.as_array().expect("an array");
    for row in rows {
        let row = row.as_object().expect("an object");
        let keys: Vec<_> = row.keys().map(String::as_str).collect();
        let expected = [
            "experiment",
            "device",
            "x",
            "metric",
            "policy",
            "value",
            "published",
            "note",
            "basis",
            "constants",
        ];
        assert_eq!(keys, expected);
        let is_fitted = row["constants"].as_array().is_some_and(|names| !names.is_empty());
        assert_eq!(row["basis"], if is_fitted { "fitted" } else { "predicted" }, "{row:?}");
        assert_eq!((&row["experiment"], &row["device"]), (&"run".into(), &"virtio-ram".into()));
        assert!(row["x"].is_u64() && row["value"].is_number(), "{row:?}");
        assert!(row["published"].is_number() || row["published"].is_null(), "{row:?}");
    }
    let gain = |depth: u64| {
        let mut of_depth = rows.iter().filter(|row| {
            row["metric"] == "gain_percent"
                && row["x"] == depth
                && row["note"].as_str().is_some_and(|note| note.starts_with("modelled"))
        });
        of_depth.next().and_then(|row| row["value"].as_f64()).expect("a gain")
    };
    assert!((32.0..52.0).contains(&gain(256)) && (50.0..70.0).contains(&gain(1024)));
}

#[test]
fn tables_put_before_and_after_side_by_side_and_are_the_same_each_time() {
    let text = stdout(&lab("run"));
    assert!(text.starts_with("run: virtio-ram, 8 jobs, random reads of 4 KiB; virtual time"));
    let header = "iops; depth published before always deviation published after dedupe deviation";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.lines().any(|line| words(line) == header), "{text}");
    let markdown = stdout(&lab("run --sim --markdown"));
    assert!(markdown.starts_with("## run: virtio-ram"), "{markdown}");
    assert!(markdown.contains("\n| iops; depth | published before | always | deviation |"));
    assert_eq!(figures(&text), figures(&markdown), "another process gets the same figures");
    assert_eq!(figures(&text).len(), 24);
}

/// Returns the lines of figures in the tables, without the format's own characters.
fn figures(tables: &str) -> Vec<String> {
    let cells = |line: &str| {
        line.split([' ', '|']).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" ")
    };
    tables
        .lines()
        .map(cells)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

#[test]
fn flushes_are_rows_of_the_same_shape() {
    let output = lab("flush --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = json(&output);
    let rows = rows.as_array().expect("an array");
    let of = |name: &str, value: &str| rows.iter().filter(|row| row[name] == value).count();
    // Twelve cells of each experiment.
    assert_eq!((of("metric", "iops"), of("metric", "closed_form")), (24, 12));
    assert_eq!(of("device", "sata"), rows.len());
    for policy in ["tail", "requeue", "hold", "hold+elide"] {
        assert!(of("policy", policy) > 0, "{policy}");
    }
    let is_it = |row: &&serde_json::Value| {
        (&row["metric"], &row["policy"]) == (&"iops_of_hold".into(), &"tail".into())
            && row["x"] == 16
            && row["experiment"] == "flush-each"
    };
    let row = rows.iter().find(is_it).expect("tail, 16 threads");
    assert_eq!(row["published"], 0.8);
    assert!((0.7..0.9).contains(&row["value"].as_f64().expect("a number")), "{row}");
}

#[track_caller]
fn check_refused(args: &str, message: &str) {
    let output = lab(args);
    assert_eq!(output.status.code(), Some(2), "{args}");
    assert!(stderr(&output).contains(message), "{args}: {}", stderr(&output));
}

#[test]
fn invalid_arguments_are_refused() {
    check_refused("", "forebay lab <COMMAND>");
    check_refused("fly", "forebay: unknown command 'fly'");
    check_refused("tags --sim --real", "forebay: --sim cannot be combined with --real");
    check_refused("tags --json --markdown", "forebay: --json cannot be combined with --markdown");
    check_refused("tags --device floppy", "(accepted: hdd, ssd-sas, nvme)");
    check_refused(
        "tags --seconds 5",
        "forebay: --seconds needs --real: virtual time has fixed lengths",
    );
    check_refused("run --device hdd", "forebay: unknown option --device");
    check_refused("tags --full --device hdd", "--full: all cells of hdd are simulated already");
    check_refused("run --full", "forebay: unknown option --full");
    check_refused("flush --sim --real", "forebay: --sim cannot be combined with --real");
    check_refused(
        "flush --seconds 5",
        "forebay: --seconds needs --real: virtual time has fixed lengths",
    );
}

#[test]
fn help_states_the_bounds_and_the_duration() {
    for experiment in ["tags", "run", "flush"] {
        let help = stdout(&lab(&format!("{experiment} --help")));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in
            ["Bounds: iops of tags, 5 %", "1 and 72 jobs, 6 minutes", "linux-block", "linux-kernel"]
        {
            assert!(help.contains(said), "{help}");
        }
    }
}
