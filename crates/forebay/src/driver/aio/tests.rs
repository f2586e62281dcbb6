//! Tests with a kernel that accepts less than it is given.
// Its stand-ins for the system call have its signature.
#![allow(unsafe_code)]

use super::context::{Context, Iocb};
use super::device::AioDevice;
use super::driver::Submit;
use crate::buf::Buf;
use crate::driver::testing::{DEPTH, data, issue, reap, target};
use crate::driver::{Mode, Waiter};
use forebay_core::{Bio, BioFlags, BlockStatus, Driver, Op, Segments};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a driver on a file of 1 MiB that submits through `submit`.
fn driver(mode: Mode, submit: Submit) -> (Box<dyn Driver>, Arc<dyn Waiter>) {
    let (target, limits) = target();
    let device = AioDevice::new(target, limits, false);
    let (mut driver, waiter) = device.open_parts(DEPTH, mode).expect("a context");
    driver.submit = submit;
    (Box::new(driver), waiter)
}

/// Writes to the place of each tag, reads it back and checks the results.
fn write_and_read(mode: Mode, submit: Submit) {
    let (mut driver, waiter) = driver(mode, submit);
    let mut bufs: Vec<Buf> = (0..DEPTH as u8).map(|tag| Buf::from(&[tag; 4096][..])).collect();
    for op in [Op::Write, Op::Read, Op::Write, Op::Read] {
        for (tag, buf) in bufs.iter_mut().enumerate() {
            if op == Op::Read {
                buf.fill(0xFF);
            }
            issue(&mut *driver, tag, data(op, tag as u64 * 4096, buf, 512));
        }
        driver.commit_rqs();
        let mut nr = 0;
        while nr < DEPTH as usize {
            match mode {
                Mode::Owned => driver.wait(DEPTH - nr as u32, None),
                Mode::Shared => waiter.wait(None),
            }
            let done = reap(&mut *driver);
            assert!(done.iter().all(|done| done.result == Ok(4096)), "{done:?}");
            nr += done.len();
        }
        for (tag, buf) in bufs.iter().enumerate() {
            assert!(buf.iter().all(|byte| usize::from(*byte) == tag), "{op:?} {tag}");
        }
    }
}

/// Accepts at most three.
unsafe fn three(context: &Context, iocbs: &mut [*mut Iocb]) -> io::Result<usize> {
    let nr = iocbs.len().min(3);
    // SAFETY: passed on.
    unsafe { context.submit(&mut iocbs[..nr]) }
}

/// Accepts one; fails two of five times with a shortage, and is interrupted one of five times.
unsafe fn short(context: &Context, iocbs: &mut [*mut Iocb]) -> io::Result<usize> {
    static NR: AtomicU64 = AtomicU64::new(0);
    let errno = match NR.fetch_add(1, Ordering::Relaxed) % 5 {
        0 => libc::EAGAIN,
        1 => libc::EINTR,
        2 => libc::ENOMEM,
        // SAFETY: passed on.
        _ => return unsafe { context.submit(&mut iocbs[..1]) },
    };
    Err(io::Error::from_raw_os_error(errno))
}

/// Refuses flushes and the tag 5.
unsafe fn picky(context: &Context, iocbs: &mut [*mut Iocb]) -> io::Result<usize> {
    // SAFETY: each pointer is to a control block.
    let is_bad = |iocb: &*mut Iocb| unsafe { (**iocb).nbytes == 0 || (**iocb).data == 5 };
    let nr = iocbs.iter().position(is_bad).unwrap_or(iocbs.len());
    match nr {
        0 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        // SAFETY: passed on.
        _ => unsafe { context.submit(&mut iocbs[..nr]) },
    }
}

#[test]
fn a_submission_that_is_taken_in_part_goes_on() {
    for mode in [Mode::Owned, Mode::Shared] {
        write_and_read(mode, three);
    }
}

#[test]
fn a_kernel_without_room_is_asked_again() {
    for mode in [Mode::Owned, Mode::Shared] {
        write_and_read(mode, short);
    }
}

#[test]
fn refused_request_fails_alone_and_a_flush_uses_another_call() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (mut driver, waiter) = driver(mode, picky);
        let mut bufs: Vec<Buf> = (0..8).map(|_| Buf::new(512)).collect();
        for (tag, buf) in bufs.iter_mut().enumerate() {
            let bio = if tag % 2 == 0 { Bio::flush() } else { data(Op::Read, 0, buf, 512) };
            issue(&mut *driver, tag, bio);
        }
        driver.commit_rqs();
        assert!(driver.has_ready(), "no wait reports a refusal");
        let mut done = reap(&mut *driver);
        while done.len() < 8 {
            match mode {
                Mode::Owned => driver.wait(1, None),
                Mode::Shared => waiter.wait(None),
            }
            done.extend(reap(&mut *driver));
        }
        for done in done {
            let expected = match done.tag.index() {
                5 => Err(BlockStatus::Invalid),
                tag if tag % 2 == 0 => Ok(0),
                _ => Ok(512),
            };
            assert_eq!(done.result, expected, "{:?}", done.tag);
        }
    }
}

thread_local! {
    /// `aio_lio_opcode` and `aio_rw_flags` of the last control block that this thread submitted.
    static LAST: Cell<(u16, i32)> = const { Cell::new((0, 0)) };
}

/// Accepts all and records the last.
unsafe fn noting(context: &Context, iocbs: &mut [*mut Iocb]) -> io::Result<usize> {
    // SAFETY: each pointer is to a control block.
    let noted = iocbs.last().map(|iocb| unsafe { ((**iocb).opcode(), (**iocb).rw_flags) });
    LAST.set(noted.expect("there is one"));
    // SAFETY: passed on.
    unsafe { context.submit(iocbs) }
}

/// Submits a bio and returns the opcode and flags of its control block.
fn submitted(mode: Mode, bio: Bio) -> (u16, i32) {
    let (mut driver, _waiter) = driver(mode, noting);
    let len = if bio.op.moves_data() { bio.len } else { 0 };
    issue(&mut *driver, 0, bio);
    driver.commit_rqs();
    driver.wait(1, None);
    assert_eq!(reap(&mut *driver)[0].result, Ok(len));
    LAST.get()
}

#[test]
fn a_flush_leaves_out_metadata_unless_it_is_asked_for() {
    for (bio, opcode) in [(Bio::flush(), 3), (Bio::fsync(), 2)] {
        assert_eq!(submitted(Mode::Owned, bio), (opcode, 0));
    }
}

/// Returns the bio with its segments in reverse order, so that no two are adjacent in memory.
fn apart(bio: Bio) -> Bio {
    let Segments::Many(segments) = bio.segments else { return bio };
    let segments = Segments::Many(segments.into_iter().rev().collect());
    Bio { segments, ..bio }
}

#[test]
fn a_durable_write_says_so_in_its_control_block() {
    let mut buf = Buf::new(4096);
    // One segment, which needs no vector, and two.
    for (segment, read, write) in [(4096, 0, 1), (2048, 7, 8)] {
        for mode in [Mode::Owned, Mode::Shared] {
            let mut bio = |op| apart(data(op, 0, &mut buf, segment));
            let durable = Bio { flags: BioFlags::FUA, ..bio(Op::Write) };
            assert_eq!(submitted(mode, durable), (write, libc::RWF_DSYNC), "{mode:?}");
            assert_eq!(submitted(mode, bio(Op::Write)), (write, 0), "{mode:?}");
            assert_eq!(submitted(mode, bio(Op::Read)), (read, 0), "{mode:?}");
        }
    }
}
