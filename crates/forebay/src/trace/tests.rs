//! Traces of real disks, read again.

mod reports;

use super::disk::OpenDisk;
use super::*;
use crate::{Buf, Disk, Io};
use forebay_trace::directory::DEVICES;
use forebay_trace::reader::TraceFiles;
use forebay_trace::record::{Act, Categories, Kind};
use forebay_trace::stream::receive;
use std::fs;
use std::sync::mpsc;

/// Returns the stages of the first disk of a trace, as letters, with sectors and bytes.
fn stages(dir: &Path) -> Vec<(&'static str, u64, u32)> {
    let all = directory::find(dir).expect("files");
    let (_, paths) = all.first_key_value().expect("a disk");
    let mut files = TraceFiles::open(paths).expect("a trace");
    let mut stages = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        if let Kind::Stage(act) = entry.record.kind {
            stages.push((act.letters(), entry.record.sector, entry.record.bytes));
        }
    }
    assert_eq!(files.nr_missing(), 0);
    stages
}

fn letters(dir: &Path) -> String {
    stages(dir).iter().map(|(letters, _, _)| *letters).collect()
}

/// Traces what `work` does on a disk of this spec.
fn trace(spec: &str, work: impl FnOnce(&Disk)) -> (tempfile::TempDir, TraceStats) {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Disk::open(spec).expect("it opens");
    let trace = Trace::create(dir.path()).expect("an empty directory");
    trace.add(&disk).expect("it is not traced yet");
    work(&disk);
    let stats = trace.finish().expect("the files are written");
    (dir, stats)
}

#[test]
fn merged_bios_of_a_plug_have_all_stages_in_order() {
    let (dir, stats) = trace("ram:1M", |disk| {
        let mut queue = disk.queue();
        let plug = crate::plug();
        for nth in 0..3 {
            queue.submit(Io::write(Buf::new(4096), nth * 4096)).expect("room");
        }
        drop(plug);
        queue.reap(3, 3, &mut Vec::new());
    });
    assert_eq!(letters(dir.path()), "QPQMQMUGDC");
    let all = stages(dir.path());
    assert_eq!(all[3], ("M", 8, 4096));
    assert_eq!(all[9], ("C", 0, 12288));
    assert_eq!((stats.records, stats.lost), (10, 0));
    let list = fs::read_to_string(dir.path().join(DEVICES)).expect("a list");
    assert_eq!(list, "240,0\tram-1M\tram:1M\n");
}

#[test]
fn split_bio_waits_for_its_second_tag() {
    let spec = "ram:1M?max_sectors_kb=4&queue_depth=1";
    let (dir, _) = trace(spec, |disk| {
        disk.read_at(&mut [0; 8192], 0).expect("it is read");
    });
    assert_eq!(letters(dir.path()), "QXGDSCGDC");
}

#[test]
fn each_io_that_waits_for_a_tag_does_so_once_under_each_wake_policy() {
    for wake in ["fair", "single", "batch"] {
        let (dir, stats) = trace(&format!("ram:1M?queue_depth=1&wake={wake}"), |disk| {
            let mut queue = disk.queue();
            let plug = crate::plug();
            for nth in 0..3 {
                queue.submit(Io::write(Buf::new(512), nth * 4096)).expect("room");
            }
            drop(plug);
            // While its thread waits.
            queue.submit(Io::write(Buf::new(512), 1 << 16)).expect("room");
            queue.reap(4, 4, &mut Vec::new());
        });
        assert_eq!(stats.lost, 0);
        let all = stages(dir.path());
        let sleepers: Vec<_> = all.iter().filter(|(act, ..)| *act == "S").collect();
        let sectors: std::collections::BTreeSet<_> = sleepers.iter().map(|(_, at, _)| at).collect();
        assert_eq!(sleepers.len(), sectors.len(), "{wake}: {all:?}");
        assert!([&8, &16].iter().all(|at| sectors.contains(*at)), "{wake}: {all:?}");
        for at in sectors {
            let place = |act: &str| all.iter().position(|it| it.0 == act && it.1 == *at);
            assert!(place("Q") < place("S") && place("S") < place("G"), "{wake}, {at}: {all:?}");
        }
    }
}

#[test]
fn failed_and_refused_requests_complete_with_an_error() {
    let (dir, _) = trace("fault:ram:1M?rule=read:medium:nth=1", |disk| {
        let error = disk.read_at(&mut [0; 4096], 4096).expect_err("the rule");
        assert_eq!(error.errno(), libc::ENODATA, "{error:?}");
    });
    let all = directory::find(dir.path()).expect("files");
    let paths = all.first_key_value().expect("a disk").1;
    let mut files = TraceFiles::open(paths).expect("a trace");
    let mut errors = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        if entry.record.kind == Kind::Stage(Act::Complete) {
            assert!(entry.record.categories.has(Categories::READ));
            errors.push(entry.record.error);
        }
    }
    assert_eq!(errors, [-(libc::ENODATA as i16)]);
}

