//! `cargo xtask histories`: checks every short history of bios on a device with a volatile cache,
//! with a crash at each point in time.
//!
//! Without an argument it runs one of three parts, selected by the hash of the commit. `--all` runs
//! all of them, and histories of four bios with one failure each, which take ten more minutes.

use crate::command::Line;
use crate::suite::{self, Suite};
use crate::{Outcome, commit};

/// The parts take about the same time. The first words are options of the test program.
const PARTS: [&[&str]; 3] = [
    &[
        "--ignored",
        "--nocapture",
        "--exact",
        "histories::every_history_of_four_bios_with_durable_points",
        "histories::every_history_of_four_bios_without_failures",
    ],
    &[
        "--ignored",
        "--nocapture",
        "--exact",
        "histories::every_history_of_four_syncs_beside_each_other",
        "histories::every_history_of_three_bios",
    ],
    &[
        "--ignored",
        "--nocapture",
        "--exact",
        "histories::every_history_of_three_bios_in_two_contexts",
        "histories::every_history_of_three_bios_on_a_file",
        "histories::every_history_of_two_split_bios_and_half_of_those_of_three",
    ],
];

const ALL: &[&str] = &["--ignored", "--nocapture", "histories"];

pub(crate) fn run_part() -> Outcome {
    let number = commit::number().map_err(|why| {
        format!("histories: {why}; `cargo xtask histories --all` needs no commit")
    })?;
    let part = number as usize % PARTS.len();
    println!("histories: part {} of {}, by the hash of the commit", part + 1, PARTS.len());
    run(PARTS[part])
}

pub(crate) fn run_all() -> Outcome {
    run(ALL)
}

fn run(names: &'static [&'static str]) -> Outcome {
    let suite = Suite { target: "--package forebay-sim --test it", names, skips: &[] };
    suite::run("histories", &[suite], &Line::cargo("test --release"))
}

#[cfg(test)]
mod tests {
    use super::PARTS;
    use crate::command::root;

    #[test]
    fn every_long_test_is_in_one_part() {
        let file = root().join("crates/forebay-sim/tests/it/histories.rs");
        let text = std::fs::read_to_string(file).unwrap();
        let names =
            text.lines().filter_map(|line| line.strip_prefix("fn every_history")?.split_once('('));
        let mut expected: Vec<_> =
            names.map(|(rest, _)| format!("histories::every_history{rest}")).collect();
        let names = PARTS.iter().flat_map(|part| part.iter());
        let mut found: Vec<_> = names.filter(|name| !name.starts_with('-')).collect();
        expected.sort();
        found.sort();
        assert!(!found.is_empty());
        assert!(found.iter().map(|name| **name).eq(expected.iter().map(String::as_str)));
    }
}
