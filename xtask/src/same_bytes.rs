//! `cargo xtask same-bytes`: runs the same seeds and crash histories in builds for two C libraries,
//! glibc and musl, and compares their hashes.
//!
//! A seed must give the same run on any machine. Mathematical functions of the platform, sizes, the
//! order of hash tables or the time could break that.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Outcome;
use crate::command::Line;
use crate::tools;

const TARGET: &str = "x86_64-unknown-linux-musl";

const TEST: &str = "test --package forebay-sim --test it";

pub(crate) fn run() -> Outcome {
    if let Err(why) = install() {
        if tools::are_required() {
            return Err(format!("same-bytes: {why}"));
        }
        println!("same-bytes: SKIPPED: {why}");
        return Ok(());
    }
    let own = hashes(&line(TEST))?;
    let other = hashes(&line(&format!("{TEST} --target {TARGET}")))?;
    let differences = differences(&own, &other);
    if differences.is_empty() {
        println!("same-bytes: {} hashes are the same in a build for {TARGET}", own.len());
        return Ok(());
    }
    differences.iter().for_each(|difference| println!("same-bytes: {difference}"));
    Err(format!("same-bytes: {} of {} hashes differ on {TARGET}", differences.len(), own.len()))
}

/// Installs the library of the other target, if it is missing.
fn install() -> Outcome {
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!("this machine does not run programs for {TARGET}"));
    }
    let directory = Line::new("rustc", &format!("--print target-libdir --target {TARGET}"));
    if Path::new(directory.output()?.trim()).exists() {
        return Ok(());
    }
    Line::new("rustup", &format!("target add {TARGET}"))
        .run()
        .map_err(|error| format!("the library for {TARGET} cannot be installed: {error}"))
}

fn line(test: &str) -> Line {
    Line::cargo(&format!("{test} -- --nocapture --exact"))
        .argument("same_bytes::hashes_of_seeds_jobs_and_histories_are_the_same_bytes".to_owned())
}

/// Runs the test, and returns the hashes that it prints, by name.
fn hashes(line: &Line) -> Result<BTreeMap<String, String>, String> {
    println!("same-bytes: {line}");
    let hashes = parse(&line.output()?);
    match hashes.is_empty() {
        true => Err(format!("same-bytes: `{line}` printed no hash")),
        false => Ok(hashes),
    }
}

/// Parses lines of the form `hash NAME: VALUE`.
fn parse(text: &str) -> BTreeMap<String, String> {
    let hashes = text.lines().filter_map(|line| line.strip_prefix("hash ")?.rsplit_once(": "));
    hashes.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Lists the runs that differ, or that only one build has.
fn differences(own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let text = |value: Option<&String>| value.map_or("no hash", String::as_str).to_owned();
    let names = own.keys().chain(other.keys().filter(|name| !own.contains_key(*name)));
    let values = names.map(|name| (name, own.get(name), other.get(name)));
    let different = values.filter(|(_, own, other)| own != other);
    different
        .map(|(name, own, other)| format!("{name}: {} and {}", text(own), text(other)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{differences, parse};

    #[test]
    fn hashes_that_differ_or_are_missing_are_named() {
        let own = parse("running 1 test\nhash seed 1: aa\nhash a: b on hdd: cc\nhash seed 2: dd\n");
        assert_eq!(own.len(), 3);
        assert!(differences(&own, &own).is_empty());
        let other = parse("hash seed 1: ab\nhash a: b on hdd: cc\nhash seed 3: dd\n");
        let expected = ["seed 1: aa and ab", "seed 2: dd and no hash", "seed 3: no hash and dd"];
        assert_eq!(differences(&own, &other), expected);
    }
}
