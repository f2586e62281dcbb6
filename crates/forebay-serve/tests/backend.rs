//! A disk on a back end of the program, served over NBD and as a vhost-user-blk device at once.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "rings/guest.rs"]
mod guest;

use forebay::{Backend, Batch, Disk, Op, Policy, QueueLimits, Request};
use forebay_serve::{Address, DeviceOptions, DeviceSocket, ExportOptions, Options};
use guest::{DATA, Guest, SIZE, serve_with};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress};

const LEN: usize = 1 << 20;

/// A disk in memory, whose thread serves the requests.
struct Memory(Mutex<Sender<Request>>);

impl Memory {
    fn new(bytes: Arc<Mutex<Vec<u8>>>) -> Memory {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || {
            for mut request in requests {
                let mut bytes = bytes.lock().expect("no panic");
                let start = request.offset() as usize;
                let range = start..start + request.len() as usize;
                match request.op() {
                    Op::Read => request.copy_from(0, &bytes[range]),
                    Op::Write => request.copy_to(0, &mut bytes[range]),
                    _ => {}
                }
                drop(bytes);
                request.complete(Ok(()));
            }
        });
        Memory(Mutex::new(sender))
    }
}

impl Backend for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        let sender = self.0.lock().expect("no panic");
        batch.for_each(|request| sender.send(request).expect("the thread runs"));
    }
}

#[test]
fn back_end_is_served_over_nbd_and_as_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = Arc::new(Mutex::new(vec![0; LEN]));
    let limits = QueueLimits::default().capacity_bytes(Some(LEN as u64)).volatile_cache(true);
    let backend = Memory::new(Arc::clone(&bytes));
    let disk = Disk::with_backend(backend, limits, Policy::default()).expect("a disk");
    let [nbd, ring] = ["nbd", "ring"].map(|name| folder.path().join(name));
    let options = Options {
        exports: vec![ExportOptions { disk: Some(disk), ..ExportOptions::default() }],
        listen: vec![Address::Unix(nbd.clone())],
        devices: vec![DeviceOptions {
            export: 0,
            socket: DeviceSocket::Path(ring.clone()),
            nr_queues: 1,
            queue_size: SIZE,
            block_size: None,
            serial: String::new(),
        }],
        ..Options::default()
    };
    serve_with(options, || {
        // A client of NBD writes.
        let client = Disk::open(&format!("nbd+unix:///?socket={}", nbd.display())).expect("NBD");
        assert_eq!(client.capacity_bytes(), Some(LEN as u64));
        client.write_at(&[7; 8192], 4096).expect("a write");
        client.flush().expect("a flush");
        assert_eq!(bytes.lock().expect("no panic")[4096..12288], [7; 8192]);
        // A guest reads these bytes, and writes others.
        let mut guest = Guest::connect(&ring);
        guest.request_of(0, false, 8, [(DATA, 4096), (DATA + 8192, 4096)]);
        guest.kick();
        guest.wait();
        assert_eq!(guest.status(0), 0);
        let mut read = [0; 4096];
        guest.memory.read_slice(&mut read, GuestAddress(DATA + 8192)).expect("in memory");
        assert_eq!(read, [7; 4096]);
        guest.write(DATA, &[9; 512]);
        guest.request_of(0, true, 0, [(DATA, 512)]);
        guest.kick();
        guest.wait();
        assert_eq!(guest.status(0), 0);
        assert_eq!(bytes.lock().expect("no panic")[..512], [9; 512]);
    });
}

#[test]
fn open_disk_without_a_fixed_size_is_refused_by_its_name() {
    let backend = Memory::new(Arc::default());
    let limits = QueueLimits::default().capacity_bytes(None);
    let disk = Disk::with_backend(backend, limits, Policy::default()).expect("a disk");
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        exports: vec![ExportOptions { disk: Some(disk), ..ExportOptions::default() }],
        listen: vec![Address::Unix(folder.path().join("nbd"))],
        ..Options::default()
    };
    let refused = forebay_serve::Server::open(options).expect_err("no size").to_string();
    assert!(refused.starts_with("backend:memory: cannot export"), "{refused}");
}
