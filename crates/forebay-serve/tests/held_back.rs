//! A thread of the server whose requests wait for room at the disk sleeps.

mod support;

use forebay::{Buf, Disk, Io};
use rustix::time::{ClockId, clock_gettime};
use std::thread::sleep;
use std::time::Duration;
use support::serve;

/// Returns the processor time of this process, ms.
fn cpu_ms() -> i64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

#[test]
fn server_whose_disk_accepts_no_more_requests_sleeps() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    // A file has a descriptor. A disk without one has its thread look for completions.
    let image = folder.path().join("disk.img");
    std::fs::write(&image, vec![0; 1 << 20]).expect("a scratch file");
    let keys = "nr_bios=1&rule=read:hang&io_timeout_ms=2000&io_timeout_grace_ms=10";
    let spec = format!("fault:{}?{keys}", image.display());
    serve(folder.path(), &spec, 1, |socket| {
        let client = format!("nbd+unix:///?socket={}", socket.display());
        let disk = Disk::open(&client).expect("a client");
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        for nr in 0..2 {
            queue.submit(Io::read(Buf::new(4096), 8192 * nr)).expect("room");
        }
        sleep(Duration::from_millis(300));
        let before = cpu_ms();
        sleep(Duration::from_millis(800));
        let used = cpu_ms() - before;
        assert!(used < 200, "{used} ms of 800 while all requests wait");
        queue.reap(2, 2, &mut done);
        assert!(done.iter().all(|done| done.result.is_err()), "{done:?}");
    });
}
