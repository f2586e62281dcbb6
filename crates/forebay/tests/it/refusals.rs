//! Refused specs and I/O, with the exact error messages.
// One test drops file-access privileges with a system call.
#![allow(unsafe_code)]

use crate::common::{Scratch, open};
use forebay::{Disk, IoError, SubmitErrorKind};
use std::os::unix::net::UnixListener;

fn check_open(spec: &str, expected: &str) {
    match Disk::open(spec) {
        Ok(_) => panic!("{spec} opens"),
        Err(error) => assert_eq!(error.to_string(), expected, "{spec}"),
    }
}

#[test]
fn nbd_uris() {
    check_open(
        "nbd:localhost",
        "nbd:localhost: `localhost`: expected nbd:HOST:PORT, nbd:unix:PATH, or a URI: \
         nbd://HOST/NAME",
    );
    check_open(
        "nbd+unix:///disk?socket=/nowhere/nbd.sock",
        "nbd+unix:///disk?socket=/nowhere/nbd.sock: cannot connect: No such file or directory \
         (os error 2); there is no such socket: start the server",
    );
}

#[test]
fn specs() {
    check_open("", "empty device spec; expected [driver:]target[?key=value&...], such as disk.img");
    check_open(
        "nvme:0000",
        "driver `nvme` is not in this version; available: null, ram, model, file, aio, psync, \
         nbd, vhost-user, rbd, fault",
    );
    check_open("ram:1M?direct", "`direct` is not key=value; in a path, write `?` as %3F");
    check_open("ram:1M?plugg=none", "unknown key `plugg` for driver `ram`; did you mean `plug`?");
    check_open(
        "null:1M?colour=red",
        "unknown key `colour` for driver `null`; valid keys: async_depth, cost_read_byte_ps, \
         cost_read_io_ns, cost_write_byte_ps, cost_write_io_ns, device_depth, elide, exclusive, \
         fifo_batch, fifo_expire_async, fifo_expire_sync, flush, flush_pending_ms, front_merges, \
         fua, io_timeout_grace_ms, io_timeout_ms, iostats, kick, kick_ns, logical_block_size, \
         max_budget, max_sectors_kb, nomerges, nr_bios, nr_hw_queues, nr_requests, plug, \
         prio_aging_expire, queue_depth, read_expire, read_lat_nsec, read_only, reserved_tags, \
         run_queue, scheduler, service, slice_idle_us, tag_need, tag_set, timeout_sync, wake, \
         weight_by, write_expire, write_lat_nsec, writes_starved",
    );
    values();
}

/// Invalid values of keys, which every driver refuses.
#[track_caller]
fn values() {
    check_open("ram:1M?plug=inner", "plug=inner: expected outermost, per-level or none");
    check_open("ram:1M?nomerges=3", "nomerges=3: expected 0, 1 or 2");
    check_open("ram:1M?run_queue=never", "run_queue=never: expected dedupe or always");
    check_open("ram:1M?queue_depth=0", "queue_depth=0: expected a number from 1 to 10240");
    check_open("ram:1M?iostats=maybe", "iostats=maybe: expected on or off");
    check_open(
        "fault:fault:ram:1M",
        "fault:fault:ram:1M: expected a spec of another driver; rules can be repeated",
    );
    check_open(
        "fault:ram:1M?rule=read:busy",
        "rule=read:busy: expected nth=2 or more, or rate below 1: a device that is always busy \
         completes nothing",
    );
    check_open(
        "model:floppy",
        "model:floppy: expected one of hdd, ssd-sas, nvme, virtio-ram, sata, or a model file, \
         which is a path with a / or the ending .model",
    );
    check_open(
        "model:nvme?colour=red",
        "unknown key `colour` for driver `model`; valid keys: async_depth, bytes_per_s, \
         cost_read_byte_ps, cost_read_io_ns, cost_write_byte_ps, cost_write_io_ns, data, \
         device_depth, elide, exclusive, fifo_batch, fifo_expire_async, fifo_expire_sync, flush, \
         flush_pending_ms, front_merges, fua, io_timeout_grace_ms, io_timeout_ms, iostats, kick, \
         latency_ns, logical_block_size, max_budget, max_sectors_kb, nomerges, nr_bios, \
         nr_channels, nr_hw_queues, nr_requests, plug, prio_aging_expire, queue_depth, \
         read_expire, read_lat_nsec, read_only, reserved_tags, run_queue, scheduler, seed, \
         service, size, slice_idle_us, tag_need, tag_set, timeout_sync, wake, weight_by, \
         write_expire, write_lat_nsec, writes_starved",
    );
    check_open(
        "ram:1M?scheduler=mq-deadline&nr_hw_queues=2",
        "nr_hw_queues=2: expected 1 with a scheduler, which orders one context; or add \
         scheduler=none",
    );
    check_open(
        "model:sata?nr_hw_queues=2",
        "nr_hw_queues=2: expected 1, because the device accepts a flush only while it is idle",
    );
    check_open("model:hdd?nr_sorted=0", "nr_sorted=0: expected a number from 1 to 65536");
    check_open(
        "model:hdd?size=1000",
        "size=1000: expected a size above 0, in whole logical blocks",
    );
    check_open(
        "model:hdd?size=1000t",
        "model: 1099511627776000 bytes of address space are not available: Cannot allocate memory \
         (os error 12); data=off needs none",
    );
    check_open("ram:big", "ram:big: expected a size, such as 1G");
    check_open("ram:1000", "ram:1000: expected a size above 0, in whole logical blocks");
    check_open(
        "ram:1M?logical_block_size=4096&max_sectors_kb=1",
        "max_sectors_kb=1: expected at least 4 KiB, the logical block of this disk",
    );
}

