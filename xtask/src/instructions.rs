//! `cargo xtask instructions`: regression limits on instruction counts under callgrind, which do
//! not depend on other load on the machine.
//!
//! A limit is about a tenth above the count when it was last set. A change that lowers the cost
//! lowers the limit; one that raises it justifies that in its commit message.
//!
//! The examples are built with the profile `dist`, as packages are. The cost of `release` relative
//! to that has a limit too: it gives up some optimization to build within a minute.

use std::collections::BTreeMap;
use std::process::Command;

use crate::Outcome;
use crate::command::Line;

/// Maximum cost of a piece of work with `release`, relative to `dist`.
const RELEASE_MAX: f64 = 1.1;

/// Maximum number of instructions that an I/O of a C program costs more than one of a Rust program.
const C_MAX: f64 = 30.0;

/// Maximum number of instructions for a record of a trace, in the thread that submits.
const RECORD_MAX: f64 = 120.0;

/// Records of an I/O in batches of 32: Q, G, D and C, and a P and a U for each batch.
const NR_RECORDS: f64 = 4.0 + 2.0 / 32.0;

/// A limit on the cost of one kind of work.
struct Gate {
    /// The kind of work.
    name: &'static str,
    example: &'static str,
    kind: &'static str,
    /// The part of the work that is subtracted, if there is one.
    less: Option<&'static str>,
    /// Maximum number of instructions for each piece of work.
    max: f64,
}

const GATES: [Gate; 21] = [
    // The aim of 15 ns for an I/O is 45 cycles at 3 GHz. Each use of the token costs two locked
    // instructions of about 20 cycles, which overlap with surrounding code.
    Gate {
        name: "the token, twice an I/O",
        example: "token",
        kind: "with",
        less: Some("without"),
        max: 60.0,
    },
    gate("an I/O on null, one at a time", "singly", 1050.0),
    gate("an I/O on null, one at a time, iostats=off", "no-stats", 970.0),
    gate("an I/O on null, unplugged by 32", "batches", 685.0),
    gate("an I/O on null, 16 merged to one", "merges", 580.0),
    // A server's queue: its context has an alarm, which each turn clears.
    gate("an I/O on null, one at a time, with a descriptor", "watched", 2480.0),
    // The aim for back ends is 80. One at a time, an I/O pays for a call of `submit` and a reap of
    // its own.
    over_null("a back end in place of null, an I/O, one at a time", "backend", "singly", 80.0),
    over_null("the same, unplugged by 32", "backend-batches", "batches", 44.0),
    over_null("the same, 16 merged to one", "backend-merges", "merges", 73.0),
    // A driver of the public contract, whose completions are checked.
    over_null("a driver in place of null, an I/O, one at a time", "driver", "singly", 97.0),
    over_null("a driver, unplugged by 32", "driver-batches", "batches", 61.0),
    // The aim is 250 for each of these; mq-deadline misses it in batches, where it sorts what it
    // gets (`PLAN.md`). A disk with a scheduler or with weights has one context, which threads
    // share.
    over_null("mq-deadline, an I/O, one at a time", "mq-deadline", "one-context", 230.0),
    over_null("mq-deadline, 32 at once", "mq-deadline-batches", "one-context-batches", 730.0),
    over_null("mq-deadline, 16 merged to one", "mq-deadline-merges", "one-context-merges", 20.0),
    over_null("an owner with a limit, an I/O, one at a time", "limited", "singly", 248.0),
    over_null("an owner with a limit, 32 at once", "limited-batches", "batches", 238.0),
    // Its I/O is counted at its end too, as long as `forebay top` runs. There is no aim.
    over_null("an owner that is watched, an I/O, one at a time", "observed", "singly", 475.0),
    over_null("an owner with a weight, an I/O, one at a time", "weighted", "one-context", 205.0),
    over_null(
        "an owner with a weight, 32 at once",
        "weighted-batches",
        "one-context-batches",
        140.0,
    ),
    gate("a tag, taken and given back", "tag", 80.0),
    gate("a tag, taken and given back, 16 at once", "tags", 48.0),
];

const fn gate(name: &'static str, kind: &'static str, max: f64) -> Gate {
    Gate { name, example: "cost", kind, less: None, max }
}

/// The cost of `kind` above that of `null`: of a scheduler, of an owner, or of a back end or driver
/// that does as little as `null`.
const fn over_null(name: &'static str, kind: &'static str, null: &'static str, max: f64) -> Gate {
    Gate { name, example: "cost", kind, less: Some(null), max }
}

