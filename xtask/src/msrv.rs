//! `cargo xtask long msrv`: the oldest supported Rust compiles the workspace and its tests.

use std::fs;

use crate::Outcome;
use crate::command::{Line, root};

/// Checks the workspace with the version that the field `rust-version` names. Needs rustup, which
/// installs that version.
pub(crate) fn run() -> Outcome {
    let manifest = fs::read_to_string(root().join("Cargo.toml"));
    let manifest = manifest.map_err(|error| format!("msrv: Cargo.toml: {error}"))?;
    let oldest = oldest(&manifest).ok_or("msrv: Cargo.toml has no rust-version")?;
    let toolchain = format!("{oldest}.0");
    Line::new("rustup", "toolchain install --profile minimal").argument(toolchain.clone()).run()?;
    let check = Line::new("rustup", "run").argument(toolchain);
    let check = check.arguments("cargo check --workspace --all-targets --all-features --locked");
    println!("msrv: {check}");
    check.run()
}

/// Returns the value of `rust-version`.
fn oldest(manifest: &str) -> Option<&str> {
    let value = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    value?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::oldest;

    #[test]
    fn oldest_rust_is_the_value_of_its_field() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.89\"\n";
        assert_eq!(oldest(manifest), Some("1.89"));
        assert_eq!(oldest("edition = \"2024\"\n"), None);
    }
}
