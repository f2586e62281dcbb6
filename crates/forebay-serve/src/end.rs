//! The end of a server: it comes, whatever the disks do, and says what was lost.

use crate::error::ServeError;
use crate::export::Export;
use crate::log::Log;
use forebay::now_ns;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long the end of the whole server may take, with all that disks have to finish and to flush.
/// A disk that has not done so by then is given up on. Service managers must wait longer.
pub(crate) const END: Duration = Duration::from_secs(60);

/// Does `work` on a thread of its own, and waits for it until `limit` has passed. None: it is still
/// at it, and is left to itself.
///
/// # Errors
/// If there is no thread to be had, or it panics.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (sender, result) = channel();
    // Nobody listens any more where it comes too late.
    let body = move || drop(sender.send(work()));
    thread::Builder::new().name("end".to_owned()).spawn(body)?;
    match result.recv_timeout(limit) {
        Ok(result) => Ok(Some(result)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its thread has panicked")),
    }
}

/// Makes durable what clients have written: after this nothing is lost by a power failure. One disk
/// that fails keeps no other from being flushed. What has failed is returned.
pub(crate) fn flush_all(exports: &[Export]) -> Vec<ServeError> {
    let written = exports.iter().filter(|export| !export.info.can.read_only);
    let flush = |export: &Export| {
        let spec = || export.disk.info().spec.clone();
        let has_unflushed = export.has_unflushed_writes();
        let failed = |source| ServeError::LastFlush { spec: spec(), has_unflushed, source };
        export.disk.flush().map_err(failed).err()
    };
    written.filter_map(flush).collect()
}

/// The end of a server that has failed in these ways, the gravest first, which is the loss of data:
/// that one is returned, and the others are logged, so that none hides another.
pub(crate) fn gravest(log: &Log, failures: Vec<ServeError>) -> Result<(), ServeError> {
    let mut failures = failures.into_iter();
    let gravest = failures.next();
    failures.for_each(|failure| log.line(now_ns(), failure));
    gravest.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_time_gives_its_result_and_what_hangs_is_left() {
        assert_eq!(within(Duration::from_secs(60), || 7).unwrap(), Some(7));
        let (never, waits) = channel::<()>();
        let hangs = move || waits.recv().is_ok();
        assert_eq!(within(Duration::from_millis(20), hangs).unwrap(), None);
        drop(never);
    }

    #[test]
    fn what_panics_is_told_from_what_hangs() {
        let error = within::<()>(Duration::from_secs(60), || panic!("a test does this"));
        assert!(error.unwrap_err().to_string().contains("panicked"));
    }

    /// Otherwise it would be killed at the moment when it says what is wrong.
    #[test]
    fn the_service_manager_waits_longer_than_the_server_takes_to_end() {
        let unit = include_str!("../../../contrib/systemd/forebay@.service");
        let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        let seconds = seconds.and_then(|seconds| seconds.parse().ok()).expect("in seconds");
        assert!(Duration::from_secs(seconds) >= END + Duration::from_secs(10), "{seconds} s");
    }
}
