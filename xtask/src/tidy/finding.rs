//! A finding of a rule at a line of a file.

use std::fmt;

/// One broken rule. The order is by file and line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Finding {
    /// `index` counts lines from 0, as iterators do; the output counts from 1, as editors do.
    pub(super) fn new(path: &str, index: usize, rule: &'static str, advice: String) -> Self {
        Finding { path: path.to_string(), line: index + 1, rule, advice }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// Returns the rules and lines of findings, for tests.
#[cfg(test)]
pub(super) fn places(findings: &[Finding]) -> Vec<(&'static str, usize)> {
    findings.iter().map(|finding| (finding.rule, finding.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::Finding;

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        let finding = Finding::new("a/b.rs", 6, "tab", "use spaces".to_string());
        assert_eq!(finding.to_string(), "a/b.rs:7: tab: use spaces");
    }
}
