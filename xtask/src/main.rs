//! The project's own commands: `cargo xtask <command>`; `cargo xtask help` lists them.
//!
//! One file for each step of the gate; `ci` runs them all in order. It depends on the standard
//! library only, so that the gate builds in a second, and no release of a dependency can break it.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks through its standard streams"
)]

mod aarch64;
mod alternate;
mod arrows;
mod bare;
mod beside;
mod capi;
mod ci;
mod circles;
mod command;
mod commit;
mod deny;
mod differential;
mod examples;
mod features;
mod fio_examples;
mod fuzz;
mod histories;
mod instructions;
mod libaio;
mod long;
mod loom;
mod miri;
mod msrv;
mod mutants;
mod nightly;
mod outside;
mod package;
mod patched;
mod pictures;
mod planted;
mod plants;
mod publish;
mod python;
mod same_bytes;
mod semver;
mod sessions;
mod shuttle;
mod simspeed;
mod stacks;
mod suite;
mod tidy;
mod tools;
mod trace_points;
mod tsan;
mod usage;

use std::process::ExitCode;

/// Result of every command: an error is the text for the user.
type Outcome = Result<(), String>;

const HELP: &str = "\
cargo xtask <command>

  ci [--skip STEP]...  every gate, stopping at the first failure
  arrows               which workspace crate names which, against the allowed table
  circles              which modules of a crate use each other in a circle
  bare                 builds core, models and NBD for a target without std, and the library with
                       each of its features alone
  tests                the tests of all crates: `cargo test --workspace`
  tidy                 checks rules on the text of the tree
  tidy --lower         lowers the numbers in xtask/src/tidy/dialect.txt to those of the tree
  examples             runs every example of the forebay crate
  fio-examples         which of fio's example job files `forebay bench` accepts
  deny-or-semver       one of the next two, selected by the commit
  deny                 licences, bans and sources of the dependencies (cargo-deny)
  semver               breaking changes of the API since the last release (cargo-semver-checks)
  outside              a program outside the workspace, with only the published API
  instructions         instruction counts against their limits (valgrind)
  loom                 models of concurrent code in every interleaving
  mutants              memory orderings of 14 files of core, each weakened, must fail a loom model
  histories [--all]    short histories on a volatile cache, with a crash at each moment: those of
                       seconds and one of three of minutes, or all of them
  sessions [--all]     NBD clients and guests, good and bad ones, and a server, from a quarter of
                       many seeds, or from all of them
  differential         scripts by the library's threads and by the simulator, compared
  libaio               the replacement of the distribution's libaio.so.1, and its tests
  libaio --build       builds it, and compares its symbols with the distribution's
  simspeed             simulated bios per second, crash points per minute, instructions
  same-bytes           hashes of seeds and crash histories, in builds for glibc and musl
  pictures             draws the pictures of the documentation again and compares them, and opens
                       pages and figures in a browser (chromium)
  pictures --all       also opens the page of all experiments
  pictures --write     replaces the pictures in docs/pictures
  plants               bugs planted in the code that ships, found by the simulator's rules
  planted              a 32nd of the known bugs, planted in a copy, must fail their tests
  planted --all|NAME   all of them, or one
  fuzz [SECONDS]       each fuzz target for 15 or 20 seconds, and longer if that did not
                       reach its features; or once for SECONDS
  fuzz corpus          writes the corpora in fuzz/corpus-seeds anew, from what runs have found
  shuttle [SEED]       models of concurrent code in random schedules
  miri                 tests under Miri, which finds undefined behaviour
  tsan                 tests under ThreadSanitizer
  publish              packs all crates as for crates.io, and checks their manifests
  publish --verify     also builds each crate from its package
  aarch64              checks that the workspace compiles for 64-bit ARM
  python               the Python package: its tests, and the instructions of an I/O
  capi PREFIX          installs the library for C below a directory (cargo-c)
  package deb|static|container [--fast]
                       builds a package and tries it in a separate root directory
  package              as part of ci: all three, with --fast
  long [NAME]          a test that takes minutes and is not part of CI; without NAME, their list
  long aio [MINUTES [SEED]]
                       programs on the system's libaio and on forebay-aio, several at once
  nightly              installs the toolchain of miri and tsan, beside the user's own
  help                 this text

