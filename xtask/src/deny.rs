//! `cargo xtask deny`: checks licences, bans and sources of dependencies by the rules of
//! `deny.toml`.

use crate::Outcome;
use crate::command::Line;

/// Installs with opt-level 0: the tool runs for a second, so the build time dominates.
const INSTALL: &str = "CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --locked cargo-deny@0.20.2";

pub(crate) fn run() -> Outcome {
    if !Line::cargo("deny --version").succeeds() {
        println!("deny: SKIPPED, cargo-deny is not installed; CI has it; install it with");
        println!("      {INSTALL}");
        return Ok(());
    }
    Line::cargo("deny --all-features --log-level warn check licenses bans sources").run()?;
    println!("deny: advisories SKIPPED, they need a database from the network that changes daily;");
    println!("      run them with `cargo deny check advisories`");
    Ok(())
}
