//! No allocation per request of up to 256 KiB without TLS: neither in the server nor in its client,
//! the library's NBD driver. (A larger read has one, for its pieces.)

#[path = "../../forebay/tests/support/allocations.rs"]
mod allocations;

use allocations::check;
use forebay::Disk;
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
fn serve(folder: &Path, spec: &str, nr_workers: usize, test: impl FnOnce(&Path)) {
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

#[test]
fn no_request_allocates_once_client_and_server_are_warm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a scratch file");
    let file = path.display().to_string();
    for (spec, nr_workers) in [("ram:1M", 1), (&*file, 2)] {
        serve(folder.path(), spec, nr_workers, |socket| {
            for nr_threads in [1, 4] {
                let client = format!("nbd+unix:///?socket={}", socket.display());
                let disk = Disk::open(&client).expect("a client");
                check(&format!("{spec}, {nr_workers} workers"), &[disk], nr_threads);
            }
        });
    }
}
