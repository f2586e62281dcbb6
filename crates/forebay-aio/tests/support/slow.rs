//! Syncs that threads share, on a file whose flushes take long enough that threads wait.

use super::{OTHER, compile, library, play, skip};
use forebay_slowfs::SlowFile;
use std::path::Path;
use std::time::Duration;

/// The threads of `closing.c`: one that syncs at once, and those that wait.
const NR_WAITING: u64 = 3;

/// Runs `closing.c` on the system's libc and on this library, and `prepare` before each run. The
/// second argument of the program says what it does while threads wait. Returns the outputs, and
/// the flushes of each run. `None` if the test cannot run here.
fn closing(
    test: &str,
    means: &str,
    prepare: impl Fn(&SlowFile),
) -> Option<[(Vec<String>, u64); 2]> {
    if std::env::var_os(OTHER).is_some() {
        skip::skip_always(test, "a replacement of libaio does not replace fsync");
        return None;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = compile("closing", folder.path())?;
    let run = |preload: &Path| {
        let file = SlowFile::mount(1 << 20, Duration::from_millis(200));
        let skip = match Path::new("/dev/fuse").exists() {
            true => skip::skip,
            false => skip::skip_always,
        };
        let file = file.map_err(|why| skip(test, &why)).ok()?;
        prepare(&file);
        let played = play(&program, file.path(), &[means], preload);
        let (output, _) = played.unwrap_or_else(|error| panic!("{error}"));
        Some((output.lines().map(str::to_owned).collect(), file.nr_flushes()))
    };
    Some([run(Path::new(""))?, run(library())?])
}

#[test]
fn waiting_syncs_reach_a_file_whose_descriptor_was_closed() {
    for means in ["stay", "close", "dup2"] {
        let test = "waiting_syncs_reach_a_file_whose_descriptor_was_closed";
        let Some([(system, plain), (own, joined)]) = closing(test, means, |_| {}) else { return };
        assert_eq!(system, own, "{means}");
        assert!(own.len() == 4 && own.iter().all(|line| line.ends_with(": Success")), "{own:?}");
        assert_eq!((plain, joined), (1 + NR_WAITING, 2), "{means}");
    }
}

#[test]
fn failed_sync_fails_every_thread_that_shares_it() {
    let test = "failed_sync_fails_every_thread_that_shares_it";
    let fail = |file: &SlowFile| file.fail_flush(2, libc::EIO);
    let Some([(system, _), (own, joined)]) = closing(test, "stay", fail) else { return };
    let nr_failed = |lines: &[String]| {
        lines.iter().filter(|line| line.ends_with(": Input/output error")).count() as u64
    };
    assert_eq!((nr_failed(&system), nr_failed(&own), joined), (1, NR_WAITING, 2));
    assert!(own[0].ends_with(": Success"), "{own:?}");
}
