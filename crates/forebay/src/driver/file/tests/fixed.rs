//! Tests of registered memory: `fixed_buffers=`.

use crate::driver::Mode;
use crate::driver::testing::{DEPTH, device};
use crate::{BUF_ALIGN, Buf};
use crate::{BioQueue, Disk, Io, OpenError};
use std::path::PathBuf;

const LEN: u64 = 1 << 20;

/// Returns a disk on a new file of zeroes, and its folder.
fn disk(keys: &str) -> (Disk, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path: PathBuf = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; LEN as usize]).expect("a scratch file");
    (Disk::open(&format!("{}?{keys}", path.display())).expect("a disk"), folder)
}

/// Completes all I/O of a queue. Returns the buffers in the order of their ids.
fn drain(queue: &mut BioQueue) -> Vec<Buf> {
    let mut done = Vec::new();
    queue.reap(queue.len(), queue.len(), &mut done);
    done.sort_by_key(|done| done.user_data);
    let buf = |done: crate::Completion| {
        let buf = done.buf.expect("it had one");
        assert_eq!(done.result, Ok(buf.len() as u64));
        buf
    };
    done.into_iter().map(buf).collect()
}

/// Writes and reads blocks; each byte of a block holds the block's number.
fn write_and_read(disk: &Disk, buf: impl Fn(usize) -> Buf, plugged: bool) {
    let mut queue = disk.queue();
    for write in [true, false] {
        let plug = plugged.then(crate::plug);
        for nth in 0..64 {
            let mut buf = buf(nth);
            let at = nth as u64 * 4096;
            let io = match write {
                true => {
                    buf.fill(nth as u8 + 1);
                    Io::write(buf, at)
                }
                false => Io::read(buf, at),
            };
            queue.submit(io.user_data(nth as u64)).expect("a good I/O");
        }
        drop(plug);
        for (nth, buf) in drain(&mut queue).iter().enumerate() {
            assert!(buf.iter().all(|byte| *byte == nth as u8 + 1), "block {nth}");
        }
    }
}

#[test]
fn bytes_are_right_through_registered_memory() {
    for keys in ["fixed_buffers=1M", "fixed_buffers=1M&direct=on", "fixed_buffers=1M&sqpoll=on"] {
        for (plugged, merge) in [(false, ""), (true, ""), (true, "&nr_hw_queues=1")] {
            let (disk, _folder) = disk(&format!("{keys}{merge}"));
            write_and_read(&disk, |_| disk.buf(4096), plugged);
        }
    }
}

/// Some merged neighbours are adjacent in memory and become one vector, and some are not.
#[test]
fn registered_memory_and_other_mix_in_merged_requests() {
    let (disk, _folder) = disk("fixed_buffers=1M");
    let spare = disk.buf(4096);
    write_and_read(&disk, |nth| if nth % 3 == 0 { Buf::new(4096) } else { disk.buf(4096) }, true);
    write_and_read(&disk, |nth| if nth < 5 { disk.buf(4096) } else { Buf::new(4096) }, true);
    assert!(disk.stats().queue.issued < 64, "they were merged");
    drop(spare);
}

#[test]
fn buffer_beyond_the_arena_is_from_the_heap() {
    let (disk, _folder) = disk("fixed_buffers=16k");
    let registered: Vec<Buf> = (0..4).map(|_| disk.buf(100)).collect();
    assert!(registered.iter().all(Buf::is_registered));
    assert!(!disk.buf(1).is_registered());
    write_and_read(&disk, |_| disk.buf(4096), false);
    drop(registered);
    assert!(disk.buf(4 * BUF_ALIGN).is_registered(), "all of it is back");
    assert!(!disk.buf(4 * BUF_ALIGN + 1).is_registered());
}

#[test]
fn a_buffer_begins_with_zeroes_and_at_a_page() {
    let (disk, _folder) = disk("fixed_buffers=16k");
    let mut buf = disk.buf(5000);
    buf.fill(1);
    drop(buf);
    let buf = disk.buf(5000);
    assert!(buf.is_registered() && buf.iter().all(|byte| *byte == 0));
    assert_eq!(buf.as_ptr().addr() % BUF_ALIGN, 0);
}

