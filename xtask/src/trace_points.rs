//! `cargo xtask long trace-points`: the instructions that traces cost an I/O while they are off,
//! counted by callgrind. The same program is built with the points of traces, and without them
//! (`--cfg forebay_no_trace`).

use crate::Outcome;
use crate::command::{Line, target};
use crate::instructions::{counted_of, difference, has_valgrind};

/// Maximum number of instructions for all points that an I/O passes.
const IO_MAX: f64 = 16.0;

/// Maximum number of instructions for a point.
const POINT_MAX: f64 = 2.0;

/// A kind of work of the example `cost`, and how many points an I/O passes.
const KINDS: [(&str, &str, f64); 3] = [
    // Q, P, U, G, D and C.
    ("singly", "one at a time", 6.0),
    // Q, G, D and C; P and U for each batch.
    ("batches", "unplugged by 32", 4.0 + 2.0 / 32.0),
    // Q, and M or the others.
    ("merges", "16 merged to one", 2.0 + 4.0 / 16.0),
];

pub(crate) fn run() -> Outcome {
    if !has_valgrind() {
        return Err("valgrind is missing: apt-get install valgrind".to_owned());
    }
    let with = target("trace-points/with");
    let without = target("trace-points/without");
    for (dir, flags) in [(&with, ""), (&without, "--cfg forebay_no_trace")] {
        Line::cargo("build --package forebay --features usdt --example cost --profile dist")
            .argument("--target-dir".to_owned())
            .argument(dir.clone())
            .variable("RUSTFLAGS", flags)
            .run()?;
    }
    let each = |dir: &str, kind: &str| {
        let program = format!("{dir}/dist/examples/cost");
        difference(|nr| counted_of(program.clone(), kind, nr))
    };
    let mut failed = Vec::new();
    for (kind, name, nr_points) in KINDS {
        let (traced, plain) = (each(&with, kind)?, each(&without, kind)?);
        let (of_io, of_point) = (traced - plain, (traced - plain) / nr_points);
        println!(
            "trace-points: {of_io:4.1} instructions added (limit {IO_MAX}): an I/O on null, {name} \
             ({plain:.0} without trace points)"
        );
        println!("trace-points: {of_point:4.1} of at most {POINT_MAX}: each point that it passes");
        if of_io > IO_MAX || of_point > POINT_MAX {
            failed.push(format!(
                "an I/O on null, {name}: tracing that is off adds {of_io:.1} instructions (limit \
                 {IO_MAX}), {of_point:.1} per trace point (limit {POINT_MAX})"
            ));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}