Steps of ci, in order; those from `tests` on run at the same time: ";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = dispatch(&words);
    // A question for a script has no further lines in its answer.
    let is_question = words.get(1) == Some(&"--missing");
    if words.first().is_some_and(|word| ci::step_names().contains(word)) && !is_question {
        usage::print();
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Outcome {
    match words {
        ["ci", options @ ..] => ci::run(&ci::parse_skips(options)?),
        ["tests"] => ci::tests(),
        ["arrows"] => arrows::run(),
        ["circles"] => circles::run(),
        ["bare"] => bare::run(),
        ["tidy"] => tidy::run(),
        ["tidy", "--lower"] => tidy::lower(),
        ["examples"] => examples::run(),
        ["fio-examples"] => fio_examples::run(),
        ["outside"] => outside::run(),
        ["deny-or-semver"] => alternate::run(),
        ["deny-or-semver", "--missing"] => alternate::print_missing(),
        ["deny"] => deny::run(),
        ["instructions"] => instructions::run(),
        ["loom"] => loom::run(),
        ["mutants"] => mutants::run(),
        ["sessions"] => sessions::run_part(),
        ["sessions", "--all"] => sessions::run_all(),
        ["pictures"] => pictures::run(),
        ["pictures", "--all"] => pictures::run_all(),
        ["pictures", "--write"] => pictures::write(),
        ["plants"] => plants::run(),
        ["differential"] => differential::run(),
        ["same-bytes"] => same_bytes::run(),
        ["simspeed"] => simspeed::run(),
        ["histories"] => histories::run_part(),
        ["histories", "--all"] => histories::run_all(),
        ["planted"] => planted::run_part(),
        ["planted", "--all"] => planted::run_all(),
        ["planted", name] => planted::run_one(name),
        ["shuttle"] => shuttle::run(None),
        ["shuttle", seed] => {
            let seed = seed.parse().map_err(|_| format!("shuttle: `{seed}` is no seed"))?;
            shuttle::run(Some(seed))
        }
        ["fuzz"] => fuzz::run(None),
        ["fuzz", "corpus"] => fuzz::save_corpora(),
        ["fuzz", seconds] => {
            let seconds = seconds.parse().ok().filter(|&seconds| seconds > 0);
            let seconds = seconds.ok_or("fuzz: the number of seconds is 1 or more")?;
            fuzz::run(Some(seconds))
        }
        ["miri"] => miri::run(),
        ["tsan"] => tsan::run(),
        ["publish"] => publish::run(),
        ["publish", "--verify"] => publish::verify(),
        ["aarch64"] => aarch64::run(),
        ["python"] => python::run(),
        ["libaio"] => libaio::run(),
        ["libaio", "--build"] => libaio::build().map(drop),
        ["capi", prefix] => capi::install(prefix),
        ["semver"] => semver::run(),
        ["package"] => package::gate(),
        ["package", name, options @ ..] => package::run(name, options),
        ["long"] => {
            print!("{}", long::list());
            Ok(())
        }
        ["long", name, options @ ..] => long::run(name, options),
        ["nightly"] => nightly::install(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}{}", ci::step_names().join(", "));
            Ok(())
        }
        _ => {
            Err(format!("there is no command `{}`; `cargo xtask help` lists them", words.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::dispatch;

    #[test]
    fn an_unknown_command_points_at_help() {
        let message = dispatch(&["frobnicate", "now"]).unwrap_err();
        assert!(message.contains("frobnicate now"));
        assert!(message.contains("cargo xtask help"));
    }

    #[test]
    fn an_argument_that_a_command_does_not_take_is_refused() {
        assert!(dispatch(&["tidy", "--fast"]).is_err());
        assert!(dispatch(&["fuzz", "0"]).unwrap_err().contains("1 or more"));
        assert!(dispatch(&["shuttle", "seed"]).unwrap_err().contains("`seed` is no seed"));
    }
}
