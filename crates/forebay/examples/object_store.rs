//! A disk on an asynchronous object store: each request is served by a future.

use forebay::{AsyncBackend, BlockStatus, Disk, Op, Policy, QueueLimits, Request};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

/// Bytes of an object. No request crosses a boundary between objects.
const OBJECT: u64 = 64 << 10;

/// The store, with asynchronous calls.
#[derive(Default)]
struct Store(Mutex<HashMap<u64, Vec<u8>>>);

impl Store {
    async fn get(&self, number: u64) -> Vec<u8> {
        let objects = self.0.lock().expect("no panic while it is locked");
        objects.get(&number).cloned().unwrap_or_else(|| vec![0; OBJECT as usize])
    }

    async fn put(&self, number: u64, range: std::ops::Range<usize>, bytes: &[u8]) {
        let mut objects = self.0.lock().expect("no panic while it is locked");
        let object = objects.entry(number).or_insert_with(|| vec![0; OBJECT as usize]);
        object[range].copy_from_slice(bytes);
    }
}

async fn serve(store: Arc<Store>, mut request: Request) {
    let (number, at) = (request.offset() / OBJECT, (request.offset() % OBJECT) as usize);
    let range = at..at + request.len() as usize;
    match request.op() {
        Op::Read => request.copy_from(0, &store.get(number).await[range]),
        Op::Write => store.put(number, range, &request.to_vec()).await,
        _ => return request.complete(Err(BlockStatus::NotSupported)),
    }
    request.complete(Ok(()));
}

/// Runs a future on a thread of its own, in place of an executor such as tokio.
fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    std::thread::spawn(|| {
        let mut future = Box::pin(future);
        while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(Store::default());
    let backend = AsyncBackend::new("objects", move |rq| serve(Arc::clone(&store), rq), spawn);
    let chunk = (OBJECT / 512) as u32;
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).chunk_sectors(chunk);
    let disk = Disk::with_backend(backend, limits, Policy::default())?;
    disk.write_at(&[7; 8192], OBJECT - 4096)?; // two requests
    let mut read = [0; 8192];
    assert!(disk.read_at(&mut read, OBJECT - 4096)? == 8192 && read == [7; 8192]);
    Ok(())
}
