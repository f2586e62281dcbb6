//! `cargo xtask fuzz`: each fuzz target for a minute, and whether it got where it should.
//!
//! The targets are built with libFuzzer's instrumentation and no sanitizer: what they feed has no
//! `unsafe`, and so any toolchain will do. Overflow and assertions are checked. What a run finds of
//! interest is kept for the next, under cargo's own directory.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::command::{Line, root, target};

/// What is fuzzed, and what it begins with besides its own seeds.
struct Target {
    name: &'static str,
    /// A folder of the checkout.
    corpus: Option<&'static str>,
    dictionary: Option<&'static str>,
    max_len_bytes: u32,
}

const TARGETS: &[Target] = &[
    Target { name: "nbd_handshake", corpus: None, dictionary: None, max_len_bytes: 1024 },
    Target { name: "nbd_transmission", corpus: None, dictionary: None, max_len_bytes: 1024 },
    Target { name: "nbd_client", corpus: None, dictionary: None, max_len_bytes: 512 },
    Target {
        name: "job_file",
        corpus: Some("crates/forebay-fio/tests/corpus"),
        dictionary: Some("fuzz/options.dict"),
        max_len_bytes: 4096,
    },
    Target {
        name: "command_line",
        corpus: None,
        dictionary: Some("fuzz/options.dict"),
        max_len_bytes: 4096,
    },
];

/// How long each runs, in seconds.
const SECONDS: u32 = 60;
/// What one input may take, in mebibytes and seconds. It takes far less; but a target that is
/// stopped by a busy machine would be a false alarm.
const LIMITS: [&str; 2] = ["-rss_limit_mb=512", "-timeout=25"];

/// What cargo-fuzz asks the compiler for, without a sanitizer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares \
                     -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks --cfg=fuzzing";

pub(crate) fn run(seconds: Option<u32>) -> Outcome {
    if Command::new("c++").arg("--version").output().is_err() {
        if env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1") {
            return Err("there is no C++ compiler for libFuzzer: apt-get install g++".to_owned());
        }
        println!("fuzz: SKIPPED: there is no C++ compiler for libFuzzer; apt-get install g++");
        return Ok(());
    }
    let host = host()?;
    let build = target("fuzz");
    // With a target, build scripts are not instrumented: they could not be linked.
    Line::cargo("build --release --locked --manifest-path fuzz/Cargo.toml --bins")
        .argument(format!("--target={host}"))
        .argument(format!("--target-dir={build}"))
        .variable("RUSTFLAGS", FLAGS)
        .run()?;
    let programs = Path::new(&build).join(host).join("release");
    TARGETS.iter().try_for_each(|it| fuzz(it, &programs, seconds.unwrap_or(SECONDS)))
}

/// The triple of this machine.
fn host() -> Result<String, String> {
    let said = Line::new("rustc", "-vV").output()?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn fuzz(it: &Target, programs: &Path, seconds: u32) -> Outcome {
    let Target { name, .. } = it;
    let place = PathBuf::from(target("fuzz-runs")).join(name);
    let failed = |error| format!("fuzz {name} works in {}: {error}", place.display());
    let [corpus, seeds] = ["corpus", "seeds"].map(|folder| place.join(folder));
    let artifacts = root().join("fuzz/artifacts").join(name);
    for folder in [&corpus, &seeds, &artifacts] {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let [log, reach] = ["log", "reach"].map(|file| place.join(file));
    fs::write(&reach, "").map_err(failed)?;
    let output = File::create(&log).map_err(failed)?;
    let mut command = Command::new(programs.join(name));
    command.current_dir(root()).args([&corpus, &seeds]).args(it.corpus).args(LIMITS);
    command.args(it.dictionary.map(|file| format!("-dict={file}")));
    command.arg(format!("-max_len={}", it.max_len_bytes));
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
            "fuzz {name} ended with {status}; all that it said is in {}, and the last of it:\n\
             {last}\nthe input is in {}; to repeat: {} INPUT",
            log.display(),
            artifacts.display(),
            programs.join(name).display()
        ));
    }
    let nr_runs = figure(&said, "stat::number_of_executed_units:");
    let notes = fs::read_to_string(&reach).map_err(failed)?;
    let (nr_wanted, missing) = missing(&notes);
    println!("fuzz {name}: {nr_runs} inputs in {seconds} s, {nr_wanted} features to reach");
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("fuzz {name} did not reach {}; its file says what they are", missing.join(", ")))
}

/// The figure behind `name` in libFuzzer's statistics.
fn figure<'a>(said: &'a str, name: &str) -> &'a str {
    said.lines().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim)
}

/// How many features the lines `want` name, and those of them that no line `got` does.
fn missing(notes: &str) -> (usize, Vec<&str>) {
    let lines = |word: &'static str| {
        notes.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    };
    let got: BTreeSet<_> = lines("got").collect();
    (lines("want").count(), lines("want").filter(|feature| !got.contains(feature)).collect())
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, figure, missing};
    use crate::command::root;

    #[test]
    fn a_feature_that_was_not_reached_is_named() {
        let notes = "want a-1\nwant a-2\nwant b-1\ngot a-2\ngot c-1\ngot b-1\n";
        assert_eq!(missing(notes), (3, vec!["a-1"]));
        assert_eq!(missing(""), (0, vec![]));
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
}
