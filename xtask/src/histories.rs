//! `cargo xtask histories`: checks every short history of bios on a device with a volatile cache,
//! with a crash at each point in time.
//!
//! Without an argument it runs all tests that take seconds, and one of three that take minutes,
//! selected by the hash of the commit. `--all` runs all of them, and histories of four bios with
//! one failure each, which takes ten minutes more.

use crate::command::Line;
use crate::suite::{self, Suite};
use crate::{Outcome, commit};

/// Options of the test program, and the tests of every run: each takes at most half a minute.
const SHORT: &[&str] = &[
    "--ignored",
    "--nocapture",
    "--exact",
    "histories::every_history_of_four_bios_with_durable_points",
    "histories::every_history_of_three_bios",
    "histories::every_history_of_three_bios_in_two_contexts",
    "histories::every_history_of_two_split_bios_and_half_of_those_of_three",
];

/// The same for each test that takes minutes. A run without an argument makes one of them.
const LONG: [&[&str]; 3] = [
    &[
        "--ignored",
        "--nocapture",
        "--exact",
        "histories::every_history_of_four_bios_without_failures",
    ],
    &[
        "--ignored",
        "--nocapture",
        "--exact",
        "histories::every_history_of_four_syncs_beside_each_other",
    ],
    &["--ignored", "--nocapture", "--exact", "histories::every_history_of_three_bios_on_a_file"],
];

const ALL: &[&str] = &["--ignored", "--nocapture", "histories"];

pub(crate) fn run_part() -> Outcome {
    let number = commit::number().map_err(|why| {
        format!("histories: {why}; `cargo xtask histories --all` needs no commit")
    })?;
    let part = number as usize % LONG.len();
    println!("histories: part {} of {}, by the hash of the commit", part + 1, LONG.len());
    run(&[SHORT, LONG[part]])
}

pub(crate) fn run_all() -> Outcome {
    run(&[ALL])
}

fn run(lists: &[&'static [&'static str]]) -> Outcome {
    let suite = |names: &&'static [&'static str]| Suite {
        target: "--package forebay-sim --test it",
        names,
        skips: &[],
    };
    let suites: Vec<_> = lists.iter().map(suite).collect();
    suite::run("histories", &suites, &Line::cargo("test --release"))
}

#[cfg(test)]
mod tests {
    use super::{LONG, SHORT};
    use crate::command::root;

    #[test]
    fn every_ignored_test_is_in_one_list() {
        let file = root().join("crates/forebay-sim/tests/it/histories.rs");
        let text = std::fs::read_to_string(file).unwrap();
        let names =
            text.lines().filter_map(|line| line.strip_prefix("fn every_history")?.split_once('('));
        let mut expected: Vec<_> =
            names.map(|(rest, _)| format!("histories::every_history{rest}")).collect();
        let names = LONG.iter().chain([&SHORT]).flat_map(|part| part.iter());
        let mut found: Vec<_> = names.filter(|name| !name.starts_with('-')).collect();
        expected.sort();
        found.sort();
        assert!(!found.is_empty());
        assert!(found.iter().map(|name| **name).eq(expected.iter().map(String::as_str)));
    }
}
