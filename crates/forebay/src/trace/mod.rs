//! Traces of disks, as files of blktrace.

mod disk;
mod output;
mod recorder;
mod stats;

pub use stats::TraceStats;

use crate::disk::Disk;
use crate::events;
use crate::runtime::shared::Shared;
use crate::runtime::trace::rings::DiskRings;
use disk::TracedDisk;
use forebay_trace::directory::{self, LOCAL_MAJOR, device, device_line, disk_name};
use output::Output;
use recorder::Recording;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

/// The number of records that fit the ring of a thread or context, 4 MiB: the recorder may be away
/// from its processor for 60 ms, at two million events a second.
const NR_RECORDS: usize = 1 << 17;

/// A trace: records the stages of each request of the disks that are added, until it is dropped or
/// [`finish`](Trace::finish) ends it.
///
/// The records go to files in the format of `blktrace(8)`, version 7, which `blkparse`, `btt` and
/// fio (`read_iolog`) read. A directory holds one trace. For each disk it has a file
/// `NAME.blktrace.N` for each hardware context and each thread that submits I/O, and the list
/// `devices` has a line with its number, name and spec. A block device keeps its number; other
/// disks have the major number 240, and the order in which they were added as the minor one.
///
/// The stages are Q (queued), M and F (merged), P and U (plugged and unplugged), S (waits for a
/// tag), G (has a tag), X (split), I (queued in the scheduler), D (issued), R (the driver is busy)
/// and C (complete). In Linux a request gets its tag before it is plugged. Waits for a flush and
/// for a limit are messages. Offsets are rounded to sectors of 512 bytes, and ranges of 4 GiB and
/// more are cut.
///
/// Each thread and context writes to a ring of 4 MiB in memory, without a lock or a system call,
/// and a thread of the trace writes the files. A full ring loses records; their number is in
/// [`TraceStats::lost`], and in the file in their place. While no disk of a process is traced, an
/// I/O costs up to 8 instructions more than without traces.
///
/// `Trace` is `Send` and `Sync`.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("forebay-doc-trace-{}", std::process::id()));
/// let disk = forebay::Disk::open("ram:1M")?;
/// let trace = forebay::Trace::create(&dir)?;
/// trace.add(&disk)?;
/// disk.write_at(&[1; 4096], 0)?;
/// let stats = trace.finish()?;
/// // Q, G, D and C
/// assert_eq!((stats.records, stats.lost), (4, 0));
/// assert!(dir.join("ram-1M.blktrace.0").exists());
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Trace {
    /// `None`: another process writes the files.
    dir: Option<PathBuf>,
    recording: Arc<Recording>,
    disks: Arc<Disks>,
    thread: Option<JoinHandle<()>>,
}

/// The disks that were added to a trace.
#[derive(Debug, Default)]
struct Disks(Mutex<Vec<Added>>);

impl Disks {
    fn lock(&self) -> MutexGuard<'_, Vec<Added>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the trace of each. They may be traced again.
    fn end(&self) {
        let disks = std::mem::take(&mut *self.lock());
        for added in &disks {
            if let Some(disk) = added.disk.upgrade() {
                disk.end_trace(&added.rings);
            }
        }
    }
}

/// A disk that was added to a trace.
#[derive(Debug)]
struct Added {
    disk: Weak<Shared>,
    name: String,
    rings: Arc<DiskRings>,
}

impl Trace {
    /// Creates a trace without disks. The directory is created if it does not exist.
    ///
    /// # Errors
    /// Fails if the directory has a file `devices` or `NAME.blktrace.N`, or cannot be written, or
    /// if the thread cannot be started.
    pub fn create(dir: impl AsRef<Path>) -> io::Result<Trace> {
        let dir = dir.as_ref().to_owned();
        directory::create(&dir)?;
        Trace::start(Output::Directory(dir.clone()), Some(dir))
    }

    /// Creates a trace without disks in a new directory below `parent`, which exists. The name of
    /// the directory is a number: 1, or one more than the highest that is there.
    ///
    /// # Errors
    /// Fails if `parent` cannot be read or written, or if the thread cannot be started.
    pub fn create_next(parent: impl AsRef<Path>) -> io::Result<Trace> {
        let dir = directory::create_next(parent.as_ref(), "")?;
        Trace::start(Output::Directory(dir.clone()), Some(dir))
    }

