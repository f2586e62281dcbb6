//! Disks on back ends of the tests.
//!
//! - [`misbehaving`]: back ends that break every rule that a safe back end can break;
//! - [`opening`]: limits, settings and reports;
//! - [`stalls`]: waits for requests that do not end.

mod misbehaving;
mod opening;
pub(crate) mod options;
mod stalls;

use forebay::{
    AsyncBackend, Backend, Batch, BlockStatus, Disk, Knob, Op, Policy, QueueLimits, Request,
};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The bytes of a disk in memory.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<Vec<u8>>);

impl Memory {
    pub(crate) fn new(len: u64) -> Memory {
        Memory(Mutex::new(vec![0; len as usize]))
    }

    /// Serves a request, and ends it.
    pub(crate) fn serve(&self, mut request: Request) {
        let mut bytes = self.0.lock().expect("no panic");
        let range = request.offset() as usize..(request.offset() + request.len()) as usize;
        match request.op() {
            Op::Read if !request.has_exclusive_memory() => request.copy_from(0, &bytes[range]),
            Op::Read => {
                let mut at = range.start;
                for slice in request.slices_mut().expect("it is exclusive") {
                    slice.copy_from_slice(&bytes[at..at + slice.len()]);
                    at += slice.len();
                }
            }
            Op::Write => match request.slices() {
                None => request.copy_to(0, &mut bytes[range]),
                Some(slices) => {
                    let all: Vec<u8> = slices.flatten().copied().collect();
                    assert_eq!(all, request.to_vec());
                    bytes[range].copy_from_slice(&all);
                }
            },
            Op::Discard | Op::WriteZeroes => {
                for (start, len) in request.ranges() {
                    bytes[start as usize..(start + len) as usize].fill(0);
                }
            }
            Op::Flush => assert_eq!(request.ranges().len(), 0),
        }
        drop(bytes);
        request.complete(Ok(()));
    }
}

/// Ends each request inside `submit`.
impl Backend for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(|request| self.serve(request));
    }
}

/// Serves requests on a thread, which ends with the disk.
#[derive(Debug)]
pub(crate) struct OnThread(Mutex<Sender<Request>>);

impl OnThread {
    pub(crate) fn new(serve: impl Fn(Request) + Send + 'static) -> OnThread {
        let (sender, requests) = channel::<Request>();
        thread::spawn(move || requests.into_iter().for_each(serve));
        OnThread(Mutex::new(sender))
    }
}

impl Backend for OnThread {
    fn name(&self) -> &str {
        "thread"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        let sender = self.0.lock().expect("no panic");
        for request in batch {
            // If the thread has ended, the request is dropped.
            let _ = sender.send(request);
        }
    }
}

/// Returns the limits of a disk in memory with a cache.
pub(crate) fn limits(len: u64) -> QueueLimits {
    QueueLimits::default()
        .capacity_bytes(Some(len))
        .volatile_cache(true)
        .fua(true)
        .discard_granularity(512)
        .max_discard_sectors(1 << 22)
        .max_discard_segments(256)
        .max_write_zeroes_sectors(1 << 22)
}

/// Returns the default policy. Under Miri it has a small tag table and no histograms, which would
/// be slow to set up there.
fn policy() -> Policy {
    match cfg!(miri) {
        true => Policy::default().queue_depth(8).iostats(false),
        false => Policy::default(),
    }
}

/// Returns the keys of a spec with their values.
fn pairs(keys: &str) -> impl Iterator<Item = (&str, &str)> {
    keys.split('&').filter_map(|pair| pair.split_once('='))
}

/// Returns the limits of a disk in memory, with the keys of a spec that change limits.
pub(crate) fn limits_of(len: u64, keys: &str) -> QueueLimits {
    let mut limits = limits(len);
    for (key, value) in pairs(keys) {
        match key {
            "read_only" => limits.read_only = value == "on",
            "fua" => limits.fua = value == "on",
            "max_sectors_kb" => limits.max_sectors = value.parse::<u32>().expect("KiB") * 2,
            _ => {}
        }
    }
    limits
}

/// Returns the policy with the other keys of a spec.
pub(crate) fn policy_of(keys: &str) -> Policy {
    let mut policy = policy();
    for (key, value) in pairs(keys) {
        if !matches!(key, "read_only" | "fua" | "max_sectors_kb") {
            let knob = Knob::named(key).unwrap_or_else(|| panic!("{key}: no such key"));
            assert!(knob.set(&mut policy, value), "{key}={value}");
        }
    }
    policy
}

/// Opens a disk of `len` bytes on a back end with this name, with keys as in a spec.
pub(crate) fn open(name: &str, len: u64, keys: &str) -> Disk {
    let (limits, policy) = (limits_of(len, keys), policy_of(keys));
    let memory = Memory::new(len);
    let opened = match name {
        "backend" => Disk::with_backend(memory, limits, policy),
        "backend_thread" => {
            let backend = OnThread::new(move |request| memory.serve(request));
            Disk::with_backend(backend, limits, policy)
        }
        _ => {
            let memory = Arc::new(memory);
            let serve = move |request| {
                let memory = Arc::clone(&memory);
                async move { memory.serve(request) }
            };
            Disk::with_backend(AsyncBackend::new("futures", serve, executor()), limits, policy)
        }
    };
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a function that runs futures on a thread. The futures never sleep.
fn executor<F: Future<Output = ()> + Send + 'static>() -> impl Fn(F) + Send + Sync + 'static {
    let (sender, futures) = channel::<F>();
    thread::spawn(move || {
        for future in futures {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::pin::pin!(future).poll(&mut context).is_ready());
        }
    });
    let sender = Mutex::new(sender);
    move |future| sender.lock().expect("no panic").send(future).expect("it runs")
}

/// Returns the status with which a blocking read ends.
fn read_error(disk: &Disk) -> BlockStatus {
    match disk.read_at(&mut [0; 512], 0) {
        Err(forebay::IoError::Ended(status)) => status,
        other => panic!("{other:?}"),
    }
}
