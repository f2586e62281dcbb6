//! `cargo xtask ci`: every gate in order, stopping at the first failure.

use std::time::Instant;

use crate::command::Line;
use crate::{
    Outcome, arrows, bare, deny, examples, histories, instructions, loom, miri, mutants, nightly,
    planted, shuttle, tidy, tsan,
};

/// One gate.
struct Step {
    name: &'static str,
    action: Action,
}

enum Action {
    /// A plain cargo command.
    Cargo(fn() -> Line),
    /// One of our own commands, under the name of the step.
    Own(fn() -> Outcome),
}

/// Quick and often wrong comes first, so that most failures are seen within seconds.
const STEPS: &[Step] = &[
    Step { name: "fmt", action: Action::Cargo(|| Line::cargo("fmt --all --check")) },
    Step { name: "tidy", action: Action::Own(tidy::run) },
    Step { name: "arrows", action: Action::Own(arrows::run) },
    Step { name: "clippy", action: Action::Cargo(clippy) },
    // The doc tests are part of it: cargo runs them unless targets are picked.
    Step { name: "tests", action: Action::Cargo(|| Line::cargo("test --workspace")) },
    Step { name: "examples", action: Action::Own(examples::run) },
    Step { name: "docs", action: Action::Cargo(docs) },
    Step { name: "bare", action: Action::Own(bare::run) },
    Step { name: "deny", action: Action::Own(deny::run) },
    Step { name: "instructions", action: Action::Own(instructions::run) },
    Step { name: "loom", action: Action::Own(loom::run) },
    Step { name: "mutants", action: Action::Own(mutants::run) },
    Step { name: "histories", action: Action::Own(histories::run) },
    Step { name: "planted", action: Action::Own(planted::run) },
    Step { name: "shuttle", action: Action::Own(|| shuttle::run(None)) },
    Step { name: "miri", action: Action::Own(|| nightly::if_installed("miri", miri::run)) },
    Step { name: "tsan", action: Action::Own(|| nightly::if_installed("tsan", tsan::run)) },
];

fn clippy() -> Line {
    Line::cargo("clippy --workspace --all-targets -- -D warnings")
}

fn docs() -> Line {
    Line::cargo("doc --workspace --no-deps").variable("RUSTDOCFLAGS", "-D warnings")
}

impl Step {
    fn run(&self) -> Outcome {
        match self.action {
            Action::Cargo(line) => line().run(),
            Action::Own(run) => run(),
        }
    }

    /// What a reader types to run this step without the others.
    fn alone(&self) -> String {
        match self.action {
            Action::Cargo(line) => line().to_string(),
            Action::Own(_) => format!("cargo xtask {}", self.name),
        }
    }
}

pub(crate) fn run(skips: &[&str]) -> Outcome {
    let start = Instant::now();
    for (index, step) in STEPS.iter().enumerate() {
        let heading = format!("[{}/{}] {}", index + 1, STEPS.len(), step.name);
        if skips.contains(&step.name) {
            println!("{heading}: skipped, as asked");
            continue;
        }
        println!("{heading}: {}", step.alone());
        let step_start = Instant::now();
        step.run().map_err(|message| {
            format!("{message}\nstep {} failed; alone: {}", step.name, step.alone())
        })?;
        println!("{heading}: passed in {:.1} s", step_start.elapsed().as_secs_f64());
    }
    println!("ci: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Reads `--skip NAME` any number of times; a name that is no step is an error, not ignored.
pub(crate) fn parse_skips<'a>(options: &[&'a str]) -> Result<Vec<&'a str>, String> {
    options
        .chunks(2)
        .map(|pair| match *pair {
            ["--skip", name] if step_names().contains(&name) => Ok(name),
            ["--skip", name] => {
                Err(format!("ci has no step `{name}`; it has {}", step_names().join(", ")))
            }
            _ => Err(format!("ci takes only `--skip STEP`, not `{}`", pair.join(" "))),
        })
        .collect()
}

pub(crate) fn step_names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

#[cfg(test)]
mod tests {
    use super::{STEPS, parse_skips};

    #[test]
    fn every_step_says_how_to_run_it_alone() {
        let alone = |name| STEPS.iter().find(|step| step.name == name).unwrap().alone();
        assert_eq!(alone("docs"), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps");
        assert_eq!(alone("arrows"), "cargo xtask arrows");
    }

    #[test]
    fn skips_are_read_in_pairs() {
        assert!(parse_skips(&[]).unwrap().is_empty());
        assert_eq!(parse_skips(&["--skip", "tests"]).unwrap(), ["tests"]);
        assert_eq!(parse_skips(&["--skip", "fmt", "--skip", "deny"]).unwrap(), ["fmt", "deny"]);
    }

    #[test]
    fn a_skip_that_would_do_nothing_is_an_error() {
        assert!(parse_skips(&["--skip", "test"]).unwrap_err().contains("it has fmt"));
        assert!(parse_skips(&["--skip"]).is_err());
        assert!(parse_skips(&["tests"]).is_err());
    }
}
