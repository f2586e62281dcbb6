//! The `vhost-user` driver with qemu-storage-daemon, and with programs that are no such server.

use crate::common::{Scratch, feature, open, reap_all, submit};
use crate::forked::in_child;
use crate::skip::{skip, skip_always};
use crate::storage_daemon::StorageDaemon;
use forebay::{BlockStatus, Buf, Disk, FeatureState, Io, IoError};

/// Starts a daemon on a file. Reports a skipped test if that is not possible here.
pub(crate) fn daemon(scratch: &Scratch) -> Option<StorageDaemon> {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    if !cfg!(feature = "vhost-user") {
        skip_always(&test, "this build lacks the feature `vhost-user`");
        return None;
    }
    StorageDaemon::new(&scratch.path).map_err(|why| skip(&test, &why)).ok()
}

#[test]
fn properties_are_those_of_the_export() {
    let scratch = Scratch::new((1 << 20) + 512);
    let Some(daemon) = daemon(&scratch) else { return };
    let disk = open(&format!("{}?nr_hw_queues=5", daemon.spec()));
    let limits = disk.limits();
    assert_eq!(disk.capacity_bytes(), Some((1 << 20) + 512));
    assert_eq!(
        (limits.logical_block_size, limits.max_sectors, limits.max_segments),
        (512, 1024, 128)
    );
    assert!(limits.volatile_cache && !limits.fua && !limits.read_only);
    assert_eq!((limits.max_discard_sectors, limits.max_discard_segments), (32768, 1));
    let present = |name| matches!(feature(disk.info(), name), FeatureState::Present(_));
    assert!(["virtio", "indirect_desc", "event_idx", "flush", "discard"].into_iter().all(present));
    let queues = FeatureState::Present("5 of the server's 5 queues, 512 descriptors each".into());
    assert_eq!(feature(disk.info(), "virtio"), &queues);
    let error = Disk::open(&format!("{}?nr_hw_queues=6", daemon.spec())).expect_err("too many");
    let expected = "nr_hw_queues=6: expected 1 to 5, the number of queues that the server has";
    assert_eq!(error.to_string(), expected);
    // The default number of contexts is no error, and a small ring limits the depth.
    let disk = open(&format!("{}?queue_size=64", daemon.spec()));
    assert_eq!(disk.info().policy.queue_depth, 63);
    drop(disk);
    let error = Disk::open(&format!("{}?queue_size=64&queue_depth=64", daemon.spec()));
    let error = error.expect_err("a full ring").to_string();
    assert!(error.contains("takes at least 1 descriptor of a ring of 64"), "{error}");
}

#[test]
fn written_data_is_in_the_file_after_a_flush() {
    let scratch = Scratch::new(1 << 20);
    let Some(daemon) = daemon(&scratch) else { return };
    let disk = open(&daemon.spec());
    let data: Vec<u8> = (0..300 << 10).map(|at: u32| (at / 3) as u8).collect();
    assert_eq!(disk.write_at(&data, 512), Ok(300 << 10));
    disk.flush().expect("a flush");
    let file = std::fs::read(&scratch.path).expect("the file");
    assert!(file[512..][..300 << 10] == data && file[..512].iter().all(|byte| *byte == 0));
    assert_eq!(disk.stats().queue.flushes_issued, 1, "a flush reaches the server");
}

#[test]
fn rings_pass_from_thread_to_thread() {
    let scratch = Scratch::new(1 << 20);
    let Some(daemon) = daemon(&scratch) else { return };
    let disk = open(&format!("{}?nr_hw_queues=3&queue_size=16&poll_us=50", daemon.spec()));
    for round in 0..20_u64 {
        std::thread::scope(|scope| {
            for nth in 0..4 {
                let disk = &disk;
                scope.spawn(move || {
                    let mut queue = disk.queue();
                    let at = |n: u64| (nth * 8 + n) * 4096;
                    for n in 0..8 {
                        submit(&mut queue, Io::write(Buf::from(&[round as u8; 4096][..]), at(n)));
                    }
                    assert!(reap_all(&mut queue).iter().all(|done| done.result == Ok(4096)));
                    for n in 0..8 {
                        submit(&mut queue, Io::read(Buf::new(4096), at(n)));
                    }
                    for done in reap_all(&mut queue) {
                        let read = done.buf.expect("a read has its buffer");
                        assert!(read.iter().all(|byte| *byte == round as u8));
                    }
                });
            }
        });
    }
}

