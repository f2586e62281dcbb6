//! `cargo xtask publish`: the crates can be published, in the order of their dependencies.
//!
//! Nothing is uploaded. The gate packs the crates and checks their manifests. `--verify` also
//! builds each one from its package, which takes minutes.

use crate::Outcome;
use crate::command::Line;

/// Packs all crates. A warning about a missing field of a manifest is an error.
pub(crate) fn run() -> Outcome {
    dry_run("--no-verify")
}

/// Packs all crates, and builds each one from its package.
pub(crate) fn verify() -> Outcome {
    dry_run("")
}

fn dry_run(option: &str) -> Outcome {
    let line = "publish --workspace --dry-run --locked --allow-dirty";
    let line = Line::cargo(&format!("{line} {option}"));
    println!("publish: {line}");
    let messages = line.errors()?;
    let names: Vec<&str> = packed(&messages).collect();
    println!("publish: {} crates can be published: {}", names.len(), names.join(", "));
    match messages.lines().find(|line| line.contains("manifest has no")) {
        Some(warning) => Err(format!("publish: {warning}")),
        None if names.is_empty() => Err(format!("publish: no crate was packed:\n{messages}")),
        None => Ok(()),
    }
}

/// Returns the names of the packed crates, from cargo's messages.
fn packed(messages: &str) -> impl Iterator<Item = &str> {
    let packaging = messages.lines().filter_map(|line| line.trim().strip_prefix("Packaging "));
    packaging.filter_map(|rest| rest.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::packed;

    #[test]
    fn names_of_packed_crates_are_found() {
        let messages = "   Packaging a-b v0.1.0 (/x)\nwarning: c\n    Packaged 3 files\n";
        assert_eq!(packed(messages).collect::<Vec<_>>(), ["a-b"]);
    }
}
