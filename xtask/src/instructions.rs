//! `cargo xtask instructions`: instruction counts under callgrind, which do not depend on what else
//! the machine does, as regression gates.

use crate::Outcome;
use crate::command::Line;
use std::process::Command;

/// How much more an I/O may cost with the token of its hardware context, which it takes twice, than
/// without. At 15 ns an I/O, the aim, a processor of 3 GHz has 45 cycles; each time the token costs
/// two locked instructions of about 20 cycles, which overlap with what surrounds them.
const TOKEN_MAX: f64 = 60.0;

pub(crate) fn run() -> Outcome {
    if Command::new("valgrind").arg("--version").output().is_err() {
        if std::env::var_os("FOREBAY_REQUIRE_TOOLS").is_some() {
            return Err("valgrind is missing: apt-get install valgrind".to_owned());
        }
        println!("instructions: skipped: there is no valgrind; install it to count");
        return Ok(());
    }
    Line::cargo("build --release --package forebay-core --example token").run()?;
    let [without, with] = [per_io("without")?, per_io("with")?];
    let token = with - without;
    println!("instructions: {without:.0} an I/O in the core, {token:.0} more for the token");
    if token > TOKEN_MAX {
        return Err(format!("the token costs {token:.0} instructions an I/O, over {TOKEN_MAX:.0}"));
    }
    Ok(())
}

/// The instructions of one I/O: what more of them cost.
fn per_io(which: &str) -> Result<f64, String> {
    let [few, many] = [10_000, 110_000].map(|nr| counted(which, nr));
    Ok((many? - few?) / 100_000.0)
}

/// The instructions of a run.
fn counted(which: &str, nr: u64) -> Result<f64, String> {
    let program = crate::command::target("release/examples/token");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([which, &nr.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
    count.ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}
