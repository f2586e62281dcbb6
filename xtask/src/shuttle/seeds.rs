//! The list of seeds under which models have failed, and the names of models that fail.

/// A model and a seed under which it has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) package: String,
    pub(super) test: String,
    pub(super) seed: u64,
}

impl Recorded {
    /// Parses the list: a package, a model and a seed in each line that is not empty and does not
    /// begin with `#`.
    pub(super) fn parse(text: &str) -> Result<Vec<Recorded>, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Recorded::parse_line).collect()
    }

    fn parse_line(line: &str) -> Result<Recorded, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [package, test, seed] = words[..] else {
            return Err(format!("`{line}` is not a package, a model and a seed"));
        };
        let seed = seed.parse().map_err(|_| format!("`{line}`: `{seed}` is not a seed"))?;
        Ok(Recorded { package: package.to_owned(), test: test.to_owned(), seed })
    }

    /// Returns the line that records a failure.
    pub(super) fn line(package: &str, test: &str, seed: u64) -> String {
        format!("{package} {test} {seed}")
    }
}

/// Returns the tests that have failed, from the standard output of a test program.
pub(super) fn failed_tests(stdout: &str) -> impl Iterator<Item = &str> {
    stdout.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

#[cfg(test)]
mod tests {
    use super::{Recorded, failed_tests};

    #[test]
    fn a_failure_is_recorded_by_a_line_that_is_read_again() {
        let line = Recorded::line("forebay", "a::b", 7);
        let [recorded] = &Recorded::parse(&format!("# why\n\n{line}\n")).unwrap()[..] else {
            panic!("one line")
        };
        let expected = Recorded { package: "forebay".into(), test: "a::b".into(), seed: 7 };
        assert_eq!(*recorded, expected);
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        assert!(Recorded::parse("forebay a::b").unwrap_err().contains("`forebay a::b`"));
        assert!(Recorded::parse("forebay a::b x").unwrap_err().contains("`x` is not a seed"));
    }

    #[test]
    fn the_tests_that_failed_are_found() {
        let stdout = "\nrunning 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n";
        assert_eq!(failed_tests(stdout).collect::<Vec<_>>(), ["a::c"]);
    }
}