#[test]
fn death_of_the_server_fails_the_device_and_all_waits() {
    for keys in ["nr_hw_queues=1", "nr_hw_queues=3", "service=on", "poll_us=100&nr_hw_queues=3"] {
        let scratch = Scratch::new(1 << 20);
        let Some(mut daemon) = daemon(&scratch) else { return };
        let disk = open(&format!("{}?{keys}", daemon.spec()));
        let offline = Err(IoError::Ended(BlockStatus::Offline));
        std::thread::scope(|scope| {
            for nth in 0..4_u64 {
                let disk = &disk;
                scope.spawn(move || {
                    let mut queue = disk.queue();
                    loop {
                        let mut buf = [0; 4096];
                        let blocking = disk.read_at(&mut buf, nth * 4096);
                        (0..8).for_each(|n| submit(&mut queue, Io::read(Buf::new(4096), n * 4096)));
                        let ended = reap_all(&mut queue);
                        assert_eq!(ended.len(), 8);
                        let is_known =
                            |result| result == Ok(4096) || result == Err(BlockStatus::Offline);
                        assert!(ended.iter().all(|done| is_known(done.result)), "{ended:?}");
                        match blocking {
                            Ok(len) => assert_eq!(len, 4096),
                            failed => return assert_eq!(failed, offline),
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            daemon.kill();
        });
        assert!(disk.is_failed());
        assert_eq!(disk.failure().as_deref(), Some("the server has closed the connection"));
        assert_eq!(disk.write_at(&[0; 512], 0), offline, "and it stays so");
    }
}

#[test]
fn idle_disk_finds_the_death_of_the_server_at_its_next_request() {
    let scratch = Scratch::new(1 << 20);
    let Some(mut daemon) = daemon(&scratch) else { return };
    let disk = open(&daemon.spec());
    assert_eq!(disk.read_at(&mut [0; 512], 0), Ok(512));
    daemon.kill();
    for _ in 0..3 {
        let read = disk.read_at(&mut [0; 512], 0);
        assert_eq!(read, Err(IoError::Ended(BlockStatus::Offline)));
    }
}

#[test]
#[cfg(feature = "tracing")]
fn death_of_the_server_is_one_event() {
    let scratch = Scratch::new(1 << 20);
    let Some(mut daemon) = daemon(&scratch) else { return };
    let spec = daemon.spec();
    let lines = crate::events::events_on(&spec, |disk| {
        daemon.kill();
        for _ in 0..3 {
            disk.read_at(&mut [0; 512], 0).expect_err("the server is dead");
        }
    });
    let why = "reason=\"the server has closed the connection\"";
    assert_eq!(lines, [format!("ERROR disk gone disk={spec:?} {why}")]);
}

#[test]
fn child_of_a_fork_leaves_the_connection_to_its_parent() {
    let scratch = Scratch::new(1 << 20);
    let Some(daemon) = daemon(&scratch) else { return };
    let mut disk = Some(open(&daemon.spec()));
    let ok = in_child(|| {
        let disk = disk.take().expect("the child's copy");
        let is_refused = disk.read_at(&mut [0; 512], 0).is_err();
        drop(disk);
        is_refused
    });
    assert!(ok, "the child can drop its copy");
    let disk = disk.expect("the parent's");
    assert_eq!(disk.read_at(&mut [0; 512], 0), Ok(512));
    assert_eq!(disk.failure(), None);
}

#[test]
#[cfg(feature = "vhost-user")]
fn peer_that_is_no_vhost_user_server_is_refused() {
    use std::io::Read;
    use std::net::Shutdown;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = tempfile::tempdir().expect("a scratch folder");
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let spec = format!("vhost-user:{}", socket.display());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("a client");
            let mut message = [0; 12];
            client.read_exact(&mut message).expect("the first message");
            // The child of a fork, in another test, may have a copy of each socket for a while.
            // This call ends the copies too; a drop does not.
            client.shutdown(Shutdown::Both).expect("connected");
        });
        let error = Disk::open(&spec).expect_err("it hangs up").to_string();
        assert!(error.starts_with(&format!("{spec}: GET_FEATURES failed: ")), "{error}");
    });
    // The type is only for its method; a listener has none.
    let listener = UnixStream::from(OwnedFd::from(listener));
    listener.shutdown(Shutdown::Both).expect("a socket that listens");
    let error = Disk::open(&spec).expect_err("no program listens").to_string();
    assert!(
        error.ends_with("no program listens there: start the server, or check the path"),
        "{error}"
    );
    let error = Disk::open("vhost-user:/nowhere/s").expect_err("no socket").to_string();
    assert!(error.starts_with("vhost-user:/nowhere/s: cannot connect: No such file"), "{error}");
    let error = Disk::open(&format!("{spec}?queue_size=3")).expect_err("a bad size").to_string();
    assert_eq!(error, "queue_size=3: expected a power of two, 4 to 1024");
    let error = Disk::open(&format!("{spec}?poll_us=100001")).expect_err("too long").to_string();
    assert_eq!(error, "poll_us=100001: expected a number of microseconds, 0 to 100000");
    let error = Disk::open("ram:1M?poll_us=10").expect_err("no server polls there").to_string();
    assert!(error.contains("poll_us"), "{error}");
    let error = Disk::open(&format!("{spec}?exclusive=on")).expect_err("one client").to_string();
    let expected = "exclusive=on: expected off: a vhost-user server has one client";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
#[cfg(not(feature = "vhost-user"))]
fn build_without_the_feature_names_it() {
    let error = Disk::open("vhost-user:/run/s").expect_err("no driver").to_string();
    let expected = "vhost-user:/run/s: no such driver in this build: build forebay with its \
                    feature `vhost-user`";
    assert_eq!(error, expected);
}