    /// Creates a trace without disks whose files another process writes: the owner of the other end
    /// of this socket, with [`receive`] of the crate `forebay-trace`. So this process needs no
    /// right to create files.
    ///
    /// The trace ends when the other end sends a byte, shuts down its direction, or is closed. If
    /// the receiver is slow, records are lost, and counted; I/O never waits for it. If it reads
    /// nothing for 10 s, the trace ends with an error.
    ///
    /// # Errors
    /// Fails if the descriptor is no connected socket, or if the thread cannot be started.
    ///
    /// [`receive`]: https://docs.rs/forebay-trace/latest/forebay_trace/stream/
    pub fn send(socket: UnixStream) -> io::Result<Trace> {
        Trace::start(Output::to_receiver(socket)?, None)
    }

    /// Starts the recorder.
    fn start(output: Output, dir: Option<PathBuf>) -> io::Result<Trace> {
        let recording = Arc::new(Recording::default());
        let disks = Arc::<Disks>::default();
        let thread = std::thread::Builder::new().name("forebay-trace".into()).spawn({
            let (recording, disks) = (Arc::clone(&recording), Arc::clone(&disks));
            // It may end by itself. The disks must not count as traced then.
            move || recording.run(&output, || disks.end())
        });
        let thread = thread.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start a thread for the trace: {error}"))
        })?;
        Ok(Trace { dir, recording, disks, thread: Some(thread) })
    }

    /// Records the I/O of a disk from now on. Requests that are in flight have no record of their
    /// earlier stages.
    ///
    /// # Errors
    /// Fails if the disk is traced already, or if this trace has ended.
    pub fn add(&self, disk: &Disk) -> io::Result<()> {
        let shared = &disk.shared;
        let spec = &shared.info().spec;
        let mut disks = self.disks.lock();
        let taken: Vec<String> = disks.iter().map(|added| added.name.clone()).collect();
        let name = disk_name(spec, &taken);
        let device = match shared.block_device() {
            Some(number) => number,
            None => device(LOCAL_MAJOR, disks.len() as u32),
        };
        let rings = Arc::new(DiskRings::new(NR_RECORDS));
        if !shared.begin_trace(Arc::clone(&rings)) {
            let what = format!("{spec}: the disk is traced already: end that trace first");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let line = device_line(device, &name, spec);
        let traced = TracedDisk { name: name.clone(), line, device, rings: Arc::clone(&rings) };
        if !self.recording.add(traced) {
            shared.end_trace(&rings);
            return Err(io::Error::other(format!("{spec}: cannot be traced: the trace has ended")));
        }
        disks.push(Added { disk: Arc::downgrade(shared), name, rings });
        drop(disks);
        // A subscriber may call this trace.
        events::trace_begun(spec);
        Ok(())
    }

    /// Returns the directory. `None`: another process writes the files ([`Trace::send`]).
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the counts as of a few milliseconds ago.
    pub fn stats(&self) -> TraceStats {
        self.recording.stats()
    }

    /// Ends the trace, without waiting for its files: see [`wait`](Trace::wait).
    pub fn stop(&self) {
        self.disks.end();
        self.recording.end();
    }

    /// Waits until the trace has ended: by [`stop`](Trace::stop), by its receiver, or because a
    /// file could not be written. Returns the final counts.
    ///
    /// # Errors
    /// Fails if a file could not be written. The trace has ended where that happened; the I/O of
    /// the disks is not affected.
    pub fn wait(&self) -> io::Result<TraceStats> {
        self.recording.wait_for_end();
        self.recording.outcome()
    }

    /// Ends the trace: writes the records of all requests that have ended, and closes the files.
    /// Returns the final counts.
    ///
    /// # Errors
    /// As [`wait`](Trace::wait).
    pub fn finish(self) -> io::Result<TraceStats> {
        self.stop();
        self.wait()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread of a trace does not panic");
        }
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
