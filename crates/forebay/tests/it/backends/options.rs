//! Back ends that are opened with the options of a disk.

use super::{Memory, OnThread, limits};
use forebay::testing::{Setup, Subject};
use forebay::{Backend, Batch, Disk, DiskOptions, KNOBS, OpenError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LEN: u64 = 1 << 20;

/// Returns options with each setting of a policy.
pub(crate) fn options_of(setup: &Setup) -> DiskOptions {
    let policy = setup.policy();
    KNOBS.iter().fold(Disk::options(), |options, knob| {
        options.set(knob.key, &knob.get(&policy)).expect("a value of a policy")
    })
}

#[test]
fn back_end_with_a_service_thread_passes_the_checks_of_disks() {
    let open = |setup: &Setup| {
        let memory = Memory::new(LEN);
        let backend = OnThread::new(move |request| memory.serve(request));
        let limits = setup.limits(limits(LEN));
        options_of(setup).service(true).open_backend(backend, limits).expect("a disk")
    };
    Subject::new(open).check();
}

#[test]
fn options_are_shown_in_the_spec_and_the_last_value_of_a_key_holds() {
    let options = Disk::options().nr_requests(4).max_sectors_kb(8).nr_requests(8).read_only(true);
    let disk = options.open_backend(Memory::new(LEN), limits(LEN)).expect("a disk");
    let info = disk.info();
    assert_eq!(info.spec, "backend:memory?nr_requests=8&max_sectors_kb=8&read_only=on");
    assert_eq!((info.policy.nr_requests, info.limits.max_sectors), (Some(8), 16));
    assert!(!info.service && disk.write_at(&[0; 512], 0).is_err());
}

/// A back end that counts the requests that several disks have in flight.
struct Counted(Arc<Count>);

#[derive(Default)]
struct Count {
    nr: AtomicUsize,
    max: AtomicUsize,
}

impl Backend for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        for request in batch {
            let count = Arc::clone(&self.0);
            count.max.fetch_max(count.nr.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(200));
                count.nr.fetch_sub(1, Ordering::Relaxed);
                request.complete(Ok(()));
            });
        }
    }
}

#[test]
fn back_ends_that_share_a_tag_set_have_no_more_requests_together() {
    let count = Arc::<Count>::default();
    let options = Disk::options().tag_set("two back ends").queue_depth(3);
    let open = || options.open_backend(Counted(Arc::clone(&count)), limits(LEN)).expect("a disk");
    let disks = [open(), open()];
    assert!(disks.iter().all(|disk| disk.info().service), "a tag set needs a service thread");
    thread::scope(|scope| {
        for disk in disks.iter().cycle().take(8) {
            scope.spawn(|| {
                for block in 0..20 {
                    assert_eq!(disk.read_at(&mut [0; 512], block * 4096), Ok(512));
                }
            });
        }
    });
    assert_eq!(count.max.load(Ordering::Relaxed), 3);
}

#[track_caller]
fn assert_refused(options: &DiskOptions, expected: &str) {
    let error = options.open_backend(Memory::new(LEN), limits(LEN)).expect_err(expected);
    assert!(matches!(error, OpenError::Spec(_)), "{error:?}");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn options_that_a_back_end_cannot_have_are_refused_by_name() {
    let options = Disk::options;
    assert_refused(
        &options().exclusive(true),
        "exclusive=on: expected off: the back end decides which programs use its device",
    );
    assert_refused(
        &options().driver("aio"),
        "driver=aio: expected no driver, because the back end is the device",
    );
    let other = options().set("direct", "on").expect("a key of other disks");
    let error = other.open_backend(Memory::new(LEN), limits(LEN)).expect_err("no file");
    assert!(
        error.to_string().starts_with("unknown key `direct` for driver `backend`; "),
        "{error}"
    );
    assert_refused(
        &options().nr_requests(65).queue_depth(64),
        "nr_requests=65: expected a number from 1 to queue_depth, which is 64",
    );
}
