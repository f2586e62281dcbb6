//! Where the files of a trace are written: a directory, or a process at the other end of a socket.

use crate::sys::event::await_readable;
use forebay_trace::directory::{DEVICES, create_file, file_path};
use forebay_trace::stream::{StreamWriter, Totals};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Size of the buffer of a file, bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// How long a receiver may read nothing. The trace ends then, so that its end does not wait
/// forever. A receiver that is only slow makes the rings lose records, which are counted.
const RECEIVER_LIMIT: Duration = Duration::from_secs(10);

/// How long a receiver may take for the rest of a trace that ends.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A file of a trace.
pub(super) type OutputFile = BufWriter<Sink>;

/// Where the files of a trace are written.
#[derive(Debug)]
pub(super) enum Output {
    /// A directory.
    Directory(PathBuf),
    /// A process that writes the files.
    Receiver(Receiver),
}

/// A process that writes the files.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: UnixStream,
    stream: Arc<Stream>,
    /// The list of the disks.
    list: u32,
}

/// The stream to a receiver.
#[derive(Debug)]
pub(super) struct Stream {
    writer: Mutex<StreamWriter<UnixStream>>,
    /// The time after which no send begins any more: a receiver that reads a little now and then
    /// must not hold up the end of the trace.
    until: OnceLock<Instant>,
}

/// A file, without a buffer.
#[derive(Debug)]
pub(super) enum Sink {
    File(File),
    /// The stream to a receiver, and the number of the file in it.
    Sent(Arc<Stream>, u32),
}

impl Stream {
    /// Sends with the writer.
    fn send<T>(
        &self,
        send: impl FnOnce(&mut StreamWriter<UnixStream>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.until.get().is_some_and(|until| *until < Instant::now()) {
            let limit = END_LIMIT.as_secs();
            let why = format!("it has not read the end of the trace within {limit} s");
            return Err(of_receiver(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut writer).map_err(of_receiver)
    }
}

impl Output {
    /// Begins to send files to a receiver.
    pub(super) fn to_receiver(socket: UnixStream) -> io::Result<Output> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot send the trace: {error}"))
        };
        socket.set_nonblocking(false).map_err(named)?;
        socket.set_write_timeout(Some(RECEIVER_LIMIT)).map_err(named)?;
        let writer = socket.try_clone().and_then(StreamWriter::new).map_err(named)?;
        let mut writer = writer;
        let list = writer.begin(DEVICES).map_err(named)?;
        let stream = Stream { writer: Mutex::new(writer), until: OnceLock::new() };
        Ok(Output::Receiver(Receiver { socket, stream: Arc::new(stream), list }))
    }

    /// Adds a line to the list of the disks.
    pub(super) fn list(&self, line: &str) -> io::Result<()> {
        match self {
            Output::Directory(dir) => {
                let path = dir.join(DEVICES);
                let list = File::options().append(true).open(&path);
                let listed = list.and_then(|mut file| file.write_all(line.as_bytes()));
                listed.map_err(|error| named(&path, &error))
            }
            Output::Receiver(Receiver { stream, list, .. }) => {
                stream.send(|writer| writer.write(*list, line.as_bytes()))
            }
        }
    }

    /// Creates a file of a disk.
    pub(super) fn create(&self, disk: &str, index: u32) -> io::Result<OutputFile> {
        let sink = match self {
            Output::Directory(dir) => {
                let path = file_path(dir, disk, index);
                let file = create_file(&path).map_err(|error| named(&path, &error))?;
                Sink::File(file)
            }
            Output::Receiver(Receiver { stream, .. }) => {
                let path = file_path(Path::new(""), disk, index);
                let file = stream.send(|writer| writer.begin(&path.to_string_lossy()))?;
                Sink::Sent(Arc::clone(stream), file)
            }
        };
        Ok(BufWriter::with_capacity(BUFFER_BYTES, sink))
    }

    /// Returns whether the receiver asks for the end of the trace, or is gone.
    pub(super) fn is_hung_up(&self) -> bool {
        match self {
            Output::Directory(_) => false,
            Output::Receiver(Receiver { socket, .. }) => {
                await_readable([socket.as_fd()], Some(Duration::ZERO)) == Some([true])
            }
        }
    }

    /// Limits the time in which a receiver may read the rest of the trace.
    pub(super) fn limit_end(&self) {
        if let Output::Receiver(Receiver { stream, .. }) = self {
            stream.until.get_or_init(|| Instant::now() + END_LIMIT);
        }
    }

    /// Ends a complete trace, after all files were flushed.
    pub(super) fn end(&self, totals: Totals) -> io::Result<()> {
        match self {
            Output::Directory(_) => Ok(()),
            Output::Receiver(Receiver { stream, .. }) => stream.send(|writer| writer.end(totals)),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::File(file) => file.write(bytes),
            Sink::Sent(stream, file) => {
                stream.send(|writer| writer.write(*file, bytes))?;
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // Neither a file nor the stream has a buffer of its own.
        Ok(())
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the error of a send, with its reason.
fn of_receiver(error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::WouldBlock => {
            format!("it has read nothing for {} s", RECEIVER_LIMIT.as_secs())
        }
        io::ErrorKind::BrokenPipe => "it has closed the socket".to_owned(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot send the trace to its receiver: {why}"))
}
