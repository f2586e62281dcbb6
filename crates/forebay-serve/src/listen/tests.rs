//! Listening at real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

fn accepted(listener: &Listener) -> (OwnedFd, Peer) {
    poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
    listener.accept().unwrap().expect("a connection is waiting")
}

fn at(folder: &tempfile::TempDir, name: &str) -> Address {
    Address::Unix(folder.path().join(name))
}

#[test]
fn a_unix_socket_takes_connections_and_its_file_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::open(&at(&folder, "a b")).unwrap();
    assert!(listener.accept().unwrap().is_none(), "no client has connected");
    let mut client = UnixStream::connect(folder.path().join("a b")).unwrap();
    let (connection, peer) = accepted(&listener);
    assert_eq!(peer.to_string(), "unix");
    client.write_all(b"x").unwrap();
    let mut byte = [0];
    assert_eq!(UnixStream::from(connection).read(&mut byte).unwrap(), 1);
    drop(listener);
    assert!(!folder.path().join("a b").exists());
}

#[test]
fn accepted_connections_do_not_block_and_are_not_inherited() {
    let listener = Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let Address::Tcp { port, .. } = listener.address() else { panic!("not TCP") };
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (connection, peer) = accepted(&listener);
    assert_eq!(peer, Peer::Tcp(client.local_addr().unwrap()));
    let flags = rustix::fs::fcntl_getfl(&connection).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    let flags = rustix::io::fcntl_getfd(&connection).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    assert!(sockopt::tcp_nodelay(&connection).unwrap());
    assert!(sockopt::socket_keepalive(&connection).unwrap());
}

#[test]
fn stale_socket_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(folder.path().join("s")).unwrap());
    let listener = Listener::open(&at(&folder, "s")).unwrap();
    UnixStream::connect(folder.path().join("s")).unwrap();
    accepted(&listener);
}

#[test]
fn a_server_that_lives_is_left_alone_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let first = Listener::open(&at(&folder, "s")).unwrap();
    let error = Listener::open(&at(&folder, "s")).unwrap_err();
    assert!(error.to_string().contains("another server listens there"), "{error}");
    // The check was a connection, which is closed.
    let (connection, _) = accepted(&first);
    assert_eq!(UnixStream::from(connection).read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone_and_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s"), "precious").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("l")).unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    for name in ["s", "l", "d"] {
        let error = Listener::open(&at(&folder, name)).unwrap_err();
        assert!(error.to_string().contains("is not a socket"), "{error}");
    }
    assert_eq!(std::fs::read(folder.path().join("s")).unwrap(), b"precious");
}

#[test]
fn replaced_socket_file_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::open(&at(&folder, "s")).unwrap();
    // Create another file first, so that the new one has a different inode number.
    let _other = UnixListener::bind(folder.path().join("t")).unwrap();
    std::fs::rename(folder.path().join("t"), folder.path().join("s")).unwrap();
    drop(listener);
    assert!(folder.path().join("s").exists());
}

#[test]
fn errors_name_the_address() {
    let error = Listener::open(&"unix:/nowhere/at/all".parse().unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("cannot listen at unix:/nowhere/at/all: "), "{error}");
    let first = Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let error = Listener::open(&first.address()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen at {}: ", first.address())), "{error}");
}

#[test]
fn a_port_can_be_listened_at_again_at_once() {
    let listener = Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let Address::Tcp { port, .. } = address else { panic!("not TCP") };
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // The kernel keeps the state of the side that closes first.
    drop(accepted(&listener));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    drop((client, listener));
    Listener::open(&address).unwrap();
}

#[test]
fn uris_are_encoded_and_say_whether_tls_is_needed() {
    let named =
        |name| Listener { name, ..Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap() };
    let unix = named(Name::Unix("/run/a b&c.sock".into()));
    assert_eq!(unix.uri("", false), "nbd+unix:///?socket=/run/a%20b%26c.sock");
    assert_eq!(unix.uri("d/ü?", true), "nbds+unix:///d/%C3%BC%3F?socket=/run/a%20b%26c.sock");
    let tcp = named(Name::Tcp { host: "::1".into(), port: 1 });
    assert_eq!(tcp.uri("/x#", false), "nbd://[::1]:1//x%23");
    let tcp = named(Name::Tcp { host: "h.example".into(), port: 10809 });
    assert_eq!(tcp.uri("x%", true), "nbds://h.example:10809/x%25");
    let all = Listener::open(&"tcp:0.0.0.0:0".parse().unwrap()).unwrap();
    assert!(all.uri("", false).starts_with("nbd://localhost:"));
}

#[test]
fn a_printed_uri_parses_to_the_same_parts() {
    use forebay_nbd::uri::{Address, Uri};
    let at = |name, address: Address| {
        let any = Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = Listener { name, ..any };
        for (export, tls) in [("", false), ("a b/c?d&e=f#g%h+i'j", true), ("/ü", false)] {
            let uri = Uri::parse(&listener.uri(export, tls)).unwrap();
            assert_eq!((uri.address, &*uri.export, uri.tls), (address.clone(), export, tls));
        }
    };
    for path in ["/run/s", "/a b/c&d=e?f#g%h+i;'j"] {
        at(Name::Unix(path.into()), Address::Unix(path.into()));
    }
    for host in ["::1", "127.0.0.1", "h.example"] {
        let name = Name::Tcp { host: host.to_owned(), port: 10809 };
        at(name, Address::Tcp { host: host.to_owned(), port: 10809 });
    }
}

#[test]
fn adopted_socket_is_not_unlinked() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(folder.path().join("s")).unwrap();
    let listener = Listener::adopt(socket.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(listener.address(), at(&folder, "s"));
    drop(listener);
    let _client = UnixStream::connect(folder.path().join("s")).unwrap();
    socket.accept().unwrap();
}
