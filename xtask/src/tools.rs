//! Programs that a step needs in addition to cargo.

use crate::command::Line;

/// Returns whether a step must fail if a program is missing, instead of being skipped. CI sets
/// `FOREBAY_REQUIRE_TOOLS=1`.
pub(crate) fn are_required() -> bool {
    std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some_and(|value| value == "1")
}

/// A command of cargo that another package provides, in a fixed version: another one may have other
/// rules.
#[derive(Clone, Copy)]
pub(crate) struct CargoTool {
    /// `deny` for `cargo deny`. The package has the name `cargo-deny`.
    pub(crate) command: &'static str,
    pub(crate) version: &'static str,
}

impl CargoTool {
    /// Returns whether this version is installed.
    pub(crate) fn is_installed(self) -> bool {
        let found = Line::cargo(&format!("{} --version", self.command)).output();
        let expected = format!("cargo-{} {}", self.command, self.version);
        found.is_ok_and(|found| found.trim() == expected)
    }

    /// Returns the argument of `cargo install`.
    pub(crate) fn package_and_version(self) -> String {
        format!("cargo-{}@{}", self.command, self.version)
    }

    /// Returns whether a step is to be skipped, and prints how to install the program.
    pub(crate) fn is_missing_and_optional(self, step: &str) -> bool {
        if are_required() || self.is_installed() {
            return false;
        }
        println!("{step}: SKIPPED, {} is not installed; CI has it;", self.package_and_version());
        println!("      install it with: {}", self.install());
        true
    }

    /// Returns an error that describes how to install the program, if it is missing.
    pub(crate) fn require(self, step: &str) -> Result<(), String> {
        if self.is_installed() {
            return Ok(());
        }
        let package = self.package_and_version();
        Err(format!(
            "{step}: {package} is not installed; install it with\n      {}",
            self.install()
        ))
    }

    /// Returns the command that installs it. Optimizing it would take longer than its run.
    fn install(self) -> String {
        let package = self.package_and_version();
        format!("CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --locked --force {package}")
    }
}