#[test]
fn fault_rules() {
    check_open(
        "fault:ram:1M?rule=read:sad",
        "rule=read:sad: expected a status such as io or medium, short=N, busy, delay=TIME, \
         lie, nofua, writeback=STATUS, foreign_sync or hang after the operations, not 'sad'",
    );
    check_open(
        "fault:ram:1M?rule=write:nofua",
        "rule=write:nofua: expected nofua on a disk with native FUA (fua=on); on this disk no \
         request has FUA, because a flush follows each durable write or every write is durable \
         (see `forebay info`); to ignore that flush, use flush:lie",
    );
    check_open(
        "fault:ram:1M?rule=flush:nofua",
        "rule=flush:nofua: expected writes only: nofua applies to no other request; to ignore a \
         flush, use flush:lie",
    );
}

#[test]
fn settings_of_flushes() {
    check_open("ram:1M?flush=never", "flush=never: expected hold, requeue or tail");
    check_open(
        "ram:1M?flush_pending_ms=1d",
        "flush_pending_ms=1d: expected a number of milliseconds from 0 to 3600000",
    );
    check_open(
        "ram:1M?io_timeout_grace_ms=50",
        "io_timeout_grace_ms=50: expected io_timeout_ms above 0 beside it, which sets the time \
         limit",
    );
    for spec in ["model:sata?fua=on", "fault:model:sata?fua=on"] {
        check_open(
            spec,
            "fua=on: expected off: this device has no FUA, so a flush follows each durable write",
        );
    }
    open("ram:1M?fua=on");
    check_open("ram:1M?elide=maybe", "elide=maybe: expected on or off");
    check_open("ram:1M?exclusive=maybe", "exclusive=maybe: expected on or off");
}

#[test]
fn settings_of_tags() {
    check_open(
        "ram:1M?queue_depth=8&nr_requests=9",
        "nr_requests=9: expected a number from 1 to queue_depth, which is 8",
    );
    check_open(
        "ram:1M?queue_depth=8&async_depth=9",
        "async_depth=9: expected a number from 1 to queue_depth, which is 8",
    );
    check_open(
        "ram:1M?reserved_tags=4&nr_requests=4",
        "reserved_tags=4: expected a number below nr_requests, which is 4",
    );
    check_open("ram:1M?wake=lifo", "wake=lifo: expected fair, batch, stash or single");
    check_open(
        "ram:1M?wake=stash-v1",
        "wake=stash-v1: expected fair, batch, stash or single; stash-v1 can hang, so only the \
         simulator has it: use forebay sim --wake=stash-v1",
    );
}

