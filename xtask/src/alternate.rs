//! `cargo xtask deny-or-semver`: the two gates that need a program from the registry, one in each
//! CI run. The hash of the commit selects it, because building both programs takes minutes.

use crate::tools::CargoTool;
use crate::{Outcome, commit, deny, semver};

/// Runs the gate of this commit. Without its program it is skipped by name, unless tools are
/// required.
pub(crate) fn run() -> Outcome {
    let (tool, gate, other) = selected()?;
    println!(
        "deny-or-semver: the commit selects cargo-{}, not cargo-{}",
        tool.command, other.command
    );
    if tool.is_missing_and_optional("deny-or-semver") { Ok(()) } else { gate() }
}

/// Prints the package and version that the gate of this commit needs, or nothing if it is
/// installed. For `.ci/run`.
pub(crate) fn print_missing() -> Outcome {
    let (tool, ..) = selected()?;
    if !tool.is_installed() {
        println!("{}", tool.package_and_version());
    }
    Ok(())
}

type Selected = (CargoTool, fn() -> Outcome, CargoTool);

fn selected() -> Result<Selected, String> {
    let number = commit::number().map_err(|why| {
        format!("deny-or-semver: {why}; `cargo xtask deny` and `cargo xtask semver` need no commit")
    })?;
    Ok(select(number))
}

fn select(number: u32) -> Selected {
    match number % 2 {
        0 => (deny::TOOL, deny::run, semver::TOOL),
        _ => (semver::TOOL, semver::run, deny::TOOL),
    }
}

#[cfg(test)]
mod tests {
    use super::select;

    #[test]
    fn commits_with_even_numbers_select_deny() {
        assert_eq!(
            [0, 1, 2].map(|number| select(number).0.command),
            ["deny", "semver-checks", "deny"]
        );
    }
}
