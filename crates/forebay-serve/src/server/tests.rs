//! A server in the process of a test: what it leaves alone, and how it ends.

use super::*;
use crate::config::ExportOptions;
use rustix::net::{Shutdown, shutdown};
use std::os::unix::net::{UnixListener, UnixStream};
use tempfile::TempDir;

fn options(folder: &TempDir, name: &str) -> Options {
    Options {
        exports: vec![ExportOptions { spec: "ram:1M".to_owned(), ..ExportOptions::default() }],
        listen: vec![Address::Unix(folder.path().join(name))],
        limits: Limits { threads: 2, ..Limits::default() },
        ..Options::default()
    }
}

/// Somebody to whom it is said when the server serves.
struct Waits(std::sync::mpsc::Sender<()>);

impl Observer for Waits {
    fn ready(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_thread_that_panics_ends_the_server_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(options(&folder, "s")).unwrap();
    let threads = Threads::start(&server.shared).unwrap();
    threads.poison(1);
    // Nobody ever asks it to stop.
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let ended = server.serve(threads, stopped.as_fd(), &mut ());
    assert!(matches!(ended, Err(ServeError::Panicked)), "{ended:?}");
}

#[test]
fn a_socket_that_another_process_shuts_down_ends_the_server_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(folder.path().join("s")).unwrap();
    let sockets = vec![socket.try_clone().unwrap().into()];
    let options = Options { sockets, listen: Vec::new(), ..options(&folder, "s") };
    let server = Server::open(options).unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let (sender, is_ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || server.run(stopped, &mut Waits(sender)));
    is_ready.recv().unwrap();
    shutdown(&socket, Shutdown::Both).unwrap();
    let error = thread.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("accepting connections: a socket was shut down"), "{error}");
}

#[test]
fn what_has_not_all_it_needs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = Options { exports: Vec::new(), ..options(&folder, "s") };
    assert!(matches!(Server::open(nothing), Err(ServeError::NoExport)));
    let nowhere = Options { listen: Vec::new(), ..options(&folder, "s") };
    assert!(matches!(Server::open(nowhere), Err(ServeError::NoSocket)));
}

#[test]
fn its_needs_are_its_socket_files_and_the_servers_of_its_disks() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Some(Address::Unix(folder.path().join("m")));
    let server = Server::open(Options { metrics, ..options(&folder, "s") }).unwrap();
    let socket_files = ["s", "m"].map(|name| folder.path().join(name)).to_vec();
    assert_eq!(server.needs(), Needs { socket_files, connects: false });
}
