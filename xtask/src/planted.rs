//! `cargo xtask planted`: plants known bugs in a copy of the workspace; a test must find each.
//!
//! A table entry is a bug that was once planted by hand: the text that it changes, and the test
//! that must fail then. Without an argument this plants one of [`NR_PARTS`] parts of the table,
//! selected by the hash of the commit, so that a few commits cover all of it. `--all` plants all,
//! and a name plants one. An entry fails the gate if its text is not in the tree exactly once, if
//! the program does not build with it, if its test fails without it, or if its test passes with it
//! or fails without the expected output.
//!
//! All entries use one copy and one build directory, so that builds are incremental.

mod bindings;
mod devices;
mod drivers;
mod flush;
mod owner;
mod runtime;
mod sched;
mod serve;
mod vhost_user;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use crate::Outcome;
use crate::command::{Ending, Line, root};
use crate::commit;
use crate::patched::Patched;

/// Number of parts of the table; a CI run plants one of them.
const NR_PARTS: usize = 32;

/// Time limit of a test in seconds. A test that exceeds it hangs; the slowest one takes some
/// seconds.
const SECONDS_MAX: u32 = 300;

/// Time limit in seconds for a model without its bug. Such a model may run for minutes, and the
/// gate `loom` runs all of them in full. With a bug each fails within this time, so a model that
/// runs longer does not fail on its own.
const MODEL_SECONDS: u32 = 20;

/// Files outside the crates that their sources include.
const INCLUDED: &[&str] = &["README.md", "contrib", "docs"];

/// A planted bug.
struct Bug {
    name: &'static str,
    /// The fault, as a sentence without a full stop.
    what: &'static str,
    edits: &'static [Edit],
    /// Fails with the bug, and passes without it.
    test: Test,
    /// Part of the failing test's output; if empty, the line of the failed test.
    says: &'static str,
}

/// A text replacement in a file.
struct Edit {
    /// Path relative to the root of the workspace.
    file: &'static str,
    /// The text, which occurs in the file exactly once.
    from: &'static str,
    to: &'static str,
}

/// A test by its full name, or all tests of a module by its name with `::`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: &'static str,
    target: &'static str,
    name: &'static str,
    /// Whether it is a model, run by loom.
    is_model: bool,
}

impl Test {
    /// Returns a test of the integration test program `it`.
    const fn it(package: &'static str, name: &'static str) -> Test {
        Test { package, target: "--test it", name, is_model: false }
    }

    /// Returns a test of the program `clients`, which plays clients of the server.
    const fn clients(name: &'static str) -> Test {
        Test { package: "forebay-serve", target: "--test clients", name, is_model: false }
    }

    /// Returns a unit test.
    const fn unit(package: &'static str, name: &'static str) -> Test {
        Test { package, target: "--lib", name, is_model: false }
    }

    /// Returns a unit test of the `vhost-user` driver, which is a feature.
    const fn vhost_user(name: &'static str) -> Test {
        let target = "--features vhost-user --lib";
        Test { package: "forebay", target, name, is_model: false }
    }

    /// Returns a unit test of the `rbd` driver, which is a feature.
    const fn rbd(name: &'static str) -> Test {
        Test { package: "forebay", target: "--features rbd --lib", name, is_model: false }
    }

    /// Returns a model in the runtime of the `forebay` crate.
    const fn model(name: &'static str) -> Test {
        Test { package: "forebay", target: "--lib", name, is_model: true }
    }

    /// Returns a model of the vhost-user device.
    const fn device_model(name: &'static str) -> Test {
        Test { package: "forebay-vhost-user", target: "--lib", name, is_model: true }
    }

