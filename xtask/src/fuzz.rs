//! `cargo xtask fuzz`: runs each fuzz target for up to a minute, and checks that it reached its
//! features. A target that has not, for example on a busy machine, runs again for longer. With a
//! duration on the command line, each target runs once, for that long.
//!
//! The targets are built with libFuzzer's instrumentation, overflow checks and assertions. With a
//! nightly toolchain they also have AddressSanitizer, because some of them parse bytes of hostile
//! peers; without one, any toolchain serves. Interesting inputs are kept for later runs in cargo's
//! target directory.
//!
//! `cargo xtask fuzz corpus` writes the smallest inputs with the same coverage into the checkout
//! ([`corpus`]): runs on other machines begin with these.

mod corpus;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::command::{Line, root, target};
use crate::nightly;
use crate::tools;

/// A fuzz target, and its initial inputs besides the seeds that it generates.
struct Target {
    name: &'static str,
    /// A directory in the checkout.
    corpus: Option<&'static str>,
    dictionary: Option<&'static str>,
    max_len_bytes: u32,
    /// Duration of a run in seconds.
    seconds: u32,
    /// Whether the checkout has the smallest inputs that runs have found.
    is_kept: bool,
}

const TARGETS: &[Target] = &[
    nbd("nbd_handshake", 1024),
    nbd("nbd_transmission", 1024),
    nbd("nbd_client", 512),
    Target {
        name: "vhost_ring",
        corpus: None,
        dictionary: None,
        max_len_bytes: 1024,
        seconds: LONG,
        is_kept: false,
    },
    Target {
        name: "vhost_channel",
        corpus: None,
        dictionary: None,
        max_len_bytes: 512,
        seconds: LONG,
        is_kept: false,
    },
    Target {
        name: "vhost_user_client",
        corpus: None,
        dictionary: None,
        max_len_bytes: 512,
        seconds: SHORT,
        is_kept: false,
    },
    Target {
        name: "job_file",
        corpus: Some("crates/forebay-fio/tests/corpus"),
        dictionary: Some("fuzz/options.dict"),
        max_len_bytes: 4096,
        seconds: SHORT,
        is_kept: false,
    },
    Target {
        name: "command_line",
        corpus: None,
        dictionary: Some("fuzz/options.dict"),
        max_len_bytes: 4096,
        seconds: SHORT,
        is_kept: false,
    },
    Target {
        name: "iolog",
        corpus: None,
        dictionary: None,
        max_len_bytes: 1024,
        seconds: SHORT,
        is_kept: false,
    },
];

const fn nbd(name: &'static str, max_len_bytes: u32) -> Target {
    Target { name, corpus: None, dictionary: None, max_len_bytes, seconds: SHORT, is_kept: true }
}

/// Duration of the runs of the targets of a device, in seconds. They parse memory that a hostile
/// guest and its front end can change at any time.
const LONG: u32 = 20;
/// Duration of the other runs in seconds. Each of them reached its features in 12 seconds.
const SHORT: u32 = 15;
/// Maximum number of runs of a target to reach its features, without a duration on the command
/// line. Each run takes twice as long as the one before, because a run that is too short for the
/// seeds keeps no input.
const NR_TRIES: u32 = 4;
/// Time limit of one input in seconds. An input takes far less, but a short limit would cause false
/// alarms on a busy machine.
const TIMEOUT: &str = "-timeout=25";

/// The compiler flags of cargo-fuzz, without a sanitizer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares \
                     -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks --cfg=fuzzing";
const ADDRESS: &str = "-Zsanitizer=address";

/// One way to build the targets.
struct Build {
    /// Used in messages, and as the name of the working directory.
    name: &'static str,
    cargo: Line,
    flags: String,
    /// Memory limit of a run, MiB. The sanitizer keeps freed memory.
    memory_mib: u32,
}

impl Build {
    fn plain() -> Build {
        let cargo = Line::cargo(BUILD);
        Build { name: "fuzz", cargo, flags: FLAGS.to_owned(), memory_mib: 512 }
    }