#[test]
fn flush_and_scheduler_have_their_stages() {
    let (dir, _) = trace("model:sata?size=1M&scheduler=mq-deadline", |disk| {
        disk.write_at(&[1; 4096], 0).expect("it is written");
        disk.flush().expect("it is flushed");
    });
    let all = letters(dir.path());
    assert!(all == "QGDCQDC" || all == "QGIDCQDC", "{all}");
}

#[test]
fn second_trace_of_a_disk_or_directory_is_refused_by_name() {
    let dirs = [0, 1].map(|_| tempfile::tempdir().expect("a directory"));
    let disk = Disk::open("ram:1M?tag_set=a-trace").expect("it opens");
    let first = Trace::create(dirs[0].path()).expect("an empty directory");
    first.add(&disk).expect("it is not traced");
    let error = Trace::create(dirs[1].path()).expect("another").add(&disk).expect_err("twice");
    let expected = "ram:1M?tag_set=a-trace: the disk is traced already: end that trace first";
    assert_eq!(error.to_string(), expected);
    disk.write_at(&[1; 512], 0).expect("it is written");
    let expected = "ram:1M?tag_set=a-trace: cannot be traced: the trace has ended";
    first.stop();
    assert_eq!(first.add(&disk).expect_err("it has ended").to_string(), expected);
    first.finish().expect("the files are written");
    let text = Trace::create(dirs[0].path()).expect_err("it has a trace").to_string();
    assert!(text.ends_with("remove its files, or choose another directory"), "{text}");
    // The disk can be traced again, by the thread that has a ring of the first trace.
    let again = tempfile::tempdir().expect("a directory");
    let trace = Trace::create(again.path()).expect("an empty directory");
    trace.add(&disk).expect("the first has ended");
    disk.write_at(&[1; 512], 0).expect("it is written");
    drop(disk);
    assert_eq!(trace.finish().expect("the files are written").records, 4);
    assert_eq!(letters(again.path()), "QGDC");
}

#[test]
fn threads_that_end_leave_their_files_to_the_next() {
    let (dir, stats) = trace("null:1M", |disk| {
        for _ in 0..20 {
            std::thread::scope(|scope| {
                scope.spawn(|| disk.write_at(&[1; 512], 0).expect("it is written"));
            });
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
    });
    assert_eq!((stats.records, stats.lost), (80, 0));
    assert_eq!(stages(dir.path()).len(), 80);
    let files = directory::find(dir.path()).expect("files");
    assert!(files["null-1M"].len() < 15, "{}", files["null-1M"].len());
}

#[test]
fn owned_contexts_that_open_later_are_traced() {
    let (dir, stats) = trace("ram:1M?nr_hw_queues=3", |disk| {
        std::thread::scope(|scope| {
            for nth in 0..2 {
                scope.spawn(move || {
                    let mut queue = disk.queue();
                    queue.submit(Io::write(Buf::new(4096), nth * 4096)).expect("room");
                    queue.reap(1, 1, &mut Vec::new());
                });
            }
        });
    });
    assert_eq!((stats.records, stats.lost), (8, 0));
    assert_eq!(stages(dir.path()).len(), 8);
}

/// Waits until a condition holds.
#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 20, "it does not come true");
        std::thread::yield_now();
    }
}

#[test]
fn files_of_a_closed_disk_are_closed_while_the_trace_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = Trace::create(dir.path()).expect("it is empty");
    let nr_open = || {
        let links = fs::read_dir("/proc/self/fd").expect("it is there").flatten();
        let links = links.filter_map(|link| fs::read_link(link.path()).ok());
        links.filter(|path| path.starts_with(dir.path())).count()
    };
    for nth in 1..=3 {
        let disk = Disk::open("ram:1M?tag_set=closed-while-traced").expect("it opens");
        trace.add(&disk).expect("it is not traced");
        disk.write_at(&[1; 4096], 0).expect("it is written");
        wait_until(|| trace.stats().records == 4 * nth && nr_open() > 0);
        drop(disk);
        wait_until(|| nr_open() == 0);
        assert_eq!(trace.stats(), TraceStats { records: 4 * nth, lost: 0 });
    }
    assert_eq!(trace.finish().expect("it is complete").records, 12);
    assert_eq!(directory::find(dir.path()).expect("files").len(), 3);
    assert_eq!(letters(dir.path()), "QGDC");
}

/// Returns a trace that is sent, and its receiver's end.
fn sent() -> (Trace, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    (Trace::send(ours).expect("a socket"), theirs)
}

