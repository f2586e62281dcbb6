//! Durable points, shared flushes and losses, through the public API.

use crate::common::{Scratch, open};
use crate::event_loop::run;
use crate::nbd_server::{NbdServer, export};
use forebay::{BlockStatus, Buf, Disk, Io, IoError, LostWrites};
use forebay_nbd::server::Command;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};

const PAGE: usize = 4096;

fn open_image(image: &Scratch, before: &str, after: &str) -> Disk {
    open(&format!("{before}{}{after}", image.path.display()))
}

#[test]
fn a_write_is_durable_once_its_point_was_waited_for() {
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "", "");
    disk.write_at(&[1; PAGE], 0).expect("a write");
    let point = disk.durable_point();
    assert!(!disk.is_durable(point));
    disk.durable(point).wait().expect("a flush");
    assert!(disk.is_durable(point));
    disk.durable(point).wait().expect("nothing to do");
    let stats = disk.stats().queue;
    assert_eq!((stats.flushes_asked, stats.flushes_issued), (1, 1), "it is known to be durable");
}

#[test]
fn completion_has_the_durable_point_to_wait_for() {
    let image = Scratch::new(1 << 20);
    for spec in ["", "aio:", "psync:"] {
        let disk = open_image(&image, spec, "");
        let mut queue = disk.queue();
        let mut done = Vec::new();
        queue.submit(Io::write(Buf::new(PAGE), 0)).expect("a write");
        queue.submit(Io::read(Buf::new(PAGE), 8192)).expect("a read");
        queue.reap(2, 2, &mut done);
        let point = done.iter().map(|completion| completion.durable_point).max();
        let point = point.expect("two have ended");
        assert!(point > 0 && done.iter().any(|completion| completion.durable_point == 0));
        queue.submit(Io::flush_up_to(point).user_data(7)).expect("a flush");
        done.clear();
        queue.reap(1, 1, &mut done);
        assert_eq!((done[0].user_data, done[0].result), (7, Ok(0)));
        assert!(disk.is_durable(point));
    }
}

#[test]
fn a_point_is_awaited_as_a_future() {
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "", "?service=on");
    let ios = async {
        let written = disk.start(Io::write(Buf::new(PAGE), 0)).await.expect("taken");
        disk.durable(written.durable_point).await.expect("a flush");
        assert!(disk.is_durable(written.durable_point));
        disk.durable(written.durable_point).await.expect("nothing to do");
    };
    run(ios, std::thread::park);
    assert_eq!(disk.stats().queue.flushes_issued, 1);
}

#[test]
fn a_durable_write_needs_no_flush_or_one() {
    let image = Scratch::new(1 << 20);
    for (spec, nr_flushes) in [("?fua=on", 0), ("?fua=off", 1)] {
        let disk = open_image(&image, "", spec);
        assert_eq!(disk.write_durable_at(&[7; PAGE], 4096), Ok(4096));
        assert_eq!(disk.stats().queue.flushes_issued, nr_flushes, "{spec}");
    }
}

#[test]
fn a_disk_without_a_cache_makes_everything_durable_at_once() {
    let disk = open("ram:1M");
    disk.write_at(&[1; PAGE], 0).expect("a write");
    assert_eq!(disk.durable_point(), 0);
    disk.durable(disk.durable_point()).wait().expect("nothing to do");
    disk.flush().expect("nothing to do");
    assert_eq!(disk.stats().queue.flushes_asked, 0);
}

#[test]
fn each_flush_that_threads_ask_for_is_issued_joined_or_elided() {
    const NR_THREADS: u64 = 16;
    const NR_WRITES: u64 = 50;
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "", "");
    std::thread::scope(|scope| {
        for nth in 0..NR_THREADS {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..NR_WRITES {
                    let page = (nth * NR_WRITES + round) % 256;
                    disk.write_at(&[1; PAGE], page * PAGE as u64).expect("a write");
                    let point = disk.durable_point();
                    disk.durable(point).wait().expect("a flush");
                    assert!(disk.is_durable(point));
                }
            });
        }
    });
    let stats = disk.stats().queue;
    let answered = stats.flushes_issued + stats.flushes_joined + stats.flushes_elided;
    assert_eq!(stats.flushes_asked, answered, "each is accounted for: {stats:?}");
    assert!(stats.flushes_asked <= NR_THREADS * NR_WRITES);
    assert!(disk.is_durable(disk.durable_point()));
}

#[test]
fn threads_whose_flushes_were_held_back_share_two_at_most() {
    const NR_THREADS: usize = 16;
    let image = Scratch::new(1 << 20);
    for spec in ["", "aio:", "psync:"] {
        let disk = open_image(&image, spec, "?nr_hw_queues=1");
        disk.write_at(&[1; PAGE], 0).expect("a write");
        let all_asked = Barrier::new(NR_THREADS + 1);
        // No flush is issued until all threads have submitted one.
        let quiesced = disk.quiesce();
        std::thread::scope(|scope| {
            for _ in 0..NR_THREADS {
                scope.spawn(|| {
                    let mut queue = disk.queue();
                    queue.submit(Io::flush()).expect("a flush");
                    all_asked.wait();
                    let mut done = Vec::new();
                    queue.reap(1, 1, &mut done);
                    assert_eq!(done[0].result, Ok(0));
                });
            }
            all_asked.wait();
            drop(quiesced);
        });
        let stats = disk.stats().queue;
        let nr_all = NR_THREADS as u64;
        assert_eq!(stats.flushes_asked, nr_all, "{spec}");
        assert_eq!(stats.flushes_issued + stats.flushes_joined, nr_all, "{spec}");
        // When the gate opens, flushes leave the backlog one by one, so the first may be issued
        // alone.
        assert!(stats.flushes_issued <= 2, "{spec}: {} flushes", stats.flushes_issued);
    }
}

