//! `cargo xtask instructions`: instruction counts under callgrind, which do not depend on what else
//! the machine does, as regression gates.
//!
//! A limit is some tenth above what was counted when it was last set. Whoever makes the layer
//! cheaper lowers it; who makes it dearer says in the commit what for.

use crate::Outcome;
use crate::command::Line;
use std::process::Command;

/// What may cost how much.
struct Gate {
    /// What is counted.
    what: &'static str,
    example: &'static str,
    kind: &'static str,
    /// The part of the work that is not counted here, if there is one.
    less: Option<&'static str>,
    /// Instructions, each.
    max: f64,
}

const GATES: [Gate; 7] = [
    // At 15 ns an I/O, the aim, a processor of 3 GHz has 45 cycles; each time the token costs two
    // locked instructions of about 20 cycles, which overlap with what surrounds them.
    Gate {
        what: "the token, twice an I/O",
        example: "token",
        kind: "with",
        less: Some("without"),
        max: 60.0,
    },
    gate("an I/O on null, one at a time", "singly", 1900.0),
    gate("an I/O on null, one at a time, iostats=off", "no-stats", 1750.0),
    gate("an I/O on null, unplugged by 32", "batches", 1050.0),
    gate("an I/O on null, 16 merged to one", "merges", 800.0),
    gate("a tag, taken and given back", "tag", 80.0),
    gate("a tag, taken and given back, 16 at once", "tags", 48.0),
];

const fn gate(what: &'static str, kind: &'static str, max: f64) -> Gate {
    Gate { what, example: "cost", kind, less: None, max }
}

pub(crate) fn run() -> Outcome {
    if Command::new("valgrind").arg("--version").output().is_err() {
        if std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some() {
            return Err("valgrind is missing: apt-get install valgrind".to_owned());
        }
        println!("instructions: skipped: there is no valgrind; install it to count");
        return Ok(());
    }
    Line::cargo("build --release --package forebay-core --example token").run()?;
    Line::cargo("build --release --package forebay --example cost").run()?;
    let mut failed = Vec::new();
    for Gate { what, example, kind, less, max } in GATES {
        let mut found = each(example, kind)?;
        if let Some(less) = less {
            found -= each(example, less)?;
        }
        println!("instructions: {found:5.0} of at most {max:4.0}: {what}");
        if found > max {
            failed.push(format!("{what} costs {found:.0} instructions, over {max:.0}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// The instructions of one piece of work: what more of them cost.
fn each(example: &str, kind: &str) -> Result<f64, String> {
    let [few, many] = [9_600, 105_600].map(|nr| counted(example, kind, nr));
    Ok((many? - few?) / 96_000.0)
}

/// The instructions of a run.
fn counted(example: &str, kind: &str, nr: u64) -> Result<f64, String> {
    let program = crate::command::target(&format!("release/examples/{example}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([kind, &nr.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
    count.ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}