    /// Returns the command that builds the test's program in the copy.
    fn build(&self, copy: &Patched) -> Line {
        let Test { package, target, .. } = self;
        match self.is_model {
            // Without optimization the models overflow their stacks.
            true => copy
                .cargo(
                    &format!("test --profile models --package {package} {target}"),
                    "planted/models",
                )
                .variable("RUSTFLAGS", "--cfg blk_loom"),
            // CI builds without incremental files; here each program is built many times.
            false => copy
                .cargo(&format!("test --package {package} {target}"), "planted/target")
                .variable("CARGO_INCREMENTAL", "1"),
        }
    }

    /// Returns the command that runs the test in the copy.
    fn line(&self, copy: &Patched) -> Line {
        let exact = if self.name.ends_with("::") { None } else { Some("--exact") };
        [self.name, "--"]
            .into_iter()
            .chain(exact)
            .fold(self.build(copy), |line, argument| line.argument(argument.to_owned()))
    }
}

/// Returns every planted bug.
fn table() -> Vec<&'static Bug> {
    let rooms = [
        flush::BUGS,
        owner::BUGS,
        drivers::BUGS,
        runtime::BUGS,
        sched::BUGS,
        serve::BUGS,
        vhost_user::BUGS,
        devices::BUGS,
        bindings::BUGS,
    ];
    rooms.into_iter().flatten().collect()
}

/// Runs one part of the table, selected by the hash of the commit.
pub(crate) fn run_part() -> Outcome {
    let number = commit::number()
        .map_err(|why| format!("planted: {why}; `cargo xtask planted --all` needs no commit"))?;
    let part = number as usize % NR_PARTS;
    println!("planted: part {} of {NR_PARTS}, by the hash of the commit", part + 1);
    let bugs = table();
    run(&bugs[range_of(part, bugs.len())])
}

/// Returns the places of a part in a table of `len` bugs. They are neighbours, so most of them are
/// in the same crate: the gate spends most of its time on builds.
fn range_of(part: usize, len: usize) -> Range<usize> {
    part * len / NR_PARTS..(part + 1) * len / NR_PARTS
}

pub(crate) fn run_all() -> Outcome {
    run(&table())
}

pub(crate) fn run_one(name: &str) -> Outcome {
    let found: Vec<&Bug> = table().into_iter().filter(|bug| bug.name == name).collect();
    if found.is_empty() {
        let names: Vec<&str> = table().iter().map(|bug| bug.name).collect();
        return Err(format!("planted: no bug is named `{name}`; there are {}", names.join(", ")));
    }
    run(&found)
}