    /// Returns the build with AddressSanitizer. Without a nightly toolchain, prints a line and
    /// returns `None`.
    fn address() -> Option<Build> {
        let cargo = if nightly::is_installed() {
            nightly::cargo(BUILD)
        } else if Line::new("rustup", "run nightly cargo --version").succeeds() {
            Line::new("rustup", &format!("run nightly cargo {BUILD}"))
        } else if nightly::is_there_for("fuzz under AddressSanitizer") {
            // The toolchain is required: the next command reports that it is missing.
            nightly::cargo(BUILD)
        } else {
            return None;
        };
        let flags = format!("{FLAGS} {ADDRESS}");
        Some(Build { name: "fuzz-address", cargo, flags, memory_mib: 2048 })
    }

    /// Builds these targets. Returns the directory of the programs.
    fn programs<'a>(&self, targets: impl Iterator<Item = &'a Target>) -> Result<PathBuf, String> {
        let (host, build) = (host()?, target(self.name));
        // With a target, build scripts are not instrumented. Instrumented ones could not be linked.
        let line = self.cargo.clone().argument(format!("--target={host}"));
        let line = line.argument(format!("--target-dir={build}"));
        let line = targets.fold(line, |line, it| line.argument(format!("--bin={}", it.name)));
        line.variable("RUSTFLAGS", self.flags.as_str()).run()?;
        Ok(Path::new(&build).join(host).join("release"))
    }
}

const BUILD: &str = "build --release --locked --manifest-path fuzz/Cargo.toml";

pub(crate) fn run(seconds: Option<u32>) -> Outcome {
    if !has_compiler()? {
        return Ok(());
    }
    let durations = |it: &Target| durations(seconds, it.seconds);
    let build = Build::address().unwrap_or_else(Build::plain);
    let programs = build.programs(TARGETS.iter())?;
    TARGETS.iter().try_for_each(|it| fuzz(it, &build, &programs, &durations(it)))
}

/// Returns the durations of a target's tries in seconds: one try for a duration that was asked for.
fn durations(asked: Option<u32>, own: u32) -> Vec<u32> {
    match asked {
        Some(seconds) => vec![seconds],
        None => (0..NR_TRIES).map(|nth| own << nth).collect(),
    }
}

/// Regenerates the corpora in the checkout from the inputs that runs have found.
pub(crate) fn save_corpora() -> Outcome {
    if !has_compiler()? {
        return Ok(());
    }
    let mut saved = TARGETS.iter().filter(|it| it.is_kept);
    let programs = Build::plain().programs(saved.clone())?;
    saved.try_for_each(|it| {
        let place = PathBuf::from(target("fuzz-runs")).join(it.name);
        corpus::save(&programs.join(it.name), &place, it.name)
    })
}

/// Returns whether there is a compiler for libFuzzer. Without one the step is skipped by name.
///
/// # Errors
/// The compiler is missing, and tools are required.
fn has_compiler() -> Result<bool, String> {
    let is_there = Command::new("c++").arg("--version").output().is_ok();
    if !is_there && tools::are_required() {
        return Err("there is no C++ compiler for libFuzzer: apt-get install g++".to_owned());
    }
    if !is_there {
        println!("fuzz: SKIPPED: there is no C++ compiler for libFuzzer; apt-get install g++");
    }
    Ok(is_there)
}

