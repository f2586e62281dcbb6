//! `cargo xtask deny`: checks licences, bans and sources of dependencies by the rules of
//! `deny.toml`.

use crate::Outcome;
use crate::command::Line;
use crate::tools::CargoTool;

pub(crate) const TOOL: CargoTool = CargoTool { command: "deny", version: "0.20.2" };

pub(crate) fn run() -> Outcome {
    TOOL.require("deny")?;
    Line::cargo("deny --all-features --log-level warn check licenses bans sources").run()?;
    println!("deny: advisories SKIPPED, they need a database from the network that changes daily;");
    println!("      run them with `cargo deny check advisories`");
    Ok(())
}
