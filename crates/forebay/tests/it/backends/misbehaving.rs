//! Back ends that misbehave: each request ends with an error or never, and nothing else is harmed.

use super::{OnThread, limits, policy, read_error};
use forebay::{Backend, Batch, BlockStatus, Buf, Completion, Disk, Io, Op, Request, leaked_bufs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

const LEN: u64 = 1 << 20;

/// A back end that calls a function with each batch.
struct Calls<F>(F);

impl<F: Fn(&mut Batch<'_>) + Send + Sync + 'static> Backend for Calls<F> {
    fn name(&self) -> &str {
        "calls"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        (self.0)(batch);
    }
}

fn open(submit: impl Fn(&mut Batch<'_>) + Send + Sync + 'static) -> Disk {
    Disk::with_backend(Calls(submit), limits(LEN), policy()).expect("a disk")
}

/// Returns a disk whose back end serves each request of a batch.
fn serve(serve: impl Fn(Request) + Send + Sync + 'static) -> Disk {
    open(move |batch| batch.for_each(&serve))
}

/// Writes four separate blocks in one batch. Returns the completions.
fn write_four(disk: &Disk) -> Vec<Completion> {
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    let plug = forebay::plug();
    for n in 0..4 {
        queue.submit(Io::write(Buf::new(4096), n * 8192)).expect("a good write");
    }
    drop(plug);
    queue.reap(4, 4, &mut done);
    done
}

#[test]
fn dropped_requests_end_with_an_io_error() {
    let disk = serve(drop);
    assert_eq!(read_error(&disk), BlockStatus::Io);
    assert!(write_four(&disk).iter().all(|done| done.result == Err(BlockStatus::Io)));
    // The disk goes on.
    assert!(!disk.is_failed());
}

#[test]
fn dropped_request_of_a_thread_that_panics_for_another_reason_does_not_fail_the_disk() {
    let disk = serve(drop);
    let used = disk.clone();
    let user = thread::spawn(move || {
        let mut queue = used.queue();
        let _plug = forebay::plug();
        queue.submit(Io::write(Buf::new(4096), 0)).expect("a good write");
        panic!("the end of the plug submits the write");
    });
    assert!(user.join().is_err());
    assert!(!disk.is_failed(), "{:?}", disk.failure());
}

#[test]
fn requests_that_are_left_in_the_batch_end_with_an_io_error() {
    let disk = open(|batch| {
        if let Some(first) = batch.next() {
            first.complete(Ok(()));
        }
    });
    let done = write_four(&disk);
    assert_eq!(done.iter().filter(|done| done.result == Ok(4096)).count(), 1);
    assert_eq!(done.iter().filter(|done| done.result == Err(BlockStatus::Io)).count(), 3);
}

#[test]
fn panic_in_submit_fails_the_disk_and_leaves_others_alone() {
    let is_first = AtomicU32::new(1);
    let disk = open(move |batch| {
        if is_first.swap(0, Ordering::Relaxed) == 1 {
            let _held = batch.next();
            panic!("the index is broken");
        }
        batch.for_each(|request| request.complete(Ok(())));
    });
    let other = super::open("backend", LEN, "");
    assert!(write_four(&disk).iter().all(|done| done.result == Err(BlockStatus::Offline)));
    assert!(disk.is_failed());
    let why = disk.failure().expect("a reason");
    assert!(why.contains("panicked: the index is broken"), "{why}");
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    other.write_at(&[1; 512], 0).expect("another disk");
    disk.revive();
    disk.write_at(&[1; 512], 0).expect("the back end works again");
}

#[test]
fn panic_after_the_last_request_fails_that_request() {
    let disk = open(|batch| {
        batch.for_each(|request| request.complete(Ok(())));
        std::panic::panic_any(7);
    });
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    assert!(disk.is_failed());
    assert!(disk.failure().is_some_and(|why| why.contains("without a text")));
}

#[test]
fn panic_after_all_requests_went_to_a_thread_fails_the_next_one_that_ends() {
    let (sender, requests) = channel::<Request>();
    let sender = Mutex::new(sender);
    let disk = open(move |batch| {
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        batch.for_each(|request| sender.send(request).expect("the thread lives"));
        panic!("after the last one");
    });
    let server = thread::spawn(move || {
        requests.into_iter().for_each(|request| request.complete(Ok(())));
    });
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    assert!(disk.is_failed());
    drop(disk);
    server.join().expect("it ends with the disk");
}

#[test]
fn caught_panic_that_drops_a_request_fails_the_disk() {
    let kept = Mutex::new(Vec::<Request>::new());
    let disk = open(move |batch| {
        let mut kept = kept.lock().expect("the panic is caught outside of the lock");
        // An earlier request ends inside this call, in the place of the dropped one.
        let is_second = !kept.is_empty();
        kept.drain(..).for_each(|request| request.complete(Ok(())));
        if !is_second {
            return kept.extend(batch);
        }
        let request = batch.next().expect("one request");
        let caught = catch_unwind(AssertUnwindSafe(move || panic!("with {request:?}")));
        assert!(caught.is_err());
    });
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    for n in 0..2 {
        queue.submit(Io::write(Buf::new(4096), n * 8192).user_data(n)).expect("a good write");
        queue.reap(0, 0, &mut done);
    }
    queue.reap(2, 2, &mut done);
    done.sort_by_key(|done| done.user_data);
    let results: Vec<_> = done.iter().map(|done| done.result).collect();
    assert_eq!(results, [Ok(4096), Err(BlockStatus::Offline)]);
    assert!(disk.is_failed());
    assert!(disk.failure().is_some_and(|why| why.contains("caught a panic")));
}

#[test]
fn panic_changes_no_result_of_a_request_that_ended_before() {
    let nth = AtomicU32::new(0);
    let disk = open(move |batch| {
        if nth.fetch_add(1, Ordering::Relaxed) == 0 {
            return batch.for_each(|request| request.complete(Err(BlockStatus::Io)));
        }
        batch.for_each(|request| request.complete(Ok(())));
        panic!("after the last one");
    });
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    // The first two have ended, and no reap has taken them, when the others are submitted.
    for n in 0..2 {
        let plug = forebay::plug();
        for n in [2 * n, 2 * n + 1] {
            queue.submit(Io::write(Buf::new(4096), n * 8192).user_data(n)).expect("a good write");
        }
        drop(plug);
    }
    queue.reap(4, 4, &mut done);
    done.sort_by_key(|done| done.user_data);
    let results: Vec<_> = done.iter().map(|done| done.result).collect();
    let (io, offline) = (Err(BlockStatus::Io), Err(BlockStatus::Offline));
    assert_eq!(results, [io, io, Ok(4096), offline]);
    assert!(disk.is_failed());
}

#[test]
fn reason_of_a_failure_is_forgotten_when_the_disk_is_revived() {
    let disk = open(|_| panic!("the index is broken"));
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    assert!(disk.failure().is_some());
    disk.revive();
    assert_eq!((disk.is_failed(), disk.failure()), (false, None));
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    assert!(disk.failure().is_some_and(|why| why.contains("the index is broken")));
}

#[test]
fn request_on_a_dying_thread_fails_the_disk() {
    let backend = OnThread::new(|request| panic!("with {request:?}, on purpose"));
    let disk = Disk::with_backend(backend, limits(LEN), policy()).expect("a disk");
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    assert!(disk.is_failed());
    assert!(disk.failure().is_some_and(|why| why.contains("panicked with a request")));
}

#[test]
fn request_in_the_destructor_of_a_thread_ends() {
    thread_local! {
        static KEPT: Mutex<Vec<Request>> = const { Mutex::new(Vec::new()) };
    }
    let keep = |request| KEPT.with(|kept| kept.lock().expect("no panic").push(request));
    let disk = open(move |batch| {
        let requests: Vec<Request> = batch.collect();
        thread::spawn(move || requests.into_iter().for_each(keep));
    });
    assert_eq!(read_error(&disk), BlockStatus::Io);
}

#[test]
fn short_counts_continue_until_nothing_more_comes() {
    let disk = serve(|mut request| match request.op() {
        // The disk ends at byte 1000 of each request.
        Op::Read if request.offset() == 0 => {
            request.copy_from(0, &[7; 1000]);
            request.complete_short(1000);
        }
        Op::Read => request.complete_short(0),
        _ => request.complete_short(512),
    });
    let mut read = [0; 4096];
    // The second block was moved in part, so it does not count.
    assert_eq!(disk.read_at(&mut read, 0), Ok(512));
    assert!(read[..512].iter().all(|byte| *byte == 7));
    assert_eq!(disk.write_at(&[1; 4096], 0), Ok(4096));
}

#[test]
fn short_count_inside_of_a_block_never_leads_to_a_misaligned_request() {
    let is_aligned = |request: &Request| (request.offset() | request.len()).is_multiple_of(512);
    let disk = serve(move |mut request| {
        assert!(is_aligned(&request), "{request:?}");
        match request.op() {
            // Each request moves one and a half blocks at most.
            Op::Read => {
                let len = request.len().min(768);
                request.copy_from(0, &vec![7; len as usize]);
                request.complete_short(len);
            }
            _ => {
                let len = request.len().min(700);
                request.complete_short(len);
            }
        }
    });
    let mut read = [0; 4096];
    assert_eq!(disk.read_at(&mut read, 0), Ok(4096));
    assert_eq!(read, [7; 4096]);
    let failed = disk.write_at(&[1; 4096], 0);
    assert_eq!(failed, Err(forebay::IoError::Ended(BlockStatus::Io)));
    assert_eq!(disk.write_at(&[1; 512], 0), Ok(512));
    assert!(!disk.is_failed(), "{:?}", disk.failure());
}

#[test]
fn count_above_the_length_is_a_panic_that_names_both() {
    let disk = serve(|request| {
        let len = request.len();
        request.complete_short(len + 1);
    });
    assert_eq!(read_error(&disk), BlockStatus::Offline);
    let why = disk.failure().expect("a reason");
    assert!(why.contains("complete_short(513): the request has only 512 bytes"), "{why}");
}

#[test]
fn short_flush_is_a_panic() {
    let disk = serve(|request| match request.op() {
        Op::WriteZeroes => request.complete_short(512),
        _ => request.complete(Ok(())),
    });
    assert!(disk.write_zeroes(0, 4096).is_err());
    assert!(disk.failure().is_some_and(|why| why.contains("moves no data")));
}

#[test]
fn copies_outside_of_a_request_are_panics() {
    let bad: [fn(&mut Request); 6] = [
        |request| request.copy_from(0, &[0; 513]),
        |request| request.copy_from(513, &[]),
        |request| request.copy_from(u64::MAX, &[0; 2]),
        |request| request.fill_zeroes(500, 13),
        |request| request.copy_to(0, &mut [0; 1]),
        |request| assert!(request.slices().is_some()),
    ];
    for bad in bad {
        let disk = serve(move |mut request| {
            bad(&mut request);
            request.complete(Ok(()));
        });
        assert_eq!(read_error(&disk), BlockStatus::Offline);
        assert!(disk.failure().is_some_and(|why| why.contains("panicked: ")));
    }
}

#[test]
fn request_that_is_kept_ends_when_it_is_dropped_long_after() {
    static KEPT: Mutex<Vec<Request>> = Mutex::new(Vec::new());
    let kept = &KEPT;
    let disk = open(|batch| kept.lock().expect("no panic").extend(batch));
    thread::scope(|scope| {
        let waits = scope.spawn(|| read_error(&disk));
        while kept.lock().expect("no panic").is_empty() {
            thread::yield_now();
        }
        kept.lock().expect("no panic").clear();
        assert_eq!(waits.join().expect("no panic"), BlockStatus::Io);
    });
}

#[test]
fn forgotten_request_ends_at_its_time_limit_and_its_buffer_is_leaked() {
    let limit = policy().io_timeout_ns(20_000_000).io_timeout_grace_ns(20_000_000);
    let backend = Calls(|batch: &mut Batch<'_>| batch.for_each(std::mem::forget));
    let disk = Disk::with_backend(backend, limits(LEN), limit).expect("a disk");
    let before = leaked_bufs();
    let mut done = Vec::new();
    let mut queue = disk.queue();
    queue.submit(Io::read(Buf::new(4096), 0)).expect("a good read");
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Err(BlockStatus::Timeout));
    assert!(done[0].buf.is_none() && disk.is_failed());
    drop((queue, disk));
    assert!(leaked_bufs() > before);
}

#[test]
fn late_end_after_the_disk_is_closed_harms_nothing() {
    static KEPT: Mutex<Vec<Request>> = Mutex::new(Vec::new());
    let kept = &KEPT;
    let limit = policy().io_timeout_ns(20_000_000).io_timeout_grace_ns(20_000_000);
    let backend = Calls(|batch: &mut Batch<'_>| kept.lock().expect("no panic").extend(batch));
    let disk = Disk::with_backend(backend, limits(LEN), limit).expect("a disk");
    let mut done = Vec::new();
    let mut queue = disk.queue();
    queue.submit(Io::read(Buf::new(4096), 0)).expect("a good read");
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Err(BlockStatus::Timeout));
    drop((queue, disk));
    // Its memory is still there: it was leaked.
    for mut request in kept.lock().expect("no panic").drain(..) {
        request.slices_mut().expect("a buffer of the library").for_each(|slice| slice.fill(9));
        request.copy_from(0, &[1; 4096]);
        request.complete(Ok(()));
    }
}

#[test]
fn back_end_may_use_another_back_end_inside_of_submit() {
    let inner = super::open("backend", LEN, "");
    let disk = serve(move |mut request| {
        let mut bytes = vec![0; request.len() as usize];
        let ended = match request.op() {
            Op::Read => {
                let read = inner.read_at(&mut bytes, request.offset());
                request.copy_from(0, &bytes);
                read.map(|_| ())
            }
            Op::Write => inner.write_at(&request.to_vec(), request.offset()).map(|_| ()),
            _ => inner.flush(),
        };
        request.complete(ended.map_err(|_| BlockStatus::Io));
    });
    assert!(write_four(&disk).iter().all(|done| done.result == Ok(4096)));
    disk.write_at(&[5; 512], 512).expect("a write");
    let mut read = [0; 1024];
    assert_eq!(disk.read_at(&mut read, 0), Ok(1024));
    assert_eq!((read[0], read[1023]), (0, 5));
    disk.flush().expect("a flush");
}