#[test]
fn receiver_writes_the_files_and_may_end_the_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    directory::create(dir.path()).expect("it is empty");
    let disk = Disk::open("ram:1M?tag_set=a-receiver").expect("it opens");
    let (trace, receiver) = sent();
    trace.add(&disk).expect("it is not traced");
    disk.write_at(&[1; 4096], 0).expect("it is written");
    receiver.shutdown(std::net::Shutdown::Write).expect("it is connected");
    let totals = receive(&receiver, dir.path()).expect("a complete trace");
    assert_eq!((totals.records, totals.lost), (4, 0));
    assert_eq!(trace.wait().expect("it is complete"), TraceStats { records: 4, lost: 0 });
    assert_eq!((letters(dir.path()).as_str(), trace.dir()), ("QGDC", None));
    let list = fs::read_to_string(dir.path().join(DEVICES)).expect("a list");
    assert_eq!(list, "240,0\tram-1M\tram:1M?tag_set=a-receiver\n");
    // The disk can be traced again, although the handle of the first trace is there.
    let (again, _receiver) = sent();
    again.add(&disk).expect("the first has ended");
}

#[test]
fn trace_without_a_receiver_ends_with_its_reason() {
    let disk = Disk::open("ram:1M").expect("it opens");
    let (trace, receiver) = sent();
    trace.add(&disk).expect("it is not traced");
    drop(receiver);
    // The disk can be traced again, even if the caller does not wait for the end of the trace.
    let dir = tempfile::tempdir().expect("a directory");
    let next = Trace::create(dir.path()).expect("it is empty");
    wait_until(|| next.add(&disk).is_ok());
    let error = trace.wait().expect_err("no receiver").to_string();
    assert_eq!(error, "cannot send the trace to its receiver: it has closed the socket");
    disk.write_at(&[1; 4096], 0).expect("I/O goes on");
    let pipe = std::io::pipe().expect("a pipe").1;
    let error = Trace::send(std::os::fd::OwnedFd::from(pipe).into()).expect_err("no socket");
    assert!(error.to_string().starts_with("cannot send the trace: Socket operation on"), "{error}");
}

#[test]
fn slow_receiver_loses_counted_records_and_delays_no_io() {
    let dir = tempfile::tempdir().expect("a directory");
    directory::create(dir.path()).expect("it is empty");
    let disk = Disk::open("null:1G").expect("it opens");
    let (trace, receiver) = sent();
    trace.add(&disk).expect("it is not traced");
    // More than the ring, the buffer and the socket hold, while the receiver reads nothing.
    const NR: u64 = 150_000;
    let mut buf = [0; 512];
    for nth in 0..NR {
        disk.read_at(&mut buf, nth * 512).expect("it is read");
    }
    trace.stop();
    let totals = receive(&receiver, dir.path()).expect("a complete trace");
    let stats = trace.wait().expect("it is complete");
    assert_eq!((totals.records, totals.lost), (stats.records, stats.lost));
    assert!(stats.lost > 0, "{stats:?}");
    assert_eq!(stats.records + stats.lost, 4 * NR);
    let all = directory::find(dir.path()).expect("files");
    let mut files = TraceFiles::open(&all["null-1G"]).expect("a trace");
    let mut nr_stages = 0;
    while let Some(entry) = files.next_entry().expect("records") {
        nr_stages += u64::from(matches!(entry.record.kind, Kind::Stage(_)));
    }
    assert_eq!((nr_stages, files.nr_missing()), (stats.records, stats.lost));
}

#[test]
fn records_of_each_file_are_in_the_order_of_their_times() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(DEVICES), "").expect("it is written");
    let output = Output::Directory(dir.path().to_owned());
    let disk = Disk::open("ram:1M").expect("it opens");
    let rings = Arc::new(DiskRings::new(64));
    assert!(disk.shared.begin_trace(Arc::clone(&rings)));
    let (name, line) = ("disk".to_owned(), String::new());
    let mut traced = OpenDisk::new(TracedDisk { name, line, device: 0, rings: rings.clone() });
    let read = || _ = disk.read_at(&mut [0; 512], 0).expect("it is read");
    std::thread::scope(|scope| {
        let (go, begins) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let early = scope.spawn(move || {
            for () in begins {
                read();
                done.send(()).expect("it is awaited");
            }
        });
        go.send(()).expect("it reads");
        is_done.recv().expect("it has read");
        traced.open(&output).expect("its files are created");
        // The first record of this thread is older than the last one of the other, which ends
        // before the recorder finds this ring.
        read();
        go.send(()).expect("it reads");
        is_done.recv().expect("it has read");
        drop(go);
        early.join().expect("it ends");
    });
    traced.empty_rings(&output).expect("they are written");
    traced.open(&output).expect("its files are created");
    traced.empty_rings(&output).expect("they are written");
    disk.shared.end_trace(&rings);
    traced.flush().expect("they are written");
    assert_eq!(letters(dir.path()), "QGDC".repeat(3));
    let all = directory::find(dir.path()).expect("files");
    // One of the context, and one of each thread.
    assert_eq!(all["disk"].len(), 3);
    for path in &all["disk"] {
        let mut files = TraceFiles::open(std::slice::from_ref(path)).expect("a trace");
        let times: Vec<_> = std::iter::from_fn(|| files.next_entry().expect("records"))
            .map(|entry| entry.record.time_ns)
            .collect();
        assert!(times.is_sorted(), "{}: {times:?}", path.display());
    }
}
