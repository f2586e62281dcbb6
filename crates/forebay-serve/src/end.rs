//! Shutdown of a server: within a time limit, whatever the disks do, and with a report of losses.

use crate::error::{ServeError, system};
use crate::export::Export;
use crate::log::{Log, LogLevel};
use forebay::now_ns;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of the shutdown, including the I/O and the flushes of the disks. The server gives up
/// on a disk that has not completed them by then. Service managers must wait longer.
pub(crate) const END: Duration = Duration::from_secs(60);

/// Ends the workers by `drain`, and then flushes the disks, so that a power failure loses none of
/// the clients' writes. Returns the errors, the gravest first. A failed flush that no write was
/// waiting for is not an error: it is passed to `note`.
///
/// A disk that fails, or does not answer, delays the flush of no other disk. If workers still wait
/// for a disk after half of the time, the disks are flushed all the same; and once more, if the
/// workers end in time after all.
pub(crate) fn drain_and_flush(
    limit: Duration,
    drain: impl FnOnce() -> Result<(), ServeError> + Send + 'static,
    exports: &[Arc<Export>],
    note: impl FnMut(String),
) -> Vec<ServeError> {
    let until = Instant::now() + limit;
    let (ended, flushes) = match begin(drain) {
        Ok(workers) => {
            let mut ended = workers.recv_timeout(limit / 2);
            let mut flushes = begin_flushes(exports);
            if matches!(ended, Err(RecvTimeoutError::Timeout)) {
                ended = workers.recv_timeout(left(until) / 2);
                if !matches!(ended, Err(RecvTimeoutError::Timeout)) {
                    flushes = begin_flushes(exports);
                }
            }
            (ended, flushes)
        }
        Err(error) => (Ok(Err(error)), begin_flushes(exports)),
    };
    let mut failures = failed_flushes(flushes, exports, (until, limit), note);
    let ended = ended.unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(ServeError::Hangs { limit }),
        RecvTimeoutError::Disconnected => Err(ServeError::Panicked),
    });
    failures.extend(ended.err());
    failures
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Runs `work` on a thread of its own, which goes on if the caller stops waiting for it.
fn begin<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Receiver<T>, ServeError> {
    let (sender, result) = channel();
    // The send fails if the result comes too late.
    let body = move || drop(sender.send(work()));
    let thread = thread::Builder::new().name("end".to_owned()).spawn(body);
    let failed = system("cannot start the last flush: writes may be lost");
    thread.map(|_| result).map_err(failed)
}

/// Result of a flush: the error, if it failed without a loss.
pub(crate) type Flushed = Result<Option<String>, ServeError>;

/// Last flush of an export, by its index. If no thread could be started, it is still to be made.
type Flush = (usize, Result<Receiver<Flushed>, ServeError>);

/// Starts the last flush of every disk.
fn begin_flushes(exports: &[Arc<Export>]) -> Vec<Flush> {
    let written = (0..exports.len()).filter(|nr| !exports[*nr].can.read_only);
    let begin_one = |nr| {
        let export = Arc::clone(&exports[nr]);
        (nr, begin(move || flush(&export)))
    };
    written.map(begin_one).collect()
}

/// Returns the errors of flushes that failed or did not end in time.
fn failed_flushes(
    flushes: Vec<Flush>,
    exports: &[Arc<Export>],
    (until, limit): (Instant, Duration),
    mut note: impl FnMut(String),
) -> Vec<ServeError> {
    let mut failures = Vec::new();
    for (nr, result) in flushes {
        let flushed = match result {
            // Without a thread, flush here, without a time limit: a late flush is better than none.
            Err(_) => flush(&exports[nr]),
            Ok(result) => result.recv_timeout(left(until)).unwrap_or_else(|error| match error {
                RecvTimeoutError::Disconnected => Err(ServeError::Panicked),
                RecvTimeoutError::Timeout => {
                    let spec = exports[nr].spec.clone();
                    Err(ServeError::FlushHangs { spec, limit })
                }
            }),
        };
        match flushed {
            Ok(harmless) => harmless.into_iter().for_each(&mut note),
            Err(failure) => failures.push(failure),
        }
    }
    failures
}

/// Flushes the disk of an export that no client uses any more.
pub(crate) fn flush(export: &Export) -> Flushed {
    let had_unflushed = export.has_unflushed_writes();
    let Err(source) = export.disk.flush() else { return Ok(None) };
    let spec = export.spec.clone();
    // Check again: the flush may have found a loss, or a worker that ended late may have written.
    if had_unflushed || export.has_unflushed_writes() {
        return Err(ServeError::LastFlush { spec, source });
    }
    let what = "the last flush failed; no write of a client was waiting for it, so none is lost";
    Ok(Some(format!("{spec}: {what}: {source}")))
}

