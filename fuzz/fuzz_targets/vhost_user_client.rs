//! Fuzzes the driver `vhost-user` against any server: its configuration, and its writes to a ring.
//! Limits of an accepted configuration are valid. Each request ends once, and only a read that
//! succeeds changes memory of its caller.
//!
//! The first byte of an input chooses between the two. The functions are in the driver
//! (`fuzzed.rs`), and only builds with `--cfg fuzzing` have them.

#![no_main]

use forebay::fuzzing::{accepts_config, play_ring};
use forebay_fuzz::{Feature, reach, start};
use libfuzzer_sys::fuzz_target;

/// Why a device is given up: a part of the reason. Its index is the feature.
const REASONS: [&str; 4] = ["the used index is", "it has used descriptor", "bytes for a", "status"];

const WANTED: &[Feature] = &[
    ("config", 0),
    ("config", 1),
    ("ok", 0),
    ("ok", 1),
    ("ok", 2),
    ("ok", 3),
    ("failed", 0),
    ("given-up", 0),
    ("given-up", 1),
    ("given-up", 2),
    ("given-up", 3),
];

/// Returns inputs that reach the features.
fn seeds() -> Vec<Vec<u8>> {
    // VERSION_1 and the features of a disk, a capacity of 2048 sectors, and one queue.
    let mut config = vec![0, 0x46, 0x72, 0, 0, 1, 0, 0, 0];
    config.extend([0, 8, 0, 0, 0, 0, 0, 0]);
    config.extend([0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
    config.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let mut all = vec![config];
    for kind in 0..16 {
        // A read, a write and a flush; a commit; three completions; a wait and a reap.
        let good = [1, kind, 0, 0, 0, 5, 0, 10, 2, 0, 5, 0, 5, 0, 5, 0, 4, 0, 3, 0];
        // Another status, another length, an index of no request, and a used index.
        let with = |step: &[u8]| [&[1, kind, 0, 0, 0, 5, 2, 0], step, &[3, 0]].concat();
        all.push(good.to_vec());
        all.push(with(&[5, 0b1_0001]));
        all.push(with(&[5, 0b1010]));
        all.push(with(&[6, 200, 0, 1]));
        all.push(with(&[7, 1, 0, 9]));
    }
    all
}

fn run(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else { return };
    if choice & 1 == 0 {
        return reach("config", u64::from(accepts_config(rest)));
    }
    let ended = play_ring(rest);
    reach("ok", (ended.nr_ok as u64).min(3));
    if ended.nr_failed > 0 {
        reach("failed", 0);
    }
    if let Some(why) = ended.failure {
        let which = REASONS.iter().position(|reason| why.contains(reason));
        reach("given-up", which.expect("a known reason") as u64);
    }
}

fuzz_target!(init: start(WANTED, &seeds(), ""), |input: &[u8]| run(input));
