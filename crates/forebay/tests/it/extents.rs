//! Block status: the reported extents, compared with the bytes of the file.

use crate::common::{Numbers, Scratch, feature, open};
use forebay::{Disk, Extent, ExtentKind};

const LEN: u64 = 8 << 20;
const UNIT: u64 = 64 << 10;

/// Returns the extents of a range.
fn extents_of(disk: &Disk, offset: u64, len: u64, max: usize) -> Vec<Extent> {
    // The call replaces these stale entries.
    let mut extents = vec![Extent { len: 1, kind: ExtentKind::Zero }; 3];
    disk.block_status(offset, len, max, &mut extents).expect("block status");
    extents
}

fn data(len: u64) -> [Extent; 1] {
    [Extent { len, kind: ExtentKind::Data }]
}

/// Checks the extents of a range against its bytes: there are no gaps, adjacent extents differ in
/// kind, and every extent reported as zero reads as zero. Returns the number of bytes covered.
fn check(disk: &Disk, bytes: &[u8], offset: u64, len: u64, max: usize) -> u64 {
    let extents = extents_of(disk, offset, len, max);
    assert!(extents.len() <= max);
    let mut at = offset;
    for (nth, extent) in extents.iter().enumerate() {
        assert!(extent.len > 0);
        assert!(nth == 0 || extents[nth - 1].kind != extent.kind, "neighbours are one");
        let part = &bytes[at as usize..(at + extent.len) as usize];
        assert!(extent.kind == ExtentKind::Data || part.iter().all(|&byte| byte == 0), "{at}");
        at += extent.len;
    }
    assert!(at - offset <= len, "never longer than asked");
    at - offset
}

#[test]
fn reported_extents_of_a_sparse_file_match_its_bytes() {
    for driver in ["", "aio:", "psync:", "fault:", "fault:psync:"] {
        let scratch = Scratch::new(LEN);
        let disk = open(&format!("{driver}{}", scratch.spec("")));
        let mut numbers = Numbers(7);
        // Writes about every other unit.
        for unit in (0..LEN / UNIT).filter(|_| numbers.below(2) == 0) {
            disk.write_at(&[0xA5; UNIT as usize], unit * UNIT).expect("a write");
        }
        disk.flush().expect("a flush");
        let bytes = std::fs::read(&scratch.path).expect("the file");
        let nr_all = extents_of(&disk, 0, LEN, usize::MAX).len();
        // A file system without holes reports all as data, which is also correct.
        assert!(nr_all > 20 || extents_of(&disk, 0, LEN, 9) == data(LEN), "{nr_all} extents");
        assert_eq!(check(&disk, &bytes, 0, LEN, usize::MAX), LEN);
        for _ in 0..60 {
            let offset = numbers.below(LEN);
            let len = 1 + numbers.below(LEN - offset);
            assert_eq!(check(&disk, &bytes, offset, len, usize::MAX), len);
            let (max, most) = (1 + numbers.below(4) as usize, nr_all);
            let covered = check(&disk, &bytes, offset, len, max);
            assert!(covered == len || extents_of(&disk, offset, len, most).len() > max);
            assert!(covered > 0, "a caller that continues from there makes progress");
        }
    }
}

#[test]
fn ranges_end_where_the_disk_ends() {
    let scratch = Scratch::new(LEN);
    for spec in [scratch.spec(""), scratch.spec("capacity=growing"), String::from("null:8M")] {
        let disk = open(&spec);
        let sum = |offset, len| -> u64 {
            extents_of(&disk, offset, len, 100).iter().map(|extent| extent.len).sum()
        };
        assert_eq!(sum(LEN - 10, 10), 10, "{spec}");
        assert!(extents_of(&disk, 0, LEN, 0).is_empty());
        assert!(extents_of(&disk, 5, 0, 100).is_empty());
        if disk.capacity_bytes().is_some() {
            assert_eq!(sum(LEN - 10, 4096), 10, "{spec}");
            assert_eq!(sum(0, u64::MAX), LEN, "{spec}");
            assert!(extents_of(&disk, LEN, 1, 100).is_empty());
            assert!(extents_of(&disk, u64::MAX, u64::MAX, 100).is_empty());
        } else {
            assert_eq!(sum(u64::MAX - 5, u64::MAX), 5, "it has no end");
        }
    }
}

#[test]
fn no_sector_is_expected_beyond_the_end_of_a_growing_file() {
    let scratch = Scratch::new(0);
    let disk = open(&scratch.spec("capacity=growing"));
    assert_eq!(extents_of(&disk, 0, 4096, 10), data(4096));
    disk.write_at(&[1; 4096], 0).expect("it grows");
    assert_eq!(extents_of(&disk, 0, 8192, 10), data(8192));
}

#[test]
fn extents_of_memory_are_reported() {
    for spec in ["ram:8M", "null:8M", "model:hdd?size=8M&data=off"] {
        assert_eq!(extents_of(&open(spec), 0, LEN, 10), data(LEN), "{spec}");
    }
    let disk = open("model:nvme?size=1G");
    let hole = |len| Extent { len, kind: ExtentKind::Hole };
    assert_eq!(extents_of(&disk, 0, 1 << 30, 10), [hole(1 << 30)]);
    disk.write_at(&[1; 4096], 5 << 20).expect("a write");
    let all = [hole(4 << 20), data(2 << 20)[0], hole((1 << 30) - (6 << 20))];
    assert_eq!(extents_of(&disk, 0, 1 << 30, 10), all);
    assert_eq!(extents_of(&disk, 5 << 20, 512, 10), data(512));
}

#[test]
fn to_ask_moves_nothing_that_reads_or_writes_rely_on() {
    for driver in ["", "aio:", "psync:"] {
        let scratch = Scratch::new(LEN);
        let disk = open(&format!("{driver}{}", scratch.spec("nr_hw_queues=1")));
        assert!(matches!(feature(disk.info(), "flush"), forebay::FeatureState::Present(_)));
        let mut buf = [0; 4096];
        for unit in 0..64 {
            disk.write_at(&[unit as u8; 4096], unit * UNIT).expect("a write");
            extents_of(&disk, unit * 4096, LEN, 100);
            disk.read_at(&mut buf, unit * UNIT).expect("a read");
            assert_eq!(buf, [unit as u8; 4096], "{driver}");
        }
    }
}

#[test]
fn device_that_is_gone_reports_no_extents() {
    let disk = open("fault:ram:1M?rule=read:offline");
    let _ = disk.read_at(&mut [0; 512], 0);
    assert!(disk.is_failed(), "this rule fails it");
    let mut extents = Vec::new();
    let refused = disk.block_status(0, 512, 1, &mut extents);
    assert_eq!(refused, Err(forebay::BlockStatus::Offline.into()));
}
