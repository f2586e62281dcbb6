//! Checks of reads, writes, refusals and splits.
// A check submits its own memory, in several segments.
#![allow(unsafe_code)]

use super::helpers::{assert_read, assert_result, pattern, reap_all, submit};
use super::{LEN, Subject};
use crate::{Bio, BlockStatus, Buf, Disk, Io, IoError, Op, Segment, Segments, SubmitErrorKind};

/// Reads through a queue, checks the result, and returns the bytes.
fn read(disk: &Disk, start: u64, len: u64) -> Buf {
    let mut queue = disk.queue();
    submit(&mut queue, Io::read(Buf::new(len as usize), start));
    let done = reap_all(&mut queue).pop().expect("an end");
    assert_result("a read", &done.result, &Ok(len));
    done.buf.expect("a read has its buffer")
}

pub(super) fn written_data_is_read(subject: &Subject<'_>) {
    for (stamp, disk) in subject.each("").iter().enumerate() {
        let mut queue = disk.queue();
        for start in (0..LEN).step_by(1 << 16) {
            submit(&mut queue, Io::write(pattern(stamp as u64, start, 1 << 16), start));
        }
        for done in reap_all(&mut queue) {
            assert_result("a write", &done.result, &Ok(1 << 16));
        }
        assert_read(disk, &read(disk, 0, LEN), &pattern(stamp as u64, 0, LEN));
        let mut back = Buf::new(8192);
        assert_eq!(disk.read_at(&mut back, 4096), Ok(8192));
        assert_read(disk, &back, &pattern(stamp as u64, 4096, 8192));
    }
}

pub(super) fn several_segments_are_one_range(subject: &Subject<'_>) {
    for disk in subject.each("") {
        let mut queue = disk.queue();
        // The segments are in reverse order in memory, so no two adjacent segments are contiguous.
        let mut memory = pattern(3, 0, 1 << 16);
        let base = memory.as_mut_ptr().expose_provenance();
        let nr = (1 << 16) / 4096;
        for op in [Op::Write, Op::Read] {
            let segment = |n: usize| Segment { addr: base + (nr - 1 - n) * 4096, len: 4096 };
            let segments = Segments::Many((0..nr).map(segment).collect());
            let bio = Bio { segments, ..Bio::range(op, 8192, 1 << 16) };
            // SAFETY: `memory` outlives the reap, and no other code accesses it until then.
            let submitted = unsafe { queue.submit_raw(bio) };
            assert!(submitted.is_ok(), "{submitted:?}");
            assert_result("I/O of 16 segments", &reap_all(&mut queue)[0].result, &Ok(1 << 16));
        }
        assert_read(&disk, &memory, &pattern(3, 0, 1 << 16));
        let image = read(&disk, 8192, 1 << 16);
        let backwards: Vec<u8> = memory.chunks(4096).rev().flatten().copied().collect();
        assert_read(&disk, &image, &backwards);
    }
}

pub(super) fn durable_writes_and_flushes_succeed(subject: &Subject<'_>) {
    for keys in ["", "fua=on", "fua=off"] {
        for disk in subject.each(keys) {
            let mut queue = disk.queue();
            let write = |at: u64| Io::write(pattern(at, at, 4096), at).user_data(4096);
            submit(&mut queue, write(0).fua());
            submit(&mut queue, write(4096).preflush());
            submit(&mut queue, write(8192).preflush().fua());
            submit(&mut queue, Io::flush());
            submit(&mut queue, Io::fsync());
            for done in reap_all(&mut queue) {
                assert_result("a durable write or a flush", &done.result, &Ok(done.user_data));
            }
            disk.flush().expect("a flush");
            disk.fsync().expect("a stronger one");
            let point = disk.durable_point();
            disk.durable(point).wait().expect("all of it is durable");
            assert!(disk.is_durable(point));
            for at in [0, 4096, 8192] {
                assert_read(&disk, &read(&disk, at, 4096), &pattern(at, at, 4096));
            }
        }
    }
}

pub(super) fn ranges_are_zeroed(subject: &Subject<'_>) {
    for disk in subject.each("") {
        assert_eq!(disk.write_at(&pattern(9, 0, LEN), 0), Ok(LEN as usize));
        let mut queue = disk.queue();
        submit(&mut queue, Io::write_zeroes(4096, 1 << 16).user_data(1 << 16));
        submit(&mut queue, Io::discard(1 << 18, 1 << 18).user_data(1 << 18));
        for done in reap_all(&mut queue) {
            assert_result("zeroing a range", &done.result, &Ok(done.user_data));
        }
        disk.write_zeroes(LEN - 4096, 4096).expect("zeroes");
        disk.discard(1 << 19, 8192).expect("a discard");
        let mut expected = pattern(9, 0, LEN);
        for (start, len) in
            [(4096, 1 << 16), (1 << 18, 1 << 18), (LEN - 4096, 4096), (1 << 19, 8192)]
        {
            expected[start as usize..(start + len) as usize].fill(0);
        }
        assert_read(&disk, &read(&disk, 0, LEN), &expected);
    }
}