#[test]
fn buffers_outlive_their_disk_and_its_threads() {
    let (disk, _folder) = disk("fixed_buffers=1M");
    let other = disk.clone();
    let mut bufs = std::thread::spawn(move || {
        write_and_read(&other, |_| other.buf(4096), false);
        (0..8).map(|_| other.buf(4096)).collect::<Vec<Buf>>()
    })
    .join()
    .expect("no panic");
    drop(disk);
    bufs.iter_mut().for_each(|buf| buf.fill(7));
    assert!(bufs.iter().all(|buf| buf.is_registered() && buf.iter().all(|byte| *byte == 7)));
    let (elsewhere, _folder) = self::disk("");
    write_and_read(&elsewhere, |_| Buf::new(4096), false);
    let mut queue = elsewhere.queue();
    queue.submit(Io::write(bufs.pop().expect("eight"), 0)).expect("any disk takes it");
    assert_eq!(drain(&mut queue).len(), 1);
}

/// Blocking calls read and write parts of a registered buffer.
#[test]
fn blocking_calls_use_registered_memory_too() {
    let (disk, _folder) = disk("fixed_buffers=64k");
    let mut buf = disk.buf(65536);
    assert!(buf.is_registered());
    buf.fill(9);
    assert_eq!(disk.write_at(&buf[100..9000], 5000), Ok(8900));
    buf.fill(0);
    assert_eq!(disk.read_at(&mut buf[65536 - 8900..], 5000), Ok(8900));
    assert!(buf[65536 - 8900..].iter().all(|byte| *byte == 9));
    assert!(buf[..65536 - 8900].iter().all(|byte| *byte == 0));
}

#[test]
#[expect(unsafe_code, reason = "a fork is a system call")]
fn a_child_of_a_fork_that_drops_a_device_leaves_the_memory_to_its_parent() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; LEN as usize]).expect("a scratch file");
    let device = device(&format!("{}?engine=io_uring&fixed_buffers=64k", path.display()));
    // SAFETY: the child drops its copies and exits. It takes no lock of other threads except the
    // allocator's, which libc keeps consistent over a fork. The parent waits for its own child.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            drop(device);
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
    // A new ring clones the memory from the first one.
    device.open_queue(DEPTH, Mode::Owned).expect("the memory is still registered");
}

#[test]
fn a_disk_without_it_says_how_to_ask_for_it() {
    let (disk, _folder) = disk("");
    assert!(!disk.buf(4096).is_registered());
    let said = |name: &str| {
        let feature = disk.info().features.iter().find(|feature| feature.name == name);
        format!("{:?}", feature.expect("the feature is listed").state)
    };
    assert_eq!(said("fixed_buffers"), "Missing(\"not asked for: fixed_buffers=64M\")");
    assert_eq!(said("sqpoll"), "Missing(\"not asked for: sqpoll=on\")");
}

#[test]
fn bad_values_are_refused() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [0; 4096]).expect("a scratch file");
    for (keys, expected) in [
        ("fixed_buffers=2G", "fixed_buffers=2G: expected a size of 4k to 1G"),
        ("fixed_buffers=1", "fixed_buffers=1: expected a size of 4k to 1G"),
        ("sqpoll_idle_ms=5", "sqpoll_idle_ms=5: expected sqpoll=on as well"),
    ] {
        let error: OpenError = Disk::open(&format!("{}?{keys}", path.display())).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn engines_without_rings_refuse_the_keys_of_rings() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [0; 4096]).expect("a scratch file");
    let reason = "expected the driver file with engine=io_uring; aio and psync have no rings";
    for driver in ["aio", "psync"] {
        for (keys, named) in
            [("sqpoll=on", "sqpoll=on"), ("fixed_buffers=8k", "fixed_buffers=8192")]
        {
            let spec = format!("{driver}:{}?{keys}", path.display());
            let error: OpenError = Disk::open(&spec).unwrap_err();
            assert_eq!(error.to_string(), format!("{named}: {reason}"));
        }
    }
}