#[test]
fn files() {
    let scratch = Scratch::new(100);
    let folder = scratch.path.parent().expect("a folder").display().to_string();
    let path = scratch.path.display().to_string();
    check_open(
        &format!("{folder}/missing.img"),
        &format!(
            "{folder}/missing.img: no such file; create it first, for example with `truncate -s 1G \
             {folder}/missing.img`"
        ),
    );
    check_open(
        "ram",
        "ram: no such file; for the driver `ram`, write `ram:` and a target, as in ram:1G",
    );
    check_open(
        "rma:1G",
        "rma:1G: no such file; if `rma` was meant as a driver, use one of null, ram, model, file, \
         aio, psync, nbd, vhost-user, rbd, fault",
    );
    check_open(
        &folder,
        &format!("{folder}: not a regular file or a block device, but a directory"),
    );
    check_open(
        "/dev/null",
        "/dev/null: not a regular file or a block device, but a character device",
    );
    check_open(
        &format!("{path}?direct=on"),
        &format!(
            "{path}: 100 bytes are less than one block of 512 bytes; extend the file, or use \
             capacity=growing"
        ),
    );
    check_open(
        &format!("{path}?size=1G"),
        "unknown key `size` for driver `file`; valid keys: async_depth, capacity, \
         cost_read_byte_ps, cost_read_io_ns, cost_write_byte_ps, cost_write_io_ns, device_depth, \
         direct, elide, engine, exclusive, fifo_batch, fifo_expire_async, fifo_expire_sync, \
         fixed_buffers, flush, flush_pending_ms, front_merges, fua, io_timeout_grace_ms, \
         io_timeout_ms, iostats, kick, lock, max_budget, max_sectors_kb, nomerges, nr_bios, \
         nr_hw_queues, nr_requests, nr_threads, plug, prio_aging_expire, queue_depth, \
         read_expire, read_lat_nsec, read_only, reserved_tags, run_queue, scheduler, service, \
         slice_idle_us, sqpoll, sqpoll_idle_ms, tag_need, tag_set, takeover_wait_ms, \
         timeout_sync, wake, weight_by, write_expire, write_lat_nsec, writes_starved",
    );
    check_open(
        &format!("{path}?engine=fast"),
        "engine=fast: expected auto, io_uring, aio or psync",
    );
    check_open(
        &format!("psync:{path}?nr_threads=0"),
        "nr_threads=0: expected a number from 1 to 1024",
    );
}

#[test]
fn no_permission() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new(4096);
    let path = scratch.path.display().to_string();
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(&scratch.path, mode(0o000)).expect("our own file");
    let folder = scratch.path.parent().expect("a folder");
    std::fs::set_permissions(folder, mode(0o755)).expect("our own folder");
    // Runs on its own thread, which gives up the superuser's file-access rights.
    std::thread::spawn(move || {
        let nobody = 65534;
        // SAFETY: this system call takes no memory, and changes this thread only.
        unsafe { libc::setfsuid(nobody) };
        check_open(&path, &format!("{path}: no permission to read and write it"));
        check_open(&format!("{path}?read_only=on"), &format!("{path}: no permission to read it"));
        let can_be_read = || std::fs::set_permissions(&path, mode(0o444)).expect("our own file");
        // SAFETY: as above; the thread regains its rights for a moment.
        unsafe { libc::setfsuid(libc::geteuid()) };
        can_be_read();
        // SAFETY: as above.
        unsafe { libc::setfsuid(nobody) };
        check_open(
            &path,
            &format!(
                "{path}: no permission to read and write it; to only read it, add read_only=on, \
                 as in `disk.img?read_only=on`"
            ),
        );
        assert!(Disk::open(&format!("{path}?read_only=on")).is_ok());
    })
    .join()
    .expect("the checks hold");
}

fn check_io<T: std::fmt::Debug>(result: Result<T, IoError>, expected: &str) {
    assert_eq!(result.expect_err("it is refused").to_string(), expected);
}

