//! The calls of libaio, on the system's library and on this one: programs must print the same.

mod support;

use support::{both, compile};

#[test]
fn calls_have_the_results_of_the_system_library() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(program) = compile("calls", folder.path()) else { return };
    let [system, own] = both(&program, folder.path(), &[]);
    let differences: Vec<_> =
        system.lines().zip(own.lines()).filter(|(system, own)| system != own).collect();
    assert_eq!(differences, []);
    assert_eq!(system.lines().count(), own.lines().count());
}

#[test]
fn random_batches_have_the_results_of_the_system_library() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(program) = compile("random", folder.path()) else { return };
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let [system, own] = both(&program, folder.path(), &[seed]);
        assert_eq!(system, own, "seed {seed}");
    }
}
