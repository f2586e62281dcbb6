//! Tests that run under a tool, with a check that the selection is not empty.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::command::Line;

/// Some tests of one package.
pub(crate) struct Suite {
    /// Cargo's arguments that select the package and its targets.
    pub(crate) target: &'static str,
    /// Test name filters; without any, all tests of the target run. The list may also have options
    /// of the test program.
    pub(crate) names: &'static [&'static str],
    /// Name filters of tests that the tool cannot run.
    pub(crate) skips: &'static [&'static str],
}

impl Suite {
    /// Returns the last arguments of the command that runs the suite.
    fn arguments(&self) -> Vec<String> {
        let target = self.target.split_whitespace();
        let skips = self.skips.iter().flat_map(|name| ["--skip", name]);
        let words = target.chain(["--"]).chain(self.names.iter().copied()).chain(skips);
        words.map(String::from).collect()
    }
}

/// Runs each suite with a command that ends in `test`.
pub(crate) fn run(tool: &str, suites: &[Suite], test: &Line) -> Outcome {
    for suite in suites {
        let (line, nr) = line(tool, suite, test)?;
        println!("{tool}: {nr} tests: {line}");
        line.run()?;
    }
    Ok(())
}

/// Returns the command that runs a suite, and the number of its tests. A suite without a test is an
/// error: it would always pass and prove nothing.
pub(crate) fn line(tool: &str, suite: &Suite, test: &Line) -> Result<(Line, usize), String> {
    let line = suite.arguments().into_iter().fold(test.clone(), Line::argument);
    let listed = line.clone().argument("--list".to_string()).output()?;
    match nr_tests(&listed) {
        0 => Err(format!("{tool}: `{line}` names no test; its table is in xtask/src")),
        nr => Ok((line, nr)),
    }
}

/// Counts distinct names, because a tool may list a test several times.
fn nr_tests(listed: &str) -> usize {
    listed.lines().filter(|line| line.ends_with(": test")).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::{Suite, nr_tests, run};
    use crate::command::Line;

    const SUITE: Suite =
        Suite { target: "--package a --lib", names: &["one", "two"], skips: &["three"] };

    #[test]
    fn names_and_skips_come_after_the_dashes() {
        let expected = "--package a --lib -- one two --skip three";
        assert_eq!(SUITE.arguments().join(" "), expected);
    }

    #[test]
    fn a_suite_without_a_test_is_an_error() {
        let message = run("tool", &[SUITE], &Line::new("echo", "running")).unwrap_err();
        assert!(message.contains("`echo running --package a --lib"), "{message}");
        assert!(message.contains("names no test"), "{message}");
    }

    #[test]
    fn each_test_counts_once() {
        let listed = "a::b: test\na::c: test\na::d: benchmark\n\n2 tests, 1 benchmark\n";
        assert_eq!(nr_tests(&listed.repeat(8)), 2);
    }
}
