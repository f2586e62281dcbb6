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
    Ok(select(number, semver::has_history()))
}

/// Without the history there is nothing to compare the API with.
fn select(number: u32, has_history: bool) -> Selected {
    if number.is_multiple_of(2) || !has_history {
        (deny::TOOL, deny::run, semver::TOOL)
    } else {
        (semver::TOOL, semver::run, deny::TOOL)
    }
}

#[cfg(test)]
mod tests {
    use super::select;

    #[test]
    fn commits_with_odd_numbers_and_a_history_select_semver() {
        let selected = |number, has_history| select(number, has_history).0.command;
        assert_eq!([0, 1, 2].map(|nr| selected(nr, true)), ["deny", "semver-checks", "deny"]);
        assert_eq!(selected(1, false), "deny");
    }
}
