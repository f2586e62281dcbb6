//! A server in the process of the test, on a thread of its own.

use forebay_serve::{Address, ExportOptions, Limits, Observer, Options, ServeError, Server};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A running server. It ends when this is dropped.
pub(crate) struct Running {
    pub(crate) socket: PathBuf,
    pub(crate) metrics: PathBuf,
    log: PathBuf,
    /// The server stops when this is dropped.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

/// Signals its channel when the server is ready.
struct Ready(Sender<()>);

impl Observer for Ready {
    fn ready(&mut self) {
        self.0.send(()).unwrap();
    }
}

impl Running {
    /// Serves these disks, named by their indices, at sockets in `folder`.
    pub(crate) fn start(folder: &Path, specs: &[String], limits: Limits) -> Running {
        let exports = specs.iter().enumerate().map(|(nr, spec)| ExportOptions {
            spec: spec.clone(),
            name: nr.to_string(),
            ..ExportOptions::default()
        });
        Running::with_exports(folder, exports.collect(), limits)
    }

    /// Serves these exports.
    pub(crate) fn with_exports(
        folder: &Path,
        exports: Vec<ExportOptions>,
        limits: Limits,
    ) -> Running {
        Running::with_options(folder, Options { exports, limits, ..Options::default() })
    }

    /// Serves with these options, at sockets in `folder`.
    pub(crate) fn with_options(folder: &Path, options: Options) -> Running {
        let [socket, metrics, log] = ["nbd", "metrics", "log"].map(|name| folder.join(name));
        let options = Options {
            listen: vec![Address::Unix(socket.clone())],
            metrics: Some(Address::Unix(metrics.clone())),
            log: Some(std::fs::File::create(&log).unwrap().into()),
            ..options
        };
        let server = Server::open(options).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (sender, ready) = channel();
        let thread = std::thread::spawn(move || server.run(stopped, &mut Ready(sender)));
        ready.recv().expect("it serves");
        Running { socket, metrics, log, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the server ends by itself, and returns its result.
    pub(crate) fn wait(&mut self) -> Result<(), ServeError> {
        self.thread.take().expect("it ends once").join().expect("it does not panic")
    }

    /// Stops the server, and returns its result.
    pub(crate) fn stop(&mut self) -> Result<(), ServeError> {
        drop(self.stop.take());
        self.thread.take().expect("it is stopped once").join().expect("it does not panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // `stop` checks the result.
            let _ = thread.join();
        }
    }
}
