//! An end that comes, whatever the disks do.

use std::io;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Does `work` on a thread of its own, and waits for it until `limit` has passed. None: it is still
/// at it, and is left to itself.
///
/// # Errors
/// If there is no thread to be had.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (sender, result) = channel();
    // Nobody listens any more where it comes too late.
    let body = move || drop(sender.send(work()));
    thread::Builder::new().name("end".to_owned()).spawn(body)?;
    Ok(result.recv_timeout(limit).ok())
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
}
