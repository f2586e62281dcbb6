//! Data integrity through every driver: reads return what was written, across merges, splits and
//! short counts.

use crate::common::{LoopDevice, Numbers, Scratch, ZramDevice, feature, open, reap_all, submit};
use crate::skip::skip;
use forebay::{Buf, Disk, FeatureState, Io};

const LEN: u64 = 4 << 20;
const UNIT: u64 = 4096;

/// One operation of a script, on a range that no other operation of its batch touches.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u64,
    start: u64,
    len: u64,
    stamp: u8,
}

/// Generates batches of operations on disjoint ranges, many of them adjacent.
fn script(seed: u64, nr_batches: usize) -> Vec<Vec<Step>> {
    let mut numbers = Numbers(seed);
    let batch = |numbers: &mut Numbers| {
        let (mut at, mut steps) = (numbers.below(64) * UNIT, Vec::new());
        while steps.len() < 40 {
            let longest = if numbers.below(8) == 0 { 64 } else { 4 };
            let len = (1 + numbers.below(longest)) * UNIT;
            at += if numbers.below(4) == 0 { numbers.below(8) * UNIT } else { 0 };
            if at + len > LEN {
                break;
            }
            let stamp = numbers.next() as u8;
            steps.push(Step { kind: numbers.below(16), start: at, len, stamp });
            at += len;
        }
        // Adjacent ranges merge at the front and at the back.
        if numbers.below(2) == 0 {
            steps.reverse();
        }
        steps
    };
    (0..nr_batches).map(|_| batch(&mut numbers)).collect()
}

/// Runs a script on a disk and on plain memory, and compares the results of all reads.
fn check(disk: &Disk, script: &[Vec<Step>]) {
    let mut model = vec![0u8; LEN as usize];
    disk.write_zeroes(0, LEN).expect("zeroes to begin with");
    let mut queue = disk.queue();
    for batch in script {
        let plug = forebay::plug();
        for (nth, step) in batch.iter().enumerate() {
            let nth = nth as u64;
            let buf = || Buf::new(step.len as usize);
            let io = match step.kind {
                0..7 => Io::read(buf(), step.start),
                7 => Io::write_zeroes(step.start, step.len),
                8 => Io::discard(step.start, step.len),
                kind => {
                    let mut buf = buf();
                    fill(&mut buf, step);
                    let io = Io::write(buf, step.start);
                    if kind == 9 { io.fua() } else { io }
                }
            };
            submit(&mut queue, io.user_data(nth));
        }
        drop(plug);
        for completion in reap_all(&mut queue) {
            let step = &batch[completion.user_data as usize];
            assert_eq!(completion.result, Ok(step.len), "{step:?}");
            let range = step.start as usize..(step.start + step.len) as usize;
            match step.kind {
                0..7 => {
                    let read = completion.buf.expect("a read has its buffer");
                    assert!(model[range] == *read, "{step:?} of {}", disk.info().spec);
                }
                // A device may leave any data after a discard; these drivers all leave zeroes.
                7 | 8 => model[range].fill(0),
                _ => fill(&mut model[range], step),
            }
        }
    }
    let mut image = Buf::new(LEN as usize);
    assert_eq!(disk.read_at(&mut image, 0), Ok(LEN as usize));
    assert!(*image == *model, "the whole of {}", disk.info().spec);
}

