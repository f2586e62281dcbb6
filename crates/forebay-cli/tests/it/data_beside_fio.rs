//! The data of writes beside those of fio, if it is installed: as many different blocks, and files
//! that compress as well.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::common::{self, bench, folder, skip_without, stderr};

const BLOCK: usize = 4096;

/// Returns the different blocks of a file.
fn unique(path: &Path) -> HashSet<Vec<u8>> {
    let bytes = std::fs::read(path).expect("a file");
    bytes.chunks(BLOCK).map(<[u8]>::to_vec).collect()
}

/// Returns the length to which gzip compresses a file, in percent of its own; `None` if gzip is not
/// installed.
fn compressed(path: &Path) -> Option<f64> {
    let gzip = Command::new("gzip").args(["-1", "-c"]).arg(path).stderr(Stdio::null()).output();
    let whole = std::fs::metadata(path).expect("a file").len();
    Some(100.0 * gzip.ok()?.stdout.len() as f64 / whole as f64)
}

/// Runs the arguments with both programs in folders of their own, and passes these to `check`.
fn beside_fio(test: &str, args: &str, check: impl FnOnce([&Path; 2])) {
    let (theirs, ours) = (folder(), folder());
    let Some(_) = common::fio(test, &theirs, args) else { return };
    let run = bench(&ours, args);
    assert_eq!(run.status.code(), Some(0), "{args}: {}", stderr(&run));
    check([theirs.path(), ours.path()]);
}

#[test]
fn duplicates_and_compressibility_are_those_of_fio() {
    let test = "duplicates_and_compressibility_are_those_of_fio";
    let options = [
        "",
        "--refill_buffers",
        "--scramble_buffers=0",
        "--scramble_buffers=0 --iodepth=8 --ioengine=libaio",
        "--zero_buffers",
        "--buffer_pattern=0x12345678",
        "--buffer_compress_percentage=0",
        "--buffer_compress_percentage=30 --bs=16k",
        "--buffer_compress_percentage=80 --buffer_compress_chunk=0",
        "--buffer_compress_percentage=100",
        "--buffer_compress_percentage=50 --buffer_pattern=\"abc\"",
        "--dedupe_percentage=70",
        "--dedupe_percentage=100",
        "--dedupe_percentage=50 --buffer_compress_percentage=50",
        "--dedupe_percentage=60 --dedupe_mode=working_set",
        "--dedupe_percentage=60 --dedupe_mode=working_set --dedupe_working_set_percentage=40",
    ];
    thread::scope(|scope| {
        for options in options {
            scope.spawn(move || {
                let args = format!("--name=a --filename=x --rw=write --bs=4k --size=4m {options}");
                beside_fio(test, &args, |folders| {
                    let [theirs, ours] = folders.map(|folder| folder.join("x"));
                    let nr = [&theirs, &ours].map(|path| unique(path).len());
                    // 1,024 blocks: the standard deviation of their number is 16.
                    assert!(nr[0].abs_diff(nr[1]) <= 110, "{options}: {nr:?}");
                    assert_eq!(nr[0] == 1, nr[1] == 1, "{options}: {nr:?}");
                    let (Some(theirs), Some(ours)) = (compressed(&theirs), compressed(&ours))
                    else {
                        return skip_without("gzip", test);
                    };
                    // gzip sees 32 KiB, so it finds the duplicates of few working sets.
                    let margin = if options.contains("dedupe") { 7.0 } else { 3.0 };
                    assert!((theirs - ours).abs() <= margin, "{options}: fio {theirs}, {ours}");
                });
            });
        }
    });
}

#[test]
fn jobs_share_the_duplicates_of_a_global_working_set() {
    let args = "--ioengine=libaio --iodepth=16 --size=8m --bs=4k --rw=write --dedupe_global=1 \
                --dedupe_mode=working_set --dedupe_working_set_percentage=50 \
                --dedupe_percentage=50 --name=a --name=b";
    beside_fio("jobs_share_the_duplicates_of_a_global_working_set", args, |folders| {
        let nr_blocks = folders.map(|folder| {
            let [a, b] = ["a.0.0", "b.0.0"].map(|name| unique(&folder.join(name)));
            [a.len(), b.len(), a.intersection(&b).count()]
        });
        for (theirs, ours) in nr_blocks[0].into_iter().zip(nr_blocks[1]) {
            // 2,048 blocks in each file.
            assert!(theirs.abs_diff(ours) <= 160, "{nr_blocks:?}");
        }
        assert!(nr_blocks[1][2] > 400, "{nr_blocks:?}");
    });
}
