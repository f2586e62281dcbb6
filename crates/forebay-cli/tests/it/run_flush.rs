//! Flushes of programs under `forebay run`, on a file that counts them and makes some fail.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use forebay_slowfs::SlowFile;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{folder, skip, skip_unless_required, skip_without, stderr, stdout};
use crate::run::run;

/// Mounts a file of 1 MiB, or skips the test.
pub(crate) fn slow_file(test: &str, flush: Duration) -> Option<SlowFile> {
    let skip = match Path::new("/dev/fuse").exists() {
        true => skip_unless_required,
        false => skip,
    };
    SlowFile::mount(1 << 20, flush).map_err(|reason| skip(test, &reason)).ok()
}

/// Returns whether fio is installed. Otherwise skips the test.
fn has_fio(test: &str) -> bool {
    let is_installed = Command::new("fio").arg("--version").output().is_ok();
    if !is_installed {
        skip_without("fio", test);
    }
    is_installed
}

/// Runs fio on the file: 256 writes, with a flush after each eighth. It verifies its data.
fn fio(mut command: Command, file: &SlowFile, folder: &TempDir) -> Output {
    let path = file.path().to_str().expect("a path in /proc");
    let options = "--name=a --size=1m --rw=randwrite --bs=4k --ioengine=libaio --direct=1 \
                   --iodepth=8 --fsync=8 --verify=crc32c --thread";
    let command = command.args(options.split_whitespace()).args(["--filename", path]);
    command.current_dir(folder.path()).output().expect("it can be run")
}

fn under_run(folder: &TempDir) -> Command {
    run(folder, "-- timeout -s KILL 60 fio")
}

#[test]
fn flushes_of_one_thread_all_reach_the_file_system() {
    let test = "flushes_of_one_thread_all_reach_the_file_system";
    let folder = folder();
    let counts = [under_run(&folder), Command::new("fio")].map(|command| {
        let file = has_fio(test).then(|| slow_file(test, Duration::from_micros(100)))??;
        let output = fio(command, &file, &folder);
        assert!(output.status.success(), "{}", stderr(&output));
        Some(file.nr_flushes())
    });
    let [Some(on_layer), Some(plain)] = counts else { return };
    assert!(plain >= 31, "{plain}");
    assert_eq!(on_layer, plain);
}

#[test]
fn error_of_a_flush_reaches_the_program() {
    let test = "error_of_a_flush_reaches_the_program";
    let folder = folder();
    if !has_fio(test) {
        return;
    }
    let Some(file) = slow_file(test, Duration::ZERO) else { return };
    file.fail_flush(3, Errno::IO.raw_os_error());
    let output = fio(under_run(&folder), &file, &folder);
    let text = stdout(&output) + &stderr(&output);
    assert!(!output.status.success() && text.contains("Input/output error"), "{text}");
    assert_eq!(file.nr_flushes(), 3);
}
