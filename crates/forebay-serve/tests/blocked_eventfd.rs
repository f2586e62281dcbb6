//! A front end that makes writes of its eventfd block delays neither the next one nor the shutdown.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "rings/guest.rs"]
mod guest;

use guest::{DATA, Guest, USED, serve};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vhost::VhostBackend;
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

/// Sends a request whose notification blocks the thread of the ring.
fn block(guest: &mut Guest) {
    // The server has made it non-blocking before it answers a later message.
    guest.frontend.get_features().expect("GET_FEATURES");
    let _ = guest.call.read();
    guest.call.write(u64::MAX - 1).expect("room");
    // The flags belong to the open file, of which this is another descriptor.
    let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    let call = pidfd_getfd(process, guest.call.as_raw_fd(), PidfdGetfdFlags::empty());
    let call = call.expect("its descriptor");
    let flags = fcntl_getfl(&call).expect("flags");
    fcntl_setfl(&call, flags - OFlags::NONBLOCK).expect("they can be set");
    guest.request(0, true, 0, (DATA, 4));
    guest.kick();
    while guest.memory.load::<u16>(GuestAddress(USED + 2), Ordering::Acquire).unwrap()
        != guest.index
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The notification follows.
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn thread_that_an_eventfd_blocks_answers_a_stop_and_serves_the_next_front_end() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let socket = folder.path().join("0");
    let begin = Instant::now();
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        eprintln!("the thread of the ring is still blocked");
        std::process::exit(1);
    });
    let blocked = || {
        let mut guest = Guest::connect(&socket);
        block(&mut guest);
        guest
    };
    serve(folder.path(), &["ram:1M"], None, || {
        let mut guest = blocked();
        // The ring goes on with another eventfd, and stops.
        guest.call = EventFd::new(0).expect("a descriptor");
        guest.frontend.set_vring_call(0, &guest.call).expect("SET_VRING_CALL");
        guest.request(16, false, 0, (DATA, 4));
        guest.kick();
        guest.wait();
        assert_eq!([guest.status(0), guest.status(16)], [0; 2]);
        block(&mut guest);
        assert_eq!(guest.stop(), 3);
        drop(guest);
        // Neither the end of a connection nor that of the server waits for it.
        drop(blocked());
        std::mem::forget(blocked());
    });
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