pub(super) fn unaligned_or_out_of_range_io_is_refused(subject: &Subject<'_>) {
    for disk in subject.each("") {
        let unit = u64::from(disk.limits().logical_block_size);
        let mut buf = Buf::new(2 * unit as usize);
        let mut queue = disk.queue();
        let refused = queue.submit(Io::write(Buf::new(unit as usize), 1));
        assert!(matches!(refused.unwrap_err().kind, SubmitErrorKind::Misaligned { .. }));
        let refused = queue.submit(Io::discard(0, unit - 1));
        assert!(matches!(refused.unwrap_err().kind, SubmitErrorKind::Misaligned { .. }));
        let refused = queue.submit(Io::read(Buf::new(2 * unit as usize), LEN - unit));
        assert!(matches!(refused.unwrap_err().kind, SubmitErrorKind::OutOfRange { .. }));
        let refused = disk.read_at(&mut buf, LEN);
        assert!(matches!(refused, Err(IoError::Refused(SubmitErrorKind::OutOfRange { .. }))));
        assert!(disk.write_zeroes(LEN, unit).is_err());
        assert_eq!(queue.len(), 0, "refused I/O is in flight");
        let issued = disk.stats().queue.issued;
        assert!(issued == 0, "the device got {issued} requests, although all I/O was refused");
    }
}

pub(super) fn a_plug_makes_one_request_of_neighbours(subject: &Subject<'_>) {
    for disk in subject.each("") {
        let mut queue = disk.queue();
        for op in [Op::Write, Op::Read] {
            let before = disk.stats().queue.op(op).requests;
            let plug = crate::plug();
            for n in 0..16 {
                let at = n * 4096;
                let io = match op {
                    Op::Write => Io::write(pattern(5, at, 4096), at),
                    _ => Io::read(Buf::new(4096), at),
                };
                submit(&mut queue, io.user_data(n));
            }
            drop(plug);
            for done in reap_all(&mut queue) {
                assert_result("I/O under a plug", &done.result, &Ok(4096));
                if op == Op::Read {
                    let read = done.buf.expect("a read has its buffer");
                    assert_read(&disk, &read, &pattern(5, done.user_data * 4096, 4096));
                }
            }
            let requests = disk.stats().queue.op(op).requests - before;
            assert!(requests == 1, "16 neighbours under a plug became {requests} requests");
        }
    }
}

pub(super) fn a_large_bio_is_split(subject: &Subject<'_>) {
    for keys in ["max_sectors_kb=8", "max_sectors_kb=4&queue_depth=3"] {
        for disk in subject.each(keys) {
            let before = disk.stats().queue.splits;
            let max = u64::from(disk.limits().max_sectors) * 512;
            assert!(max <= 8192, "requests have up to {max} bytes: use `Setup::limits`");
            let mut queue = disk.queue();
            submit(&mut queue, Io::write(pattern(8, 0, LEN / 2), 0));
            assert_result("a large write", &reap_all(&mut queue)[0].result, &Ok(LEN / 2));
            assert_eq!(
                disk.write_at(&pattern(8, LEN / 2, LEN / 2), LEN / 2),
                Ok((LEN / 2) as usize)
            );
            assert_read(&disk, &read(&disk, 0, LEN), &pattern(8, 0, LEN));
            let splits = disk.stats().queue.splits - before;
            let expected = 2 * LEN / max - 3;
            assert!(splits == expected, "{splits} splits, and not {expected}");
        }
    }
}

pub(super) fn nowait_io_ends_at_once(subject: &Subject<'_>) {
    for disk in subject.each("queue_depth=4&max_sectors_kb=4") {
        let mut queue = disk.queue();
        // The read needs more requests than there are tags.
        submit(&mut queue, Io::read(Buf::new(5 * 4096), 0).nowait());
        let result = reap_all(&mut queue)[0].result;
        let what = "a nowait read of more requests than tags (use `Setup::policy` and `limits`)";
        assert_result(what, &result, &Err(BlockStatus::NotSupported));
        let held = disk.quiesce();
        submit(&mut queue, Io::read(Buf::new(4096), 0).nowait());
        let result = reap_all(&mut queue)[0].result;
        assert_result("a nowait read during a hold", &result, &Err(BlockStatus::Again));
        drop(held);
        if !subject.may_refuse_nowait() {
            // A scheduler leaves some of the tags to reads.
            let len = u64::from(disk.info().policy.async_depth_of(4)) * 4096;
            submit(&mut queue, Io::write(pattern(2, 0, len), 0).nowait());
            let what = "a nowait write of as many requests as there are tags for writes";
            assert_result(what, &reap_all(&mut queue)[0].result, &Ok(len));
        }
    }
}
