//! `cargo xtask ci`: runs every gate and stops at the first failure: the short gates one after
//! another, then the long ones concurrently. At the end it prints the time of each gate.

use std::time::Instant;

use crate::beside::{self, Gate};
use crate::command::Line;
use crate::usage::{self, Usage, Watch};
use crate::{
    Outcome, alternate, arrows, bare, circles, commit, examples, fio_examples, nightly, outside,
    publish, tidy,
};

/// One gate.
struct Step {
    name: &'static str,
    action: Action,
}

enum Action {
    /// A plain cargo command.
    Cargo(fn() -> Line),
    /// One of our own commands, with the name of the step.
    Own(fn() -> Outcome),
    /// The same, run concurrently with others: it takes minutes, mostly on one processor.
    Beside,
    /// The same, with the nightly toolchain.
    BesideByNightly,
    /// The same as `Beside`, for every other commit: its hash selects those whose part of
    /// `deny-or-semver` is the short one.
    BesideEverySecond,
    /// The same as `Beside`, but it mostly waits.
    Waits,
}

/// Fast gates that often fail come first, so that most failures show within seconds.
const STEPS: &[Step] = &[
    Step { name: "fmt", action: Action::Cargo(|| Line::cargo("fmt --all --check")) },
    Step { name: "tidy", action: Action::Own(tidy::run) },
    Step { name: "arrows", action: Action::Own(arrows::run) },
    Step { name: "circles", action: Action::Own(circles::run) },
    Step { name: "clippy", action: Action::Cargo(clippy) },
    Step { name: "examples", action: Action::Own(examples::run) },
    Step { name: "fio-examples", action: Action::Own(fio_examples::run) },
    Step { name: "outside", action: Action::Own(outside::run) },
    Step { name: "docs", action: Action::Cargo(docs) },
    Step { name: "bare", action: Action::Own(bare::run) },
    Step { name: "publish", action: Action::Own(publish::run) },
    Step { name: "deny-or-semver", action: Action::Own(alternate::run) },
    Step { name: "tests", action: Action::Waits },
    // The longest first, so that no long gate runs alone at the end.
    Step { name: "miri", action: Action::BesideByNightly },
    Step { name: "loom", action: Action::Beside },
    Step { name: "shuttle", action: Action::Beside },
    Step { name: "fuzz", action: Action::Beside },
    Step { name: "tsan", action: Action::BesideByNightly },
    Step { name: "planted", action: Action::Beside },
    Step { name: "instructions", action: Action::Beside },
    Step { name: "plants", action: Action::Beside },
    Step { name: "histories", action: Action::Beside },
    Step { name: "python", action: Action::Beside },
    Step { name: "sessions", action: Action::Beside },
    Step { name: "differential", action: Action::Beside },
    Step { name: "libaio", action: Action::Beside },
    Step { name: "package", action: Action::Beside },
    Step { name: "pictures", action: Action::Beside },
    Step { name: "aarch64", action: Action::BesideEverySecond },
    Step { name: "mutants", action: Action::Beside },
    Step { name: "same-bytes", action: Action::Beside },
];

/// Runs the tests of all crates. Includes the doc tests: cargo runs them unless targets are
/// selected. The soak tests, which take 3 seconds by default, run for longer. A failing test does
/// not keep later crates from running, so that one run shows every failure.
pub(crate) fn tests() -> Outcome {
    let line =
        Line::cargo("test --workspace --no-fail-fast").variable("FOREBAY_SOAK_SECONDS", "10");
    println!("tests: {line}");
    line.run()
}

fn clippy() -> Line {
    Line::cargo("clippy --workspace --all-targets -- -D warnings")
}

fn docs() -> Line {
    Line::cargo("doc --workspace --no-deps --features forebay/serde,forebay/tokio")
        .variable("RUSTDOCFLAGS", "-D warnings")
}

impl Step {
    /// Returns the command that runs only this step.
    fn alone(&self) -> String {
        match self.action {
            Action::Cargo(line) => line().to_string(),
            Action::Own(_)
            | Action::Beside
            | Action::BesideByNightly
            | Action::BesideEverySecond
            | Action::Waits => format!("cargo xtask {}", self.name),
        }
    }

    /// Runs the step, and returns its time.
    fn passes(&self, heading: &str, run: impl FnOnce() -> Outcome) -> Result<Usage, String> {
        println!("{heading}: {}", self.alone());
        let watch = Watch::start();
        run()?;
        let usage = watch.stop(self.name);
        println!("{heading}: passed in {:.1} s", usage.seconds);
        Ok(usage)
    }
}

pub(crate) fn run(skips: &[&str]) -> Outcome {
    let start = Instant::now();
    let (mut long, mut usages) = (Vec::new(), Vec::new());
    for (index, step) in STEPS.iter().enumerate() {
        let name = step.name;
        let heading = format!("[{}/{}] {name}", index + 1, STEPS.len());
        if skips.contains(&name) {
            println!("{heading}: skipped, as asked");
            continue;
        }
        let outcome = match step.action {
            Action::BesideByNightly if !nightly::is_there_for(name) => continue,
            Action::BesideEverySecond if !commit::number().unwrap_or(0).is_multiple_of(2) => {
                println!(
                    "{heading}: skipped, the commit does not select it; alone: {}",
                    step.alone()
                );
                continue;
            }
            Action::Beside
            | Action::BesideByNightly
            | Action::BesideEverySecond
            | Action::Waits => {
                let waits = matches!(step.action, Action::Waits);
                long.push(Gate { name, waits, heading });
                continue;
            }
            Action::Cargo(line) => step.passes(&heading, || line().run()),
            Action::Own(run) => step.passes(&heading, run),
        };
        usages.push(outcome.map_err(|message| {
            format!("{message}\nstep {name} failed; alone: {}", step.alone())
        })?);
    }
    beside::run(long, &mut usages)?;
    usage::summarize(&usages);
    println!("ci: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Parses any number of `--skip NAME`. An unknown step name is an error.
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
        assert!(alone("docs").starts_with("RUSTDOCFLAGS='-D warnings' cargo doc --workspace "));
        assert_eq!(alone("arrows"), "cargo xtask arrows");
    }

    #[test]
    fn skips_are_read_in_pairs() {
        assert!(parse_skips(&[]).unwrap().is_empty());
        assert_eq!(parse_skips(&["--skip", "tests"]).unwrap(), ["tests"]);
        assert_eq!(parse_skips(&["--skip", "fmt", "--skip", "tidy"]).unwrap(), ["fmt", "tidy"]);
    }

    #[test]
    fn a_skip_that_would_do_nothing_is_an_error() {
        assert!(parse_skips(&["--skip", "test"]).unwrap_err().contains("it has fmt"));
        assert!(parse_skips(&["--skip"]).is_err());
        assert!(parse_skips(&["tests"]).is_err());
    }
}
