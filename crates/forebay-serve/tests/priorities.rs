//! I/O priority of a device for virtual machines. I/Os of different priorities do not merge, so an
//! I/O beside the request of a guest shows the priority of that request.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "rings/guest.rs"]
mod guest;

use forebay::{
    Backend, Batch, Buf, Class, Disk, Io, Op, Policy, Priority, QueueLimits, Request,
    SchedulerPolicy,
};
use forebay_serve::ExportOptions;
use guest::{DATA, Guest, options, serve_with};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Offset of the request that the device holds back.
const HELD: u64 = 1 << 19;

/// A device whose requests end at once, except for one at [`HELD`].
#[derive(Clone, Default)]
struct Holding(Arc<Mutex<Option<Request>>>);

impl Holding {
    fn held(&self) -> MutexGuard<'_, Option<Request>> {
        self.0.lock().expect("no panic")
    }
}

impl Backend for Holding {
    fn name(&self) -> &str {
        "holding"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(|request| match request.offset() {
            HELD => *self.held() = Some(request),
            _ => request.complete(Ok(())),
        });
    }
}

/// Returns an I/O of this priority.
fn read(offset: u64, priority: Priority) -> Io {
    Io::read(Buf::new(512), offset).priority(priority.class(), priority.level())
}

/// Checks that a request of a guest, with memory at `data`, merges with an I/O before it that waits
/// in the scheduler and has the priority of the export.
fn check(priority: Priority, data: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Holding::default();
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).dma_alignment(511);
    let policy = Policy::default().scheduler(SchedulerPolicy::MqDeadline).device_depth(Some(1));
    let disk = Disk::with_backend(device.clone(), limits, policy).expect("a disk");
    let mut options = options(folder.path(), &["holding"], None);
    options.exports =
        vec![ExportOptions { disk: Some(disk.clone()), priority, ..ExportOptions::default() }];
    let mut has_merged = false;
    serve_with(options, || {
        let mut guest = Guest::connect(&folder.path().join("0"));
        let mut queue = disk.queue();
        queue.submit(read(HELD, Priority::default())).expect("room");
        queue.reap(0, 1, &mut Vec::new());
        queue.submit(read(0, priority)).expect("room");
        queue.reap(0, 1, &mut Vec::new());
        guest.request_of(0, false, 1, [(data, 512)]);
        guest.kick();
        // A failure within the closure would not end the server, so the check comes after it.
        for _ in 0..10_000 {
            has_merged = disk.stats().queue.op(Op::Read).merges == 1;
            if has_merged {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(request) = device.held().take() {
            request.complete(Ok(()));
        }
        queue.reap(2, 2, &mut Vec::new());
        guest.wait();
    });
    assert!(has_merged, "{priority:?}, memory at {data:#x}");
    assert_eq!(disk.stats().queue.op(Op::Read).requests, 2);
}

#[test]
fn requests_of_guests_have_the_priority_of_their_export() {
    let high = Priority::new(Class::RealTime, 3).expect("a level");
    for priority in [Priority::default(), high] {
        check(priority, DATA);
        // The server copies such memory.
        check(priority, DATA + 2);
    }
}
