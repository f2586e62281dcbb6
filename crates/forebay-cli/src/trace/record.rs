//! `forebay trace SOCKET`: records a trace of a running server.
//!
//! The server sends the bytes of the files over a socket that this command passes to it, and the
//! command writes them: so a confined server needs no right to create files, and they belong to the
//! user who records. The end of the recording is requested by closing one direction of that socket.

use super::summary::Summary;
use super::text;
use crate::bench::stop::Stop;
use crate::control::ask;
use crate::descriptors::raise_nr_descriptors;
use crate::failure::Failure;
use crate::number;
use crate::output;
use clap::Args;
use forebay_trace::directory::{self, DEVICES};
use forebay_trace::stream::{Totals, receive};
use serde_json::json;
use std::fs;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest recording, seconds: a week. A longer one is a typing error.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// Name of the directory without --output, before its number.
const PREFIX: &str = "forebay-trace-";

/// Size of the buffer for the socket, bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// How often the thread that ends the recording looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `forebay trace SOCKET`.
#[derive(Args, Debug)]
pub(super) struct RecordArgs {
    /// Control socket of a running server: record a trace of all its exports
    #[arg(value_name = "SOCKET", required = true)]
    socket: Option<PathBuf>,
    /// How long to record, seconds, 1 to 604800 [default: until Ctrl-C, or the end of the server]
    #[arg(long = "for", value_name = "SECONDS", value_parser = number::parse::<1, MAX_SECONDS>)]
    seconds: Option<u64>,
    /// Directory for the trace, which is created [default: forebay-trace-1, or the next number]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Records until the time is over, a signal arrives, or the server ends the trace.
pub(super) fn main(args: &RecordArgs) -> Result<(), Failure> {
    let Some(server) = &args.socket else {
        return Err(Failure::Usage("missing argument: <SOCKET>".to_owned()));
    };
    let stop = Stop::on_signals()?;
    raise_nr_descriptors();
    let new = NewDirectory::create(args.output.as_deref())?;
    let system = |error: io::Error| Failure::Run(format!("cannot create a socket: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(system)?;
    let end = ours.try_clone().map_err(system)?;
    if let Err(failure) = ask(server, &json!({ "command": "record" }), &[theirs.as_fd()]) {
        new.remove();
        return Err(failure);
    }
    drop(theirs);
    let dir = new.path;
    output::stderr(&format!("forebay: recording to {}: Ctrl-C ends it\n", dir.display()));
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (received, is_ours) = thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let ender = scope.spawn(move || {
            loop {
                match is_done.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return false,
                }
                if stop.is_set() || until.is_some_and(|until| Instant::now() >= until) {
                    // Fails if the server has ended the trace just now.
                    return end.shutdown(Shutdown::Write).is_ok();
                }
            }
        });
        let received = receive(BufReader::with_capacity(BUFFER_BYTES, ours), &dir);
        drop(done);
        (received, ender.join().unwrap_or(false))
    });
    let totals = received.map_err(|error| failed(server, &dir, &error))?;
    if !is_ours {
        output::stderr("forebay: the server has ended the trace\n");
    }
    output::stdout(&summary(&dir, totals)?)
}

/// Returns the failure of a recording, with what is left of it.
fn failed(server: &Path, dir: &Path, error: &io::Error) -> Failure {
    let (server, dir) = (server.display(), dir.display());
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            format!(
                "{server}: the server exited, or ended the trace with an error that its log has"
            )
        }
        _ => error.to_string(),
    };
    Failure::Run(format!("{why}; the records until then are in {dir}"))
}

/// Returns the first lines of the report, and the commands that show more.
fn summary(dir: &Path, totals: Totals) -> Result<String, Failure> {
    let Totals { records, lost } = totals;
    let dir_text = dir.display();
    let mut text = format!("{records} records in {dir_text}");
    if lost > 0 {
        text += &format!("; {lost} were lost, because a ring in memory was full");
    }
    text.push('\n');
    let disks = match directory::find(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(text + "No disk did any I/O while the trace ran.\n");
        }
        found => found.map_err(|error| Failure::Run(format!("{dir_text}: {error}")))?,
    };
    for (name, paths) in &disks {
        let summary = Summary::read(name, paths, 0);
        text += &text::headline(&summary.map_err(Failure::Run)?);
    }
    let name = disks.keys().next().map_or("", String::as_str);
    text += &format!("where the time went:  forebay trace report {dir_text}\n");
    text += &format!("every record:         blkparse -D {dir_text} -i {name}\n");
    Ok(text)
}

/// The directory of a new trace.
#[derive(Debug)]
struct NewDirectory {
    path: PathBuf,
    /// Whether it was created for the trace.
    is_own: bool,
}

impl NewDirectory {
    /// Creates this directory, or one with the next number.
    fn create(path: Option<&Path>) -> Result<NewDirectory, Failure> {
        let Some(path) = path else {
            let path = directory::create_next(Path::new("."), PREFIX);
            let path = path.map_err(|error| {
                Failure::Run(format!("{error}: name another directory with --output"))
            })?;
            let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
            return Ok(NewDirectory { path, is_own: true });
        };
        let is_own = !path.exists();
        let created = directory::create(path);
        created.map_err(|error| Failure::Run(format!("--output: {error}")))?;
        Ok(NewDirectory { path: path.to_owned(), is_own })
    }

    /// Removes it, because there is no trace. A failure leaves an empty directory.
    fn remove(self) {
        let _ = fs::remove_file(self.path.join(DEVICES));
        if self.is_own {
            let _ = fs::remove_dir(self.path);
        }
    }
}
