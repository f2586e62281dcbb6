//! Random scenarios (`--random`), one for each seed.

use forebay_sim::{Options, run_seed};
use serde_json::json;

use super::seeds::Seeds;
use super::total::Total;
use super::{Args, settings};
use crate::failure::Failure;
use crate::fio_report::VERSION;
use crate::output;

/// Returns the settings of the scenarios that the arguments select.
///
/// # Errors
/// The arguments select none, or the wake policy is unknown.
pub(super) fn options(args: &Args) -> Result<Options, Failure> {
    if !args.random {
        let what =
            "nothing to simulate: give a fio job file, a scenario, --trace, --random or --nbd";
        return Err(Failure::Usage(String::from(what)));
    }
    let wake = args
        .wake
        .as_deref()
        .map(|name| settings::wake_policy(name).map_err(|error| format!("--wake={name}: {error}")));
    Ok(Options {
        wake: wake.transpose().map_err(Failure::Usage)?,
        queue_depth: args.queue_depth.map(|depth| depth as u32),
        ..Options::default()
    })
}

/// Runs a scenario for each seed, and prints the sums.
pub(super) fn main(args: &Args, options: &Options, seeds: Seeds) -> Result<(), Failure> {
    let mut total = Total::new(seeds);
    let outcome = seeds.for_each(
        args,
        |seed| Ok(run_seed(seed, options)),
        |summary| {
            total.add(&summary);
            Ok(())
        },
    );
    total.clear_line();
    outcome?;
    let replay = seeds.replay(args);
    output::stdout(&match args.json {
        true => format!("{:#}\n", json!({ "version": VERSION, "forebay": [total.json(&replay)] })),
        false => total.report("", &replay),
    })
}