/// Returns the target triple of this machine.
fn host() -> Result<String, String> {
    let said = Line::new("rustc", "-vV").output()?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Runs a target until it has reached its features, at most once for each of these durations.
fn fuzz(it: &Target, build: &Build, programs: &Path, durations: &[u32]) -> Outcome {
    let Target { name, .. } = it;
    let place = PathBuf::from(target("fuzz-runs")).join(name);
    let failed = |error| format!("{} {name} works in {}: {error}", build.name, place.display());
    let reach = place.join(format!("{}-reach", build.name));
    fs::create_dir_all(&place).map_err(failed)?;
    fs::write(&reach, "").map_err(failed)?;
    for seconds in durations {
        fuzz_once(it, build, programs, *seconds, &place)?;
        let notes = fs::read_to_string(&reach).map_err(failed)?;
        let (nr_wanted, missing) = missing(&notes);
        if missing.is_empty() {
            println!("{} {name}: all of {nr_wanted} features were reached", build.name);
            return Ok(());
        }
        println!("{} {name}: not reached yet: {}", build.name, missing.join(", "));
    }
    Err(format!(
        "{} {name} did not reach these features in {} runs; its file says what they are",
        build.name,
        durations.len()
    ))
}

/// Runs a target once.
fn fuzz_once(it: &Target, build: &Build, programs: &Path, seconds: u32, place: &Path) -> Outcome {
    let Target { name, .. } = it;
    let failed = |error| format!("{} {name} works in {}: {error}", build.name, place.display());
    let [corpus, seeds] = ["corpus", "seeds"].map(|folder| place.join(folder));
    let artifacts = root().join("fuzz/artifacts").join(name);
    for folder in [&corpus, &seeds, &artifacts] {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let [log, reach] = ["log", "reach"].map(|file| place.join(format!("{}-{file}", build.name)));
    let output = File::create(&log).map_err(failed)?;
    let mut command = Command::new(programs.join(name));
    command.current_dir(root()).args([&corpus, &seeds]).args(it.corpus).arg(TIMEOUT);
    command.arg(format!("-rss_limit_mb={}", build.memory_mib));
    command.args(it.dictionary.map(|file| format!("-dict={file}")));
    command.arg(format!("-max_len={}", it.max_len_bytes));
    // AddressSanitizer would start a symbolizer, whose pipes look like leaks of the target.
    command.arg("-print_funcs=0");
    command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.env("FOREBAY_FUZZ_SEEDS", &seeds).env("FOREBAY_FUZZ_REACH", &reach);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let status = command.status().map_err(failed)?;
    let said = String::from_utf8_lossy(&fs::read(&log).map_err(failed)?).into_owned();
    if !status.success() {
        let lines: Vec<_> = said.lines().collect();
        let last = lines.split_at(lines.len().saturating_sub(40)).1.join("\n");
        return Err(format!(
            "{} {name} ended with {status}; all that it said is in {}, and the last of it:\n\
             {last}\nthe input is in {}; to repeat: {} INPUT",
            build.name,
            log.display(),
            artifacts.display(),
            programs.join(name).display()
        ));
    }
    let nr_runs = figure(&said, "stat::number_of_executed_units:");
    println!("{} {name}: {nr_runs} inputs in {seconds} s", build.name);
    Ok(())
}

/// Returns the figure after `name` in libFuzzer's statistics.
fn figure<'a>(said: &'a str, name: &str) -> &'a str {
    said.lines().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim)
}

/// Returns the number of features in `want` lines, and those of them without a `got` line.
fn missing(notes: &str) -> (usize, Vec<&str>) {
    let lines = |word: &'static str| {
        notes.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    };
    // Each of several runs writes all features that it wants.
    let (want, got): (BTreeSet<_>, BTreeSet<_>) = (lines("want").collect(), lines("got").collect());
    (want.len(), want.difference(&got).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, durations, figure, missing};
    use crate::command::root;

    #[test]
    fn a_feature_that_was_not_reached_in_any_run_is_named() {
        let notes = "want a-1\nwant a-2\nwant b-1\ngot a-2\ngot c-1\n\
                     want a-1\nwant a-2\nwant b-1\ngot b-1\n";
        assert_eq!(missing(notes), (3, vec!["a-1"]));
        assert_eq!(missing(""), (0, vec![]));
    }

    #[test]
    fn a_duration_on_the_command_line_is_that_of_the_only_try() {
        assert_eq!(durations(Some(7), 60), [7]);
        assert_eq!(durations(None, 15), [15, 30, 60, 120]);
    }

    #[test]
    fn a_figure_is_found_by_its_name() {
        assert_eq!(figure("x\nstat::a:  12\n", "stat::a:"), "12");
        assert_eq!(figure("x", "stat::a:"), "?");
    }

    #[test]
    fn every_target_is_run_and_every_run_is_a_target() {
        let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let named = |name: &str| manifest.contains(&format!("name = \"{name}\"\npath"));
        assert!(TARGETS.iter().all(|target| named(target.name)));
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    }

    #[test]
    fn every_target_of_the_protocol_has_a_corpus_and_begins_with_it() {
        for target in TARGETS.iter().filter(|target| target.is_kept) {
            let file = root().join(super::corpus::file(target.name));
            let inputs = super::corpus::inputs(&std::fs::read_to_string(file).unwrap()).unwrap();
            assert!(inputs.len() >= 20, "{}: {} inputs", target.name, inputs.len());
            let source = format!("fuzz/fuzz_targets/{}.rs", target.name);
            let source = std::fs::read_to_string(root().join(source)).unwrap();
            assert!(source.contains(&format!("corpus-seeds/{}.hex", target.name)));
        }
    }
}