#[test]
fn ios() {
    let disk = open("ram:1M");
    check_io(
        disk.read_at(&mut [0; 512], 100),
        "misaligned: start 100 and length 512 must be multiples of the logical block size, 512 \
         bytes",
    );
    check_io(
        disk.write_at(&[0; 1024], (1 << 20) - 512),
        "out of range: 1024 bytes at 1048064 end beyond the disk's 1048576 bytes",
    );
    check_io(
        disk.discard(u64::MAX - 511, 512),
        "out of range: 512 bytes at 18446744073709551104 end beyond the disk's 1048576 bytes",
    );
    let disk = open("ram:1M?read_only=on");
    check_io(disk.write_at(&[0; 512], 0), "the disk is read-only");
    check_io(disk.write_zeroes(0, 512), "the disk is read-only");
    assert_eq!(disk.read_at(&mut [0; 512], 0), Ok(512));
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("read_only=on"));
    check_io(disk.discard(0, 4096), "the disk is read-only");
}

#[test]
fn misaligned_memory() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("direct=on"));
    let mut buf = forebay::Buf::new(1024);
    let addr = buf.as_ptr() as usize + 1;
    let unit = disk.limits().dma_alignment + 1;
    check_io(
        disk.read_at(&mut buf[1..513], 0),
        &format!(
            "misaligned memory: address {addr:#x} must be a multiple of {unit}, length 512 of 512; \
             use a `Buf`, which is aligned for every disk"
        ),
    );
}

#[test]
fn a_device_that_fails_is_reported_bio_by_bio() {
    let disk = open("fault:ram:1M?rule=read:medium:range=8k+512&rule=write:nospace:nth=2");
    let mut page = [0; 4096];
    assert_eq!(disk.read_at(&mut page, 0), Ok(4096));
    let medium = IoError::Ended(forebay::BlockStatus::Medium);
    assert_eq!(disk.read_at(&mut page, 8192), Err(medium));
    assert_eq!(disk.write_at(&page, 0), Ok(4096));
    check_io(disk.write_at(&page, 0), "no space left on the device");
    assert_eq!(disk.write_at(&page, 0), Ok(4096));
}

#[test]
fn errors_become_io_errors_with_their_text() {
    let error = std::io::Error::from(IoError::Refused(SubmitErrorKind::ReadOnly));
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(error.to_string(), "the disk is read-only");
}

/// A server that cannot be reached has the errno of the system call.
#[test]
fn errors_of_servers_have_the_errno_of_their_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing").display().to_string();
    let silent = folder.path().join("silent");
    // No program listens there any more.
    drop(UnixListener::bind(&silent).expect("a socket"));
    let silent = silent.display().to_string();
    let specs = |socket: &str| {
        let nbd = format!("nbd+unix:///?socket={socket}");
        let others = cfg!(feature = "vhost-user").then(|| format!("vhost-user:{socket}"));
        others.into_iter().chain([nbd])
    };
    for (socket, errno) in [(&missing, libc::ENOENT), (&silent, libc::ECONNREFUSED)] {
        for spec in specs(socket) {
            let error = Disk::open(&spec).expect_err("no server");
            assert_eq!(error.errno(), errno, "{error}");
            let source = std::error::Error::source(&error).expect("the error of the system call");
            let source = source.downcast_ref::<std::io::Error>().expect("an I/O error");
            assert_eq!(forebay::errno_of(source), errno, "{spec}: {source}");
        }
    }
}

#[test]
fn errors_of_calls_have_an_errno() {
    let disk = open("ram:1M");
    assert_eq!(Disk::open("").expect_err("no spec").errno(), libc::EINVAL);
    let hold = disk.quiesce();
    let read = disk.start(forebay::Io::read(forebay::Buf::new(512), 0));
    let mut read = std::pin::pin!(read);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(read.as_mut().poll(&mut context).is_pending());
    assert_eq!(disk.freeze().expect_err("a read is admitted").errno(), libc::EBUSY);
    let timeout = std::time::Duration::from_millis(1);
    let error = disk.freeze_timeout(timeout).expect_err("a read is admitted");
    assert_eq!(error.errno(), libc::EBUSY);
    drop(hold);
    let mut queue = disk.queue();
    let io = forebay::Io::read(forebay::Buf::new(512), 1 << 20);
    assert_eq!(queue.submit(io).expect_err("beyond the end").errno(), libc::ENXIO);
}