/// Returns the first of these errors, which are sorted with the gravest, a loss of data, first. The
/// others are logged, so that none hides another.
pub(crate) fn gravest(log: &Log, failures: Vec<ServeError>) -> Result<(), ServeError> {
    let mut failures = failures.into_iter();
    let gravest = failures.next();
    failures.for_each(|failure| log.write_at(LogLevel::Error, now_ns(), failure));
    gravest.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportOptions;
    use forebay_insight::small::WORK_END;

    fn export(name: &str, spec: &str) -> Arc<Export> {
        let (name, spec) = (name.to_owned(), spec.to_owned());
        let options = ExportOptions { name, spec, ..ExportOptions::default() };
        Arc::new(Export::open(&options, None).unwrap().0)
    }

    /// A worker that waits for the first disk does not delay the flush of the second one either.
    #[test]
    fn a_disk_that_does_not_answer_keeps_no_other_from_its_last_flush() {
        let files = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let path = |nr: usize| files[nr].path().to_str().unwrap();
        files.iter().for_each(|file| std::fs::write(file.path(), vec![0; 1 << 20]).unwrap());
        let hangs = export("hangs", &format!("fault:{}?rule=flush:delay=600s", path(0)));
        let well = export("well", path(1));
        for export in [&hangs, &well] {
            export.disk.write_at(&[1; 4096], 0).unwrap();
            assert!(export.has_unflushed_writes());
        }
        let exports = [hangs, well];
        let (_never, waits) = channel::<()>();
        let limit = Duration::from_millis(800);
        let drain = move || waits.recv().map_err(|_| ServeError::Panicked);
        let failures = drain_and_flush(limit, drain, &exports, |note| panic!("{note}"));
        let [ServeError::FlushHangs { spec, .. }, ServeError::Hangs { .. }] = &failures[..] else {
            panic!("{failures:?}")
        };
        assert!(spec.starts_with("fault:"), "{spec}");
        assert!(!exports[1].has_unflushed_writes());
        std::mem::forget(exports); // closing a disk waits for I/O in flight
    }

    /// The writes that it completes until then are flushed, although another disk hangs.
    #[test]
    fn a_worker_that_ends_late_is_waited_for() {
        let files = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        files.iter().for_each(|file| std::fs::write(file.path(), vec![0; 1 << 20]).unwrap());
        let path = |nr: usize| files[nr].path().to_str().unwrap();
        let hangs = export("hangs", &format!("fault:{}?rule=flush:delay=600s", path(0)));
        let exports = [hangs, export("well", path(1))];
        exports[0].disk.write_at(&[1; 4096], 0).unwrap();
        let at_work = Arc::clone(&exports[1]);
        let limit = Duration::from_secs(4);
        let drain = move || {
            thread::sleep(limit * 5 / 8);
            at_work.disk.write_at(&[1; 4096], 0).unwrap();
            Ok(())
        };
        let failures = drain_and_flush(limit, drain, &exports, |note| panic!("{note}"));
        let [ServeError::FlushHangs { spec, .. }] = &failures[..] else { panic!("{failures:?}") };
        assert!(spec.starts_with("fault:"), "{spec}");
        assert!(!exports[1].has_unflushed_writes());
        std::mem::forget(exports); // as above
    }

    #[test]
    fn timely_shutdown_flushes_everything() {
        let exports = [export("", "ram:1M")];
        let drain = || Err(ServeError::Panicked);
        let failures = drain_and_flush(Duration::from_secs(60), drain, &exports, drop);
        assert!(matches!(failures[..], [ServeError::Panicked]), "{failures:?}");
        let panics = || panic!("panic of a test");
        let failures = drain_and_flush(Duration::from_secs(60), panics, &exports, drop);
        assert!(matches!(failures[..], [ServeError::Panicked]), "{failures:?}");
    }

    /// Requests at the control socket may take [`WORK_END`] of it.
    ///
    /// If it waited for less time, it would kill the server while that reports the problem.
    #[test]
    fn the_service_manager_waits_longer_than_the_server_takes_to_end() {
        let unit = include_str!("../../../contrib/systemd/forebay@.service");
        let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        let seconds = seconds.and_then(|seconds| seconds.parse().ok()).expect("in seconds");
        assert!(
            Duration::from_secs(seconds) >= END + WORK_END + Duration::from_secs(10),
            "{seconds} s"
        );
    }
}
