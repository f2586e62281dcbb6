//! `cargo xtask simspeed`: the speed of the simulator with all checkers on, and what a bio does in
//! the scenarios that are measured.
//!
//! Not a gate: no test asserts a speed. Times are processor time. The number of instructions does
//! not depend on other load on the machine, so it shows small changes.

use crate::Outcome;
use crate::command::{Line, target};
use crate::instructions;

/// Random scenarios whose time is measured. The first 500 are those of `tests/it/seeds.rs`.
const NR_SEEDS: u64 = 1_000;

/// Random scenarios whose instructions are counted. Under valgrind a run takes 20 times as long.
const NR_COUNTED: u64 = 100;

/// I/Os of the job.
const NR_IOS: u64 = 60_000;

/// One in this many histories of three bios is run; `cargo xtask histories` runs all of them.
const ONE_OF: u64 = 60;

pub(crate) fn run() -> Outcome {
    Line::cargo("build --profile dist --package forebay-sim --example speed").run()?;
    let loads = [("seeds", NR_SEEDS), ("job", NR_IOS), ("histories", ONE_OF)];
    loads.iter().try_for_each(|&(load, nr)| {
        print!("{}", speed(load, nr)?);
        Ok::<(), String>(())
    })?;
    if !instructions::has_valgrind() {
        println!("instructions per bio: skipped: valgrind is not installed");
        return Ok(());
    }
    let nr_bios = nr_bios(&speed("seeds", NR_COUNTED)?)?;
    let nr = instructions::counted("dist", "speed", "seeds", NR_COUNTED)?;
    println!("instructions per bio: {:.0}, in {NR_COUNTED} seeds", nr / nr_bios);
    Ok(())
}

/// Runs the example, and returns its report.
fn speed(load: &str, nr: u64) -> Result<String, String> {
    let program = target("dist/examples/speed");
    let line = Line::new("env", "").argument(program).argument(load.to_owned());
    line.argument(nr.to_string()).output()
}

/// Returns the number of bios in a report.
fn nr_bios(report: &str) -> Result<f64, String> {
    let words: Vec<&str> = report.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("bios"));
    let number = at.and_then(|at| words[at.checked_sub(1)?].parse().ok());
    number.ok_or_else(|| format!("simspeed: no number of bios in:\n{report}"))
}

#[cfg(test)]
mod tests {
    use super::nr_bios;

    #[test]
    fn the_number_of_bios_is_read_from_a_report() {
        let report = "seeds 0 to 99: 38255 bios, hash 00ff\n    19.870 steps per bio\n";
        assert_eq!(nr_bios(report), Ok(38_255.0));
        assert!(nr_bios("seeds 0 to 99\n").is_err());
    }
}