fn run(bugs: &[&Bug]) -> Outcome {
    let copy = Patched::make("planted", &crates()?)?;
    INCLUDED.iter().try_for_each(|path| copy.add(path))?;
    let tests: BTreeSet<Test> = bugs.iter().map(|bug| bug.test).collect();
    for test in &tests {
        check_passes(test, &test.line(&copy))?;
    }
    let mut failed = Vec::new();
    for (index, bug) in bugs.iter().enumerate() {
        let start = Instant::now();
        let verdict = plant(&copy, bug, bug.edits);
        let seconds = start.elapsed().as_secs();
        let said = if verdict.is_ok() { "found by" } else { "NOT FOUND by" };
        let Bug { name, what, test, .. } = bug;
        println!(
            "planted: [{}/{}] {name}: {what}: {said} {} in {seconds} s",
            index + 1,
            bugs.len(),
            test.name
        );
        failed.extend(verdict.err().map(|why| format!("planted bug {name}: {why}")));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Returns the directories of all crates except the tools.
fn crates() -> Result<Vec<String>, String> {
    let failed = |error| format!("crates cannot be listed: {error}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).map_err(failed)? {
        names.push(format!("crates/{}", entry.map_err(failed)?.file_name().display()));
    }
    names.sort();
    Ok(names)
}

/// Checks that a test exists and passes without a bug: otherwise it would appear to find every bug.
fn check_passes(test: &Test, line: &Line) -> Outcome {
    let listed = line.clone().argument("--list".to_owned()).output()?;
    if !listed.lines().any(|line| line.ends_with(": test")) {
        return Err(format!("planted: `{line}` names no test; its table is in xtask/src/planted"));
    }
    let seconds = if test.is_model { MODEL_SECONDS } else { SECONDS_MAX };
    match line.clone().limit(seconds).ending()? {
        Ending::Success => Ok(()),
        Ending::Timeout if test.is_model => Ok(()),
        Ending::Failure(output) => {
            Err(format!("planted: `{line}` fails without a planted bug:\n{output}"))
        }
        Ending::Timeout => Err(format!("planted: `{line}` hangs without a planted bug")),
    }
}

/// Plants a bug, and checks that its test fails.
fn plant(copy: &Patched, bug: &Bug, edits: &[Edit]) -> Outcome {
    if let Some((Edit { file, from, to }, rest)) = edits.split_first() {
        return copy.with(file, from, to, || plant(copy, bug, rest));
    }
    let line = bug.test.line(copy);
    // A program that does not build finds nothing.
    bug.test.build(copy).argument("--no-run".to_owned()).argument("--quiet".to_owned()).run()?;
    match line.clone().limit(SECONDS_MAX).ending()? {
        Ending::Success => Err(format!("`{line}` passes with it")),
        Ending::Timeout => Err(format!("`{line}` hangs with it; find it by another test")),
        Ending::Failure(output) if is_found(&output, bug) => Ok(()),
        Ending::Failure(output) => {
            Err(format!("`{line}` fails with it, but not as expected:\n{output}"))
        }
    }
}

fn is_found(output: &str, bug: &Bug) -> bool {
    match bug.says {
        "" => output.contains(&format!("{} ... FAILED", bug.test.name)),
        says => output.contains(says),
    }
}

#[cfg(test)]
mod tests {
    use super::{NR_PARTS, range_of, run_one, table};
    use crate::command::root;
    use crate::patched::read;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn parts_cover_the_table_once() {
        for len in [0, 1, NR_PARTS, 139] {
            let places: Vec<_> = (0..NR_PARTS).flat_map(|part| range_of(part, len)).collect();
            assert!(places.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn every_edit_applies_exactly_once() {
        let mut broken = Vec::new();
        for bug in table() {
            assert!(!bug.edits.is_empty(), "{}", bug.name);
            for edit in bug.edits {
                assert_ne!(edit.from, edit.to, "{}", bug.name);
                let nr = read(&root().join(edit.file)).unwrap().matches(edit.from).count();
                if nr != 1 {
                    broken.push(format!("{}: {} has {nr} of `{}`", bug.name, edit.file, edit.from));
                }
            }
        }
        assert!(broken.is_empty(), "update xtask/src/planted:\n{}", broken.join("\n"));
    }

    /// Returns the text of all sources below a directory.
    fn sources(dir: &Path) -> String {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let texts = entries.map(|path| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(extension) if extension == "rs" => read(&path).unwrap(),
            _ => String::new(),
        });
        texts.collect()
    }

    #[test]
    fn every_test_is_in_its_package() {
        let packages: BTreeSet<_> = table().iter().map(|bug| bug.test.package).collect();
        for package in packages {
            let text = sources(&root().join("crates").join(package));
            for test in table().iter().map(|bug| bug.test).filter(|test| test.package == package) {
                let last = test.name.trim_end_matches("::").rsplit("::").next().unwrap();
                let keyword = if test.name.ends_with("::") { "mod" } else { "fn" };
                let is_there = ["(", ";", " {"]
                    .iter()
                    .any(|end| text.contains(&format!("{keyword} {last}{end}")));
                assert!(is_there, "{package} has no {}; update xtask/src/planted", test.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_an_unknown_one_is_an_error() {
        let names: BTreeSet<&str> = table().iter().map(|bug| bug.name).collect();
        assert_eq!(names.len(), table().len());
        assert!(run_one("no-such-bug").unwrap_err().contains("late-flush-joins"));
    }
}