pub(crate) fn run() -> Outcome {
    if !has_valgrind() {
        if crate::tools::are_required() {
            return Err("valgrind is missing: apt-get install valgrind".to_owned());
        }
        println!("instructions: skipped: valgrind is not installed");
        return Ok(());
    }
    Line::cargo("build --profile dist --package forebay-core --example token").run()?;
    for profile in ["dist", "release"] {
        // With the probes, as the program has them.
        Line::cargo("build --package forebay --features usdt --example cost --profile")
            .argument(profile.to_owned())
            .run()?;
    }
    let (mut failed, mut counts) = (Vec::new(), Counts::default());
    for Gate { name, example, kind, less, max } in GATES {
        let mut found = counts.each("dist", example, kind)?;
        if let Some(less) = less {
            found -= counts.each("dist", example, less)?;
        }
        println!("instructions: {found:5.0} of at most {max:4.0}: {name}");
        if found > max {
            failed.push(format!("{name} costs {found:.0} instructions, over {max:.0}"));
        }
        if example == "cost" && less.is_none() {
            let ratio = counts.each("release", example, kind)? / found;
            println!("instructions: {ratio:5.2} times that with the profile release");
            if ratio > RELEASE_MAX {
                failed.push(format!("{name} costs {ratio:.2} times as much with release"));
            }
        }
    }
    let c = counts.each("dist", crate::capi::build_cost_example()?, "batches")?;
    let more = c - counts.each("dist", "cost", "batches")?;
    println!(
        "instructions: {more:5.0} of at most {C_MAX:4.0}: an I/O from C, beyond one from Rust"
    );
    if more > C_MAX {
        failed.push(format!("an I/O from C costs {more:.0} more than one from Rust, over {C_MAX}"));
    }
    let traced = difference(|nr| counted_in_first_thread("dist", "cost", "traced-batches", nr))?;
    let record = (traced - counts.each("dist", "cost", "batches")?) / NR_RECORDS;
    println!("instructions: {record:5.0} of at most {RECORD_MAX:4.0}: a record of a trace");
    if record > RECORD_MAX {
        failed.push(format!("a record of a trace costs {record:.0}, over {RECORD_MAX}"));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// The instructions for one piece of work, by profile, example and kind. Some are compared with
/// several others, and each takes seconds.
#[derive(Default)]
struct Counts(BTreeMap<[String; 3], f64>);

impl Counts {
    /// Returns the instructions for one piece of work.
    fn each(&mut self, profile: &str, example: &str, kind: &str) -> Result<f64, String> {
        let name = [profile, example, kind].map(str::to_owned);
        if let Some(known) = self.0.get(&name) {
            return Ok(*known);
        }
        let each = difference(|nr| counted(profile, example, kind, nr))?;
        self.0.insert(name, each);
        Ok(each)
    }
}

/// Returns the instructions for one piece of work: the difference between a long and a short run.
pub(crate) fn difference(counted: impl Fn(u64) -> Result<f64, String>) -> Result<f64, String> {
    let [few, many] = [9_600, 57_600].map(counted);
    Ok((many? - few?) / 48_000.0)
}

/// Returns whether valgrind can be run.
pub(crate) fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Returns the instructions of a run.
pub(crate) fn counted(profile: &str, example: &str, kind: &str, nr: u64) -> Result<f64, String> {
    counted_of(crate::command::target(&format!("{profile}/examples/{example}")), kind, nr)
}

/// Returns the instructions of a run of this program.
pub(crate) fn counted_of(program: String, kind: &str, nr: u64) -> Result<f64, String> {
    let arguments = "--tool=callgrind --callgrind-out-file=/dev/null";
    let line = Line::new("valgrind", arguments).argument(program).argument(kind.to_owned());
    collected(&line.argument(nr.to_string()))
}

/// Returns the instructions of the first thread of a run.
fn counted_in_first_thread(
    profile: &str,
    example: &str,
    kind: &str,
    nr: u64,
) -> Result<f64, String> {
    let out = crate::command::target(&format!("instructions-{kind}"));
    let program = crate::command::target(&format!("{profile}/examples/{example}"));
    let arguments = format!("--tool=callgrind --separate-threads=yes --callgrind-out-file={out}");
    let line = Line::new("valgrind", &arguments).argument(program).argument(kind.to_owned());
    collected(&line.argument(nr.to_string()))?;
    let first = format!("{out}-01");
    let text = std::fs::read_to_string(&first).map_err(|error| format!("{first}: {error}"))?;
    let count = text.lines().find_map(|line| line.strip_prefix("summary: ")?.parse().ok());
    count.ok_or_else(|| format!("{first}: no line with the summary"))
}

/// Runs callgrind, and returns the number of instructions that it has counted.
pub(crate) fn collected(line: &Line) -> Result<f64, String> {
    let text = line.errors()?;
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
    count.ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::GATES;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_limits_have_the_same_name() {
        let names: BTreeSet<_> = GATES.iter().map(|gate| gate.name).collect();
        assert_eq!(names.len(), GATES.len());
    }
}
