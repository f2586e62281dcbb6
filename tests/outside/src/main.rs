//! Devices outside Forebay's workspace: a back end, which is a mirror whose two copies a thread
//! keeps, and drivers ([`drivers`]).
//!
//! They use the published API only. The program runs I/O of each kind over them, compares the
//! copies, and exits with a failure if anything differs.

mod drivers;

use forebay::testing::Subject;
use forebay::{
    Backend, Batch, BlockStatus, Buf, Disk, Io, IoError, Op, OpenError, Policy, QueueLimits,
    Request, Stall, plug,
};
use std::error::Error;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const LEN: usize = 1 << 20;

/// The two copies.
type Copies = Arc<[Mutex<Vec<u8>>; 2]>;

/// Serves one request: a read from the first copy, anything else on both.
fn serve(copies: &Copies, mut request: Request) {
    let start = request.offset() as usize;
    let range = start..start + request.len() as usize;
    match request.op() {
        Op::Read => request.copy_from(0, &copies[0].lock().unwrap()[range]),
        Op::Write => {
            let data = request.to_vec();
            for copy in copies.iter() {
                copy.lock().unwrap()[range.clone()].copy_from_slice(&data);
            }
        }
        Op::Discard | Op::WriteZeroes => {
            for (start, len) in request.ranges() {
                let range = start as usize..(start + len) as usize;
                copies.iter().for_each(|copy| copy.lock().unwrap()[range.clone()].fill(0));
            }
        }
        Op::Flush => {}
    }
    request.complete(Ok(()));
}

struct Mirror {
    worker: Mutex<Sender<Request>>,
    stalls: Mutex<Sender<Stall>>,
}

impl Backend for Mirror {
    fn name(&self) -> &str {
        "mirror"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        let worker = self.worker.lock().unwrap();
        for request in batch {
            // A request that no thread receives is dropped, which ends it with an error.
            let _ = worker.send(request);
        }
    }

    fn report_stall(&self, stall: &Stall) {
        let _ = self.stalls.lock().unwrap().send(stall.clone());
    }

    fn stall_time(&self) -> Duration {
        Duration::from_millis(100)
    }
}

fn limits() -> QueueLimits {
    QueueLimits::default()
        .capacity_bytes(Some(LEN as u64))
        .volatile_cache(true)
        .discard_granularity(512)
        .max_discard_sectors(1024)
        .max_write_zeroes_sectors(1024)
}

/// Runs the checks of the library on mirrors.
fn check_contract() {
    println!("outside: a mirror");
    let subject = Subject::new(|setup| {
        let copies: Copies = Arc::new([(); 2].map(|()| Mutex::new(vec![0; LEN])));
        let ((worker, requests), (stalls, _)) = (channel(), channel());
        thread::spawn(move || requests.into_iter().for_each(|rq| serve(&copies, rq)));
        let mirror = Mirror { worker: Mutex::new(worker), stalls: Mutex::new(stalls) };
        Disk::with_backend(mirror, setup.limits(limits()), setup.policy()).expect("a disk")
    });
    subject.check();
}

fn main() -> Result<(), Box<dyn Error>> {
    drivers::run()?;
    check_contract();
    let copies: Copies = Arc::new([(); 2].map(|()| Mutex::new(vec![0; LEN])));
    let (worker, requests) = channel();
    let (stalls, reported) = channel();
    let kept = Arc::clone(&copies);
    let server = thread::spawn(move || requests.into_iter().for_each(|rq| serve(&kept, rq)));
    let mirror = |worker, stalls| Mirror { worker: Mutex::new(worker), stalls: Mutex::new(stalls) };

    // Impossible capacities are refused.
    let odd = limits().capacity_bytes(Some(1000));
    let refused =
        Disk::with_backend(mirror(worker.clone(), stalls.clone()), odd, Policy::default());
    assert!(matches!(refused, Err(OpenError::Capacity { bytes: 1000, .. })));

    // Blocking calls.
    let disk = Disk::with_backend(mirror(worker, stalls), limits(), Policy::default())?;
    assert_eq!(disk.info().spec, "backend:mirror");
    disk.write_at(&[7; 4096], 8192)?;
    disk.flush()?;
    disk.write_zeroes(8192, 512)?;
    disk.discard(8704, 512)?;
    let mut read = [1; 4096];
    disk.read_at(&mut read, 8192)?;
    assert!(read[..1024].iter().all(|byte| *byte == 0));
    assert!(read[1024..].iter().all(|byte| *byte == 7));

    // A queue, whose neighbours merge.
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    let plugged = plug();
    for nth in 0..16_u8 {
        let data = Buf::from(&[nth; 512][..]);
        queue.submit(Io::write(data, u64::from(nth) * 512).user_data(nth.into()))?;
    }
    drop(plugged);
    queue.reap(16, 16, &mut done);
    assert!(done.len() == 16 && done.iter().all(|io| io.result == Ok(512)));
    let [first, second] = &*copies;
    let held = first.lock().unwrap();
    assert!((0..16).all(|nth| held[nth * 512..][..512] == [nth as u8; 512]));
    assert!(*held == *second.lock().unwrap());

    // The worker is blocked, so the wait for it is reported, and continues.
    let reader = disk.clone();
    let reader = thread::spawn(move || reader.read_at(&mut [0; 512], 0));
    let stall = reported.recv_timeout(Duration::from_secs(60))?;
    assert!(stall.disk == "backend:mirror" && stall.nr_requests == 1, "{stall}");
    drop(held);
    assert_eq!(reader.join().expect("no panic"), Ok(512));

    // A worker that panics fails only the disk.
    let broken = Arc::clone(&copies);
    let _ = thread::spawn(move || {
        let _held = broken[0].lock();
        panic!("a copy is lost");
    })
    .join();
    let failed = disk.read_at(&mut [0; 512], 0);
    assert_eq!(failed.unwrap_err(), IoError::Ended(BlockStatus::Offline));
    assert!(disk.is_failed(), "{:?}", disk.failure());
    drop((queue, disk));
    assert!(server.join().is_err(), "the worker has panicked");
    println!("outside: a mirror of {LEN} bytes works");
    Ok(())
}
