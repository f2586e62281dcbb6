//! Tests of writes that the driver makes itself. Here every file has them, on any file system.

use super::answers::{Script, scripted};
use crate::Disk;
use crate::buf::Buf;
use crate::driver::Mode;
use crate::driver::file::inline::{Inline, Writes};
use crate::driver::file::uring::UringDriver;
use crate::driver::testing::{DEPTH, data, issue, queue, reap};
use crate::info::FeatureState;
use forebay_core::{Bio, BioFlags, Completed, Driver, Op};
use std::fs::File;
use std::os::unix::fs::FileExt;

const BLOCK: usize = 4096;

/// Returns the driver of a thread's own queue, on a file of 64 KiB.
fn driver() -> (UringDriver<Script>, File) {
    let (mut driver, _, _, file) = scripted(DEPTH, Mode::Owned);
    driver.inline = Inline::new(Writes::Inline(BLOCK as u32), Mode::Owned, DEPTH);
    (driver, file)
}

/// Returns a write of all of `buf`, in segments of `segment` bytes.
fn write(start: usize, buf: &mut Buf, segment: usize) -> Bio {
    data(Op::Write, start as u64, buf, segment)
}

/// Waits until `nr` requests have ended.
fn all(driver: &mut UringDriver<Script>, nr: usize) -> Vec<Completed> {
    let mut done = reap(driver);
    while done.len() < nr {
        driver.wait(1, None);
        done.extend(reap(driver));
    }
    assert_eq!(done.len(), nr);
    done
}

#[test]
fn whole_blocks_are_written_when_they_are_committed_by_one_call_each() {
    let (mut driver, file) = driver();
    let (mut one, mut many) = (Buf::new(BLOCK), Buf::new(2 * BLOCK));
    one.fill(0xA1);
    many.fill(0xB2);
    issue(&mut driver, 3, write(8 * BLOCK, &mut one, BLOCK));
    issue(&mut driver, 1, write(BLOCK, &mut many, 1024));
    assert!(!driver.has_ready() && driver.nr_syscalls() == 0);
    driver.commit_rqs();
    assert!(driver.has_ready());
    assert_eq!(driver.nr_syscalls(), 2);
    let mut bytes = vec![0; 2 * BLOCK];
    file.read_exact_at(&mut bytes, BLOCK as u64).expect("a scratch file");
    assert!(bytes.iter().all(|byte| *byte == 0xB2));
    file.read_exact_at(&mut bytes[..BLOCK], 8 * BLOCK as u64).expect("a scratch file");
    assert!(bytes[..BLOCK].iter().all(|byte| *byte == 0xA1));
    let done: Vec<_> = reap(&mut driver).iter().map(|one| (one.tag.index(), one.result)).collect();
    assert_eq!(done, [(3, Ok(BLOCK as u64)), (1, Ok(2 * BLOCK as u64))]);
    assert!(!driver.has_ready() && reap(&mut driver).is_empty());
    assert_eq!(driver.nr_syscalls(), 2);
}

#[test]
fn partial_blocks_and_durable_writes_use_the_ring() {
    let (mut driver, _file) = driver();
    let mut buf = Buf::new(BLOCK);
    let whole = write(0, &mut buf, BLOCK);
    let durable = Bio { flags: BioFlags::FUA, ..whole };
    let mut half = Buf::new(BLOCK / 2);
    let mut other = Buf::new(BLOCK);
    let bios = [durable, write(0, &mut half, 512), write(512, &mut other, BLOCK), Bio::flush()];
    for bio in bios {
        issue(&mut driver, 0, bio);
        driver.commit_rqs();
        assert!(!driver.has_ready());
        all(&mut driver, 1);
    }
}

#[test]
fn a_batch_of_too_many_bytes_goes_by_the_ring_and_the_next_does_not() {
    const LEN: usize = 64 << 10;
    let (mut driver, _file) = driver();
    let mut bufs: Vec<Buf> = (0..17).map(|_| Buf::new(LEN)).collect();
    for (nr, is_inline) in [(16, true), (17, false), (16, true)] {
        for (tag, buf) in bufs[..nr].iter_mut().enumerate() {
            issue(&mut driver, tag, write(tag * LEN, buf, LEN));
        }
        driver.commit_rqs();
        assert_eq!(driver.has_ready(), is_inline, "{nr}");
        all(&mut driver, nr);
    }
}

#[test]
fn a_wait_makes_writes_and_counts_them() {
    let (mut driver, _file) = driver();
    let (mut buf, mut read) = (Buf::new(BLOCK), Buf::new(BLOCK));
    issue(&mut driver, 0, write(0, &mut buf, BLOCK));
    driver.wait(1, None);
    assert_eq!((reap(&mut driver).len(), driver.nr_syscalls()), (1, 1));
    // The ring has one of the two; the other has completed already.
    issue(&mut driver, 0, write(0, &mut buf, BLOCK));
    driver.commit_rqs();
    issue(&mut driver, 1, data(Op::Read, 8192, &mut read, BLOCK));
    driver.wait(2, None);
    assert_eq!(all(&mut driver, 2).len(), 2);
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == ((8192 + at) / 256) as u8));
}

#[test]
fn a_read_of_the_same_batch_is_begun_all_the_same() {
    let (mut driver, _file) = driver();
    let (mut buf, mut read) = (Buf::new(BLOCK), Buf::new(BLOCK));
    for _ in 0..100 {
        issue(&mut driver, 0, write(0, &mut buf, BLOCK));
        issue(&mut driver, 1, data(Op::Read, 8192, &mut read, BLOCK));
        issue(&mut driver, 2, Bio::flush());
        driver.commit_rqs();
        all(&mut driver, 3);
    }
}

#[test]
fn a_shared_queue_makes_none_itself() {
    let (mut driver, _, _, _file) = scripted(DEPTH, Mode::Shared);
    driver.inline = Inline::new(Writes::Inline(BLOCK as u32), Mode::Shared, DEPTH);
    let mut buf = Buf::new(BLOCK);
    issue(&mut driver, 0, write(0, &mut buf, BLOCK));
    driver.commit_rqs();
    assert!(!driver.has_ready());
    all(&mut driver, 1);
}

#[test]
fn reported_write_method_is_the_one_in_use() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    for keys in ["", "direct=on", "sqpoll=on"] {
        let spec = format!("{}?{keys}", path.display());
        let disk = Disk::open(&spec).expect("a disk");
        let mut features = disk.info().features.iter();
        let said = &features.find(|one| one.name == "inline_writes").expect("it is said").state;
        let mut queue = queue(&spec, Mode::Owned);
        let mut buf = Buf::new(BLOCK);
        issue(&mut *queue.driver, 0, write(0, &mut buf, BLOCK));
        queue.driver.commit_rqs();
        let is_inline = queue.driver.has_ready();
        assert_eq!(is_inline, matches!(said, FeatureState::Present(_)), "{keys}: {said:?}");
        assert!(!is_inline || keys.is_empty(), "{keys}: {said:?}");
        while reap(&mut *queue.driver).is_empty() {
            queue.driver.wait(1, None);
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
