//! A process without a descriptor left. In a program of its own, since the limit is the process's.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use forebay_serve::listen::{Address, Listener, is_exhausted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, setrlimit};

fn is_readable(listener: &Listener) -> bool {
    poll(&mut [PollFd::new(&listener.as_fd(), PollFlags::IN)], Some(&Timespec::default())).unwrap()
        == 1
}

#[test]
fn without_a_descriptor_left_connections_are_refused_and_the_listener_does_not_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::open(&Address::Unix(path.clone())).unwrap();
    let mut clients: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut fill: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();

    for _ in 0..2 {
        assert!(is_readable(&listener));
        let error = listener.accept().unwrap_err();
        assert!(is_exhausted(&error), "{error}");
    }
    for client in &mut clients[..2] {
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "its peer was told");
    }
    fill.pop();
    assert!(listener.accept().unwrap().is_some(), "the third is served");
    assert!(listener.accept().unwrap().is_none());
    assert!(!is_readable(&listener));
}
