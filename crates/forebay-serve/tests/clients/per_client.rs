//! Limits of each client of an export, from the clients' point of view.

use crate::client::{Client, FLUSH, READ, WRITE, request};
use crate::counters::metrics;
use crate::server::Running;
use forebay::{Backend, Batch, Disk, Policy, QueueLimits, Rate, Request};
use forebay_serve::{ExportLimits, ExportOptions, Options};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LEN: u32 = 4096;

/// A server with one export.
struct Served {
    server: Running,
    disk: Disk,
    control: PathBuf,
}

impl Served {
    fn start(folder: &Path, spec: &str, limits: ExportLimits) -> Served {
        Served::with_disk(folder, Disk::open(spec).unwrap(), limits)
    }

    fn with_disk(folder: &Path, disk: Disk, limits: ExportLimits) -> Served {
        let run = folder.join("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, PermissionsExt::from_mode(0o700)).unwrap();
        let control = run.join("control");
        let export = ExportOptions {
            disk: Some(disk.clone()),
            name: "a".to_owned(),
            limits,
            ..ExportOptions::default()
        };
        let options =
            Options { exports: vec![export], control: Some(control.clone()), ..Options::default() };
        Served { server: Running::with_options(folder, options), disk, control }
    }

    fn connect(&self) -> Client {
        Client::new(&self.server.socket, "a", false)
    }

    /// Sends a request to the control socket, with these fields after the command and the export.
    fn control(&self, fields: &str) -> String {
        let mut socket = UnixStream::connect(&self.control).unwrap();
        writeln!(socket, r#"{{"command":"limits","export":"a"{fields}}}"#).unwrap();
        let mut reply = String::new();
        BufReader::new(&socket).read_line(&mut reply).unwrap();
        reply
    }

    /// Waits until the disk has this many owners and the export this many clients.
    #[track_caller]
    fn await_owners(&self, nr_owners: usize, nr_clients: usize) {
        let clients = format!(r#""nr_clients":{nr_clients},"#);
        for _ in 0..6000 {
            // The reply also removes owners that are over.
            let reply = self.control("");
            if reply.contains(&clients) && self.disk.owners().len() == nr_owners {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}, {}", self.disk.owners(), self.control(""));
    }
}

/// Returns limits of each client: after one I/O of 4 KiB, more than an hour passes until the next.
fn one_io() -> ExportLimits {
    let mut limits = ExportLimits::default();
    limits.client.limits.both.bps = Rate { per_s: 1, burst: Some(0) };
    limits
}

fn send(client: &mut Client, command: u16, at: u64) {
    client.socket.write_all(&request(command, 0, at, at, LEN)).unwrap();
    if command == WRITE {
        client.socket.write_all(&[7; LEN as usize]).unwrap();
    }
}

/// A device that keeps its requests until the test completes them.
#[derive(Clone, Default)]
struct Holding(Arc<Mutex<VecDeque<Request>>>);

impl Backend for Holding {
    fn name(&self) -> &str {
        "holding"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(|request| self.0.lock().unwrap().push_back(request));
    }
}

impl Holding {
    /// Completes the oldest request, once there is one. Returns where it begins.
    fn complete(&self) -> u64 {
        loop {
            let oldest = self.0.lock().unwrap().pop_front();
            if let Some(request) = oldest {
                let at = request.offset();
                request.complete(Ok(()));
                return at;
            }
            std::thread::yield_now();
        }
    }
}

/// Returns how many of the first 36 requests at a device with 4 tags are of a client with 16
/// requests, which come after the 128 requests of another one.
fn share_of_shallow(weight: Option<u32>) -> usize {
    const OF_SHALLOW: u64 = 32 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (mut limits, device) = (ExportLimits::default(), Holding::default());
    limits.client.weight = weight;
    let of_device = QueueLimits::default().capacity_bytes(Some(64 << 20));
    let policy = Policy::default().queue_depth(4).nr_hw_queues(1);
    let disk = Disk::with_backend(device.clone(), of_device, policy).unwrap();
    let served = Served::with_disk(folder.path(), disk, limits);
    let mut clients = [(); 2].map(|()| served.connect());
    for (client, (from, depth)) in clients.iter_mut().zip([(0, 128), (OF_SHALLOW, 16)]) {
        // No two neighbours, which would merge.
        (0..depth).for_each(|nth| send(client, READ, from + nth * 65_536));
        // Beyond the end, so it is refused at once. The reads before it are submitted by then.
        assert_ne!(client.ask(READ, 1 << 40, LEN), 0);
    }
    let order: Vec<_> = (0..128 + 16).map(|_| device.complete()).collect();
    order[..36].iter().filter(|at| **at >= OF_SHALLOW).count()
}

#[test]
fn clients_of_equal_weight_share_a_busy_disk_whatever_their_depths() {
    // Without weights, requests go in the order of their arrival.
    assert_eq!(share_of_shallow(None), 0);
    // The first client has all tags when the other one comes. From then on, each has half.
    assert!((15..=16).contains(&share_of_shallow(Some(100))));
}

#[test]
fn each_client_has_its_own_limit_and_keeps_no_other_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(folder.path(), "ram:1M", one_io());
    let mut clients = [0; 3].map(|_| served.connect());
    for client in &mut clients {
        send(client, READ, 0);
        assert_eq!(client.reply(|_| LEN as usize).error, 0);
        // It waits while the next client is served.
        send(client, READ, 0);
    }
    assert_eq!(served.disk.owners().len(), 4);
    let reply = served.control("");
    assert!(reply.contains(r#""limits":{"client_bps":1,"client_bps_burst":0}"#), "{reply}");
    assert!(reply.contains(r#""nr_clients":3"#), "{reply}");
    let text = metrics(&served.server);
    for line in [
        "forebay_owner_ios_total{device=\"a\",owner=\"export:a\"} 3",
        "forebay_connection_ios_total{connection=\"1\",device=\"a\"} 1",
        "forebay_connection_io_bytes_total{connection=\"3\",device=\"a\"} 4096",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(!text.contains("owner=\"client"), "{text}");
    // One of them gets another limit, then all.
    let reply = served.control(r#","client":2,"set":{"bps":0,"weight":1}"#);
    assert!(
        reply.contains("weight not set: weights need one hardware context"),
        "the disk has several contexts: {reply}"
    );
    let reply = served.control(r#","client":2,"set":{"bps":0}"#);
    assert!(!reply.contains("error"), "{reply}");
    assert_eq!(clients[1].reply(|_| LEN as usize).error, 0);
    let reply = served.control(r#","set":{"client_bps":0}"#);
    assert!(reply.contains(r#""limits":{}"#), "{reply}");
    for client in [0, 2] {
        assert_eq!(clients[client].reply(|_| LEN as usize).error, 0);
    }
    drop(clients);
    served.await_owners(1, 0);
    served.server.stop().unwrap();
}

#[test]
fn io_of_a_client_that_is_gone_waits_for_its_limit_and_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(folder.path(), "ram:1M", one_io());
    let mut client = served.connect();
    send(&mut client, READ, 0);
    assert_eq!(client.reply(|_| LEN as usize).error, 0);
    send(&mut client, WRITE, 8192);
    send(&mut client, WRITE, 65_536);
    // No limit holds a flush back. Once it is answered, the writes before it are submitted.
    assert_eq!(client.ask(FLUSH, 0, 0), 0);
    drop(client);
    // The connection is closed although its I/O waits, which keeps the owner.
    served.await_owners(2, 0);
    let mut bytes = [0; 512];
    served.disk.read_at(&mut bytes, 8192).unwrap();
    assert_eq!(bytes, [0; 512], "the write waits");
    // Another connection waits behind it.
    let mut next = served.connect();
    send(&mut next, READ, 8192);
    served.await_owners(2, 1);
    assert!(served.control(r#","set":{"client_bps":0}"#).contains("\"limits\":{}"));
    assert_eq!(next.reply(|_| LEN as usize).payload, [7; LEN as usize]);
    drop(next);
    served.await_owners(1, 0);
    served.disk.read_at(&mut bytes, 65_536).unwrap();
    assert_eq!(bytes, [7; 512], "it is done");
    // The end of the server does not wait for a limit.
    assert!(served.control(r#","set":{"client_bps":1,"client_bps_burst":0}"#).contains(":1,"));
    let mut last = served.connect();
    (0..9).for_each(|_| send(&mut last, WRITE, 0));
    served.server.stop().unwrap();
    assert_eq!(served.disk.owners().len(), 1);
}

#[test]
fn a_thousand_connections_one_after_the_other_leave_no_owner() {
    let folder = tempfile::tempdir().unwrap();
    let mut limits = ExportLimits::default();
    limits.client.limits.both.iops = Rate { per_s: 10_000_000, burst: Some(1000) };
    let served = Served::start(folder.path(), "ram:1M", limits);
    let mut most = 0;
    for nth in 0..1000 {
        let mut client = served.connect();
        send(&mut client, READ, 0);
        if nth % 2 == 0 {
            assert_eq!(client.reply(|_| LEN as usize).error, 0);
        }
        most = most.max(served.disk.owners().len());
    }
    // The server may see the end of a connection after the next has begun.
    assert!(most < 100, "{most} owners");
    served.await_owners(1, 0);
}

#[test]
fn limits_of_clients_change_under_load_while_clients_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "ram:1M?nr_hw_queues=1&nr_requests=2";
    let mut served = Served::start(folder.path(), spec, ExportLimits::default());
    let (is_over, mut replies) = (AtomicBool::new(false), Vec::new());
    let nr_reads = std::thread::scope(|scope| {
        let (served, is_over) = (&served, &is_over);
        let run = |nth: u64| {
            move || {
                let mut nr = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut client = served.connect();
                    for _ in 0..20 {
                        (0..8).for_each(|at| send(&mut client, READ, at * 65_536 + nth * 8192));
                        (0..8).for_each(|_| assert_eq!(client.reply(|_| 4096).error, 0));
                        nr += 8;
                    }
                }
                nr
            }
        };
        let clients = [0, 1, 2].map(|nth| scope.spawn(run(nth)));
        for nth in 0..200 {
            let set = match nth % 4 {
                0 => r#","set":{"client_iops":50000,"client_weight":50}"#,
                1 => r#","set":{"client_read_bps":"400m","client_weight":null,"iops":90000}"#,
                2 => r#","set":{"client_iops":0,"client_latency_target_us":5}"#,
                _ => r#","set":{"client_read_bps":0,"client_latency_target_us":0,"iops":0}"#,
            };
            replies.push(served.control(set));
            std::thread::sleep(Duration::from_millis(2));
        }
        // A check above would leave the clients running.
        is_over.store(true, Ordering::Relaxed);
        clients.map(|client| client.join().unwrap()).iter().sum::<u64>()
    });
    let refused = replies.iter().find(|reply| reply.contains("error"));
    assert_eq!((replies.len(), refused), (200, None));
    assert!(nr_reads >= 3 * 160, "{nr_reads}");
    served.await_owners(1, 0);
    served.server.stop().unwrap();
}