/// A disk whose device holds flushes until the test answers them, one by one.
struct HeldFlushes {
    disk: Disk,
    /// Receives a message for each flush that reaches the device.
    come: Receiver<()>,
    /// Results for the held flushes. Once this is dropped, the device answers every flush at once.
    go: Sender<()>,
    _server: NbdServer,
}

impl HeldFlushes {
    fn new() -> HeldFlushes {
        let (has_come, come) = channel();
        let (go, may_go) = channel();
        let (has_come, may_go) = (Mutex::new(has_come), Arc::new(Mutex::new(may_go)));
        let mut told = export(1 << 20);
        told.can.multi_conn = false;
        let server = NbdServer::scripted(told, &[], move |reader, transmission| {
            let mut header = vec![0; transmission.header_len()];
            loop {
                reader.read_exact(&mut header)?;
                let rq = transmission.parse(&header).expect("a good client");
                std::io::copy(&mut reader.take(rq.payload_len.into()), &mut std::io::sink())?;
                let mut stream = reader.get_ref().try_clone()?;
                let reply = transmission.done(&rq).as_slice().to_vec();
                match rq.command {
                    Ok(Command::Disconnect) => return Ok(()),
                    Ok(Command::Flush) => {
                        let _ = has_come.lock().expect("no panic").send(());
                        let may_go = Arc::clone(&may_go);
                        std::thread::spawn(move || {
                            let _ = may_go.lock().expect("no panic").recv();
                            stream.write_all(&reply)
                        });
                    }
                    _ => stream.write_all(&reply)?,
                }
            }
        });
        HeldFlushes { disk: open(&server.uri()), come, go, _server: server }
    }

    /// Waits until `nr` flushes have been submitted.
    fn await_asked(disk: &Disk, nr: u64) {
        while disk.stats().queue.flushes_asked < nr {
            std::thread::yield_now();
        }
    }
}

#[test]
fn threads_that_write_while_a_flush_runs_share_the_next_one() {
    const NR_THREADS: u64 = 16;
    let HeldFlushes { disk, come, go, _server } = HeldFlushes::new();
    disk.write_at(&[1; PAGE], 0).expect("a write");
    std::thread::scope(|scope| {
        scope.spawn(|| disk.flush().expect("the first flush"));
        come.recv().expect("the first flush");
        for nth in 1..=NR_THREADS {
            let disk = &disk;
            scope.spawn(move || {
                disk.write_at(&[1; PAGE], nth * PAGE as u64).expect("a write");
                disk.durable(disk.durable_point()).wait().expect("a flush");
            });
        }
        HeldFlushes::await_asked(&disk, NR_THREADS + 1);
        go.send(()).expect("a server");
        come.recv().expect("the second flush");
        drop(go);
    });
    let stats = disk.stats().queue;
    assert_eq!((stats.flushes_issued, stats.flushes_joined), (2, NR_THREADS - 1));
}

#[test]
fn threads_whose_writes_a_running_flush_covers_join_it() {
    const NR_THREADS: u64 = 16;
    let HeldFlushes { disk, come, go, _server } = HeldFlushes::new();
    disk.write_at(&[1; PAGE], 0).expect("a write");
    let point = disk.durable_point();
    std::thread::scope(|scope| {
        scope.spawn(|| disk.flush().expect("the flush"));
        come.recv().expect("the flush");
        for _ in 0..NR_THREADS {
            scope.spawn(|| disk.durable(point).wait().expect("the same flush"));
        }
        HeldFlushes::await_asked(&disk, NR_THREADS + 1);
        drop(go);
    });
    let stats = disk.stats().queue;
    assert_eq!((stats.flushes_issued, stats.flushes_joined), (1, NR_THREADS));
}

#[test]
fn failed_flush_fails_all_flushes_until_acknowledged() {
    let image = Scratch::new(1 << 20);
    let disk = open_image(&image, "fault:", "?rule=flush:io:nth=2&fua=on");
    disk.write_at(&[1; PAGE], 0).expect("a write");
    disk.flush().expect("the first flush");
    let safe = disk.durable_point();
    disk.write_at(&[2; PAGE], 0).expect("a write");
    let lost = disk.durable_point();
    let failed = Err(IoError::Ended(BlockStatus::Io));
    assert_eq!(disk.flush(), failed);
    assert_eq!(disk.lost_writes(), Some(LostWrites { after: safe, up_to: lost }));
    assert_eq!(disk.flush(), failed, "another flush would prove nothing");
    assert_eq!(disk.fsync(), failed);
    assert_eq!(disk.durable(lost).wait(), failed);
    disk.durable(safe).wait().expect("what was durable is");
    disk.write_durable_at(&[3; PAGE], 8192).expect("what is durable by itself has lost nothing");
    assert_eq!(disk.acknowledge_loss(), Some(LostWrites { after: safe, up_to: lost }));
    assert_eq!(disk.lost_writes(), None);
    disk.flush().expect("a flush again");
}
