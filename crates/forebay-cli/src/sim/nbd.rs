//! `forebay sim --nbd`: NBD clients and a server of their sessions, one scenario for each seed.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_sim::nbd::{NbdOptions, run_nbd_seed};

use super::Args;
use super::seeds::Seeds;
use crate::failure::Failure;
use crate::output;

/// The counters that are printed.
const SHOWN: [&str; 6] = ["Connect", "Reconnect", "Good", "Refused", "Failed", "PowerCutLoses"];

/// Runs the scenario of each seed, and prints the sums.
pub(super) fn main(args: &Args, seeds: Seeds) -> Result<(), Failure> {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut hash = 0_u64;
    let run = |seed| Ok(run_nbd_seed(seed, &NbdOptions::default()));
    seeds.for_each(args, run, |summary| {
        hash = hash.rotate_left(1) ^ summary.hash;
        summary.met.iter().for_each(|(what, nr)| *met.entry(what).or_default() += nr);
        Ok(())
    })?;
    output::stdout(&report(seeds, &met, hash, &seeds.replay(args)))
}

fn report(seeds: Seeds, met: &BTreeMap<&str, u64>, hash: u64, replay: &str) -> String {
    let [connects, reconnects, good, refused, failed, losses] =
        SHOWN.map(|what| met.get(what).copied().unwrap_or(0));
    let mut text = format!("{seeds}: no rule is broken\n");
    // Writing into a String does not fail.
    let _ = writeln!(
        text,
        "  connections  : {}\n  \
           requests     : {good} done, {refused} refused as invalid, {failed} failed\n  \
           power cuts   : {losses} that lost data\n  \
           trace hash   : {hash:016x}\n  \
           replay with  : {replay}",
        connects + reconnects,
    );
    text
}