/// Fills `bytes` with a pattern in which every 8 bytes differ.
fn fill(bytes: &mut [u8], step: &Step) {
    for (nth, word) in bytes.chunks_mut(8).enumerate() {
        let value = (step.start + nth as u64 * 8) ^ (u64::from(step.stamp) << 56);
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

/// Every policy that affects how bios become requests.
const POLICIES: [&str; 6] = [
    "nomerges=0",
    "nomerges=1&max_sectors_kb=64",
    "nomerges=2&queue_depth=1",
    "plug=per-level&queue_depth=3",
    "plug=none",
    "max_sectors_kb=4&queue_depth=7&fua=off",
];

fn check_all_policies(spec: impl Fn(&str) -> String) {
    for (nth, policy) in POLICIES.iter().enumerate() {
        check(&open(&spec(policy)), &script(7 + nth as u64 % 2, 12));
    }
}

/// The drivers that use files.
const FILES: [&str; 3] = ["file", "aio", "psync"];

#[test]
fn ram() {
    check_all_policies(|policy| format!("ram:4M?{policy}"));
    check_all_policies(|policy| format!("ram:4M?{policy}&req_ns=500&io_ns=100"));
}

#[test]
fn file() {
    check_file("file");
}

#[test]
fn aio() {
    check_file("aio");
}

#[test]
fn psync() {
    check_file("psync");
}

fn check_file(driver: &str) {
    let scratch = Scratch::new(LEN);
    for direct in ["off", "on"] {
        check_all_policies(|policy| {
            format!("{driver}:{}", scratch.spec(&format!("direct={direct}&{policy}")))
        });
    }
}

#[test]
fn short_counts_and_a_busy_device_change_nothing() {
    let scratch = Scratch::new(LEN);
    let rules = "rule=read:short=4k:nth=3&rule=write:short=1k:rate=0.2&rule=any:busy:nth=7";
    check_all_policies(|policy| format!("fault:ram:4M?{policy}&{rules}"));
    let rules = "rule=read+write:short=8k:rate=0.3";
    check_all_policies(|policy| {
        format!("fault:{}?direct=on&{policy}&{rules}", scratch.path.display())
    });
    check_all_policies(|policy| format!("fault:{}?{policy}&{rules}", scratch.path.display()));
}

#[test]
fn a_short_count_is_exact_in_the_page_cache_and_a_lower_bound_beside_it() {
    let scratch = Scratch::new(LEN);
    for driver in FILES {
        for (direct, exact_counts) in [("off", true), ("on", false)] {
            let disk = open(&format!("{driver}:{}", scratch.spec(&format!("direct={direct}"))));
            assert_eq!(disk.limits().exact_counts, exact_counts, "{driver}, direct={direct}");
        }
    }
}

#[test]
fn zeroes_behind_the_end_make_a_growing_file_grow() {
    for driver in FILES {
        let scratch = Scratch::new(10_000);
        let disk = open(&format!("{driver}:{}", scratch.spec("capacity=growing")));
        disk.write_at(&[7; 10_000], 0).expect("a file of sevens");
        let len = || std::fs::metadata(&scratch.path).expect("it is there").len();
        disk.write_zeroes(8192, 8192).unwrap_or_else(|error| panic!("{driver}: {error}"));
        assert_eq!(len(), 16384, "{driver}");
    }
}

#[test]
fn a_file_system_that_zeroes_no_ranges_gets_holes() {
    // tmpfs can punch holes, but not zero ranges.
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        let test = "a_file_system_that_zeroes_no_ranges_gets_holes";
        return skip(test, "there is no tmpfs at /dev/shm");
    };
    let path = folder.path().join("disk.img");
    let cases =
        [("capacity=growing", 8192, 16384), ("capacity=growing", 4096, 12288), ("", 4096, 12288)];
    for (driver, (keys, start, len_after)) in FILES.iter().flat_map(|d| cases.map(|c| (d, c))) {
        std::fs::write(&path, [7; 12288]).expect("a file of sevens");
        let disk = open(&format!("{driver}:{}?{keys}", path.display()));
        disk.write_zeroes(start, 8192).expect("zeroes");
        let bytes = std::fs::read(&path).expect("the file");
        let start = start as usize;
        assert_eq!(bytes.len(), len_after, "{keys}");
        assert!(bytes[..start].iter().all(|byte| *byte == 7), "{keys}");
        assert!(bytes[start..].iter().all(|byte| *byte == 0), "{keys}");
    }
}

#[test]
fn opening_a_disk_changes_nothing_on_it() {
    let scratch = Scratch::new(10_000);
    let before = std::fs::metadata(&scratch.path).expect("it is there");
    drop(open(&scratch.spec("")));
    let after = std::fs::metadata(&scratch.path).expect("it is there");
    let key = |metadata: &std::fs::Metadata| (metadata.modified().ok(), metadata.len());
    assert_eq!(key(&before), key(&after));
}

#[test]
fn block_device() {
    let Some(device) = LoopDevice::or_skip("block_device", LEN) else { return };
    for direct in ["off", "on"] {
        check_all_policies(|policy| format!("{}?direct={direct}&{policy}", device.node));
    }
    let info = open(&format!("{}?direct=on", device.node)).info().clone();
    assert_eq!((info.limits.capacity_bytes, info.limits.logical_block_size), (Some(LEN), 512));
}

#[test]
fn device_that_must_wait_to_discard_discards_with_each_engine() {
    let test = "device_that_must_wait_to_discard_discards_with_each_engine";
    let Some(device) = ZramDevice::new(test, LEN) else { return };
    for engine in ["io_uring", "aio", "psync"] {
        let disk = open(&format!("{}?engine={engine}&direct=on", device.node));
        let state = feature(disk.info(), "discard");
        assert!(matches!(state, FeatureState::Present(how) if how.starts_with("BLKDISCARD")));
        let mut back = Buf::new(LEN as usize);
        back.fill(9);
        assert_eq!(disk.write_at(&back, 0), Ok(LEN as usize));
        // Two discards through the shared context, and two through a queue of this thread.
        let step = LEN / 8;
        for nth in 0..2 {
            disk.discard(nth * step, step).unwrap_or_else(|error| panic!("{engine}: {error}"));
        }
        let mut queue = disk.queue();
        for nth in 2..4 {
            submit(&mut queue, Io::discard(nth * step, step));
            assert_eq!(reap_all(&mut queue)[0].result, Ok(step), "{engine}");
        }
        assert_eq!(disk.read_at(&mut back, 0), Ok(LEN as usize));
        let expected: Vec<u8> = (0..LEN).map(|at| if at < LEN / 2 { 0 } else { 9 }).collect();
        assert!(back[..] == expected, "{engine}");
    }
}

#[test]
fn discard_reaches_a_block_device() {
    use std::os::unix::fs::MetadataExt;
    let test = "discard_reaches_a_block_device";
    let Some(device) = LoopDevice::or_skip(test, LEN) else { return };
    let nr_blocks = || device.scratch.path.metadata().expect("the file").blocks();
    for driver in ["file", "aio", "psync"] {
        for direct in ["off", "on"] {
            let disk = open(&format!("{driver}:{}?direct={direct}", device.node));
            let state = feature(disk.info(), "discard");
            let FeatureState::Present(how) = state else { panic!("{state:?}") };
            let is_discard = how.starts_with("BLKDISCARD");
            assert!(is_discard || driver == "file", "{driver}: {how}");
            let mut back = Buf::new(LEN as usize);
            back.fill(9);
            assert_eq!(disk.write_at(&back, 0), Ok(LEN as usize));
            disk.flush().expect("a flush");
            let before = nr_blocks();
            disk.discard(0, LEN / 2).expect("a discard");
            disk.flush().expect("a flush");
            assert_eq!(nr_blocks(), before - LEN / 2 / 512, "{driver}: space was given back");
            assert_eq!(disk.read_at(&mut back, 0), Ok(LEN as usize));
            let expected: Vec<u8> = (0..LEN).map(|at| if at < LEN / 2 { 0 } else { 9 }).collect();
            assert!(back[..] == expected, "{driver}, direct={direct}");
        }
    }
}
