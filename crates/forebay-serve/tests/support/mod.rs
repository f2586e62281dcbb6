//! A server of one disk over NBD, for tests that have a process of their own.

use forebay_serve::{Address, ExportOptions, Limits, Observer, Options, Server};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

/// Reports that the server accepts connections.
struct Ready(Sender<()>);

impl Observer for Ready {
    fn ready(&mut self) {
        self.0.send(()).expect("the test waits");
    }
}

/// Runs a server of this disk while `test` uses the socket.
pub(crate) fn serve(folder: &Path, spec: &str, nr_workers: usize, test: impl FnOnce(&Path)) {
    let socket: PathBuf = folder.join("nbd");
    let options = Options {
        exports: vec![ExportOptions { spec: spec.to_owned(), ..ExportOptions::default() }],
        listen: vec![Address::Unix(socket.clone())],
        limits: Limits { threads: nr_workers, ..Limits::default() },
        ..Options::default()
    };
    let server = Server::open(options).expect("a server");
    let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
    let (sender, ready) = channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || server.run(stopped, &mut Ready(sender)));
        ready.recv().expect("the server runs");
        test(&socket);
        drop(stop);
        running.join().expect("no panic").expect("a clean end");
    });
}
