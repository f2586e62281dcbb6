//! `cargo xtask semver`: breaking changes of the public API since the last release
//! (cargo-semver-checks).
//!
//! It compares the API with that of the last tag, and takes the kind of release from the versions.
//! Before the first tag it compares with the last commit that changed [`BREAKS`]: a commit that
//! breaks the API on purpose records that in this file.

use crate::Outcome;
use crate::command::{Line, root};
use crate::tools::CargoTool;

pub(crate) const TOOL: CargoTool = CargoTool { command: "semver-checks", version: "0.51.0" };

/// The list of deliberate breaks.
const BREAKS: &str = "xtask/accepted-breaks.txt";

/// The crates of the public API: the library, and the core, whose types it exports.
const CRATES: &str = "--package forebay --package forebay-core";

pub(crate) fn run() -> Outcome {
    if !has_history() {
        let why = "this clone is shallow, and the comparison needs the history";
        return Err(format!("semver: {why}; get it with `git fetch --unshallow`"));
    }
    TOOL.require("semver")?;
    let tag = git("describe --tags --abbrev=0").unwrap_or_default();
    let last_break = git(&format!("log -1 --format=%H -- {BREAKS}"))?;
    let (baseline, kind) = baseline(tag.trim(), last_break.trim())?;
    println!("semver: the API is compared with {baseline}");
    let line = Line::cargo(&format!("semver-checks {CRATES} --all-features {kind}"));
    line.argument(format!("--baseline-rev={baseline}")).run().map_err(|error| {
        format!(
            "{error}; if the break is deliberate, add a line to {BREAKS} and a migration line to \
             CHANGELOG.md in the same commit"
        )
    })
}

/// Returns whether the commits before the present one are there.
pub(crate) fn has_history() -> bool {
    git("rev-parse --is-shallow-repository").is_ok_and(|answer| answer.trim() == "false")
}

/// Returns the revision to compare with, and an option: without a tag no version records the kind
/// of release.
fn baseline<'a>(tag: &'a str, last_break: &'a str) -> Result<(&'a str, &'static str), String> {
    match (tag, last_break) {
        ("", "") => Err(format!(
            "semver: there is no tag, and no commit changes {BREAKS}; commit it first, and fetch \
             the whole history"
        )),
        ("", last_break) => Ok((last_break, "--release-type=minor")),
        (tag, _) => Ok((tag, "")),
    }
}

fn git(arguments: &str) -> Result<String, String> {
    let line = Line::new("git", "-c").argument(format!("safe.directory={}", root().display()));
    arguments.split_whitespace().fold(line, |line, word| line.argument(word.to_owned())).output()
}

#[cfg(test)]
mod tests {
    use super::baseline;

    #[test]
    fn last_tag_is_the_baseline_and_without_one_the_last_deliberate_break() {
        assert_eq!(baseline("v0.1.0", "abc"), Ok(("v0.1.0", "")));
        assert_eq!(baseline("", "abc"), Ok(("abc", "--release-type=minor")));
        assert!(baseline("", "").is_err());
    }
}
