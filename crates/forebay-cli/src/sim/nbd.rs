//! `forebay sim --nbd`: NBD clients and a server of their sessions, one scenario for each seed.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_sim::nbd::{NbdOptions, run_nbd_seed};

use crate::failure::Failure;
use crate::output;

/// The counters that are printed.
const SHOWN: [&str; 6] = ["Connect", "Reconnect", "Good", "Refused", "Failed", "PowerCutLoses"];

/// Runs `nr_seeds` seeds from `first` on.
pub(super) fn run(first: u64, nr_seeds: u64) -> Result<(), Failure> {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut hash = 0_u64;
    for nth in 0..nr_seeds {
        let seed = first.wrapping_add(nth);
        let summary = run_nbd_seed(seed, &NbdOptions::default()).map_err(|violation| {
            let replay = format!("replay with: forebay sim --nbd --seed {seed}");
            Failure::Run(format!("{violation}\n{replay}"))
        })?;
        hash = hash.rotate_left(1) ^ summary.hash;
        summary.met.iter().for_each(|(what, nr)| *met.entry(what).or_default() += nr);
    }
    output::stdout(&report(first, nr_seeds, &met, hash))
}

fn report(first: u64, nr_seeds: u64, met: &BTreeMap<&str, u64>, hash: u64) -> String {
    let (which, seeds) = match nr_seeds {
        1 => (format!("seed {first}"), String::new()),
        nr => (format!("{nr} seeds from {first}"), format!(" --seeds {nr}")),
    };
    let [connects, reconnects, good, refused, failed, losses] =
        SHOWN.map(|what| met.get(what).copied().unwrap_or(0));
    let mut text = format!("{which}: no rule is broken\n");
    // Writing into a String does not fail.
    let _ = writeln!(
        text,
        "  connections  : {}\n  \
           requests     : {good} done, {refused} refused as invalid, {failed} failed\n  \
           power cuts   : {losses} that lost data\n  \
           trace hash   : {hash:016x}\n  \
           replay with  : forebay sim --nbd --seed {first}{seeds}",
        connects + reconnects,
    );
    text
}
