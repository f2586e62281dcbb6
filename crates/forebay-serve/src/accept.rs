//! Accept loop: hands new connections to the workers, until the server ends.

use crate::closing::Drain;
use crate::error::{ServeError, system};
use crate::listen::{Listener, Peer, is_exhausted};
use crate::metrics::ConnectionRefusal;
use crate::observer::Observer;
use crate::shared::Shared;
use crate::threads::Threads;
use crate::vhost_user::DeviceThreads;
use forebay::now_ns;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Pause after the process has run out of descriptors.
const EXHAUSTED_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Most connections accepted from one socket in a row. Then the loop polls the other sockets and
/// the stop descriptor.
const ACCEPTS_IN_A_ROW: usize = 64;

/// Hands connections to workers and to devices until `stop` is readable, until a drain or the end
/// of the last client ends the server, or until a thread has panicked; joining that thread returns
/// the panic.
///
/// # Errors
/// Returns an error if a socket fails.
pub(crate) fn accept_until(
    stop: BorrowedFd<'_>,
    listeners: &[Listener],
    threads: &Threads,
    shared: &Shared,
    observer: &mut dyn Observer,
) -> Result<(), ServeError> {
    let mut is_exhausted = false;
    let interval = observer.interval().and_then(|interval| interval.try_into().ok());
    loop {
        if interval.is_some() {
            observer.alive();
        }
        let closing = &shared.closing;
        let is_draining = closing.how() != Drain::No;
        if closing.is_due(threads.nr_connections()) {
            return Ok(());
        }
        let ends = [stop, threads.panicked(), closing.fd()];
        let mut polled: Vec<_> =
            ends.iter().map(|end| PollFd::from_borrowed_fd(*end, PollFlags::IN)).collect();
        let pause = if is_exhausted { Some(EXHAUSTED_PAUSE) } else { interval };
        // They change while exports are added and removed.
        let devices = threads.devices().listening();
        if !is_exhausted && !is_draining {
            let all = listeners.iter().chain(devices.iter().map(|device| device.listener()));
            polled.extend(all.map(|l| PollFd::new(l, PollFlags::IN)));
        }
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(system("cannot wait for connections")(error.into())),
        }
        if polled[..2].iter().any(|end| !end.revents().is_empty()) {
            return Ok(());
        }
        if !polled[2].revents().is_empty() {
            closing.acknowledge();
            continue;
        }
        // A socket that another process has shut down is always ready and never has a connection.
        let revents: Vec<_> = polled[ends.len()..].iter().map(|fd| fd.revents()).collect();
        let is_ready = |nr: usize| revents.get(nr).is_some_and(|found| !found.is_empty());
        for (nr, found) in revents.iter().enumerate() {
            if found.contains(PollFlags::HUP) {
                let why = io::Error::other("another process has shut the socket down");
                let device = nr.checked_sub(listeners.len()).map(|nr| &*devices[nr]);
                failed(why, device)?;
            }
        }
        is_exhausted = false;
        if is_draining {
            continue;
        }
        for (_, listener) in listeners.iter().enumerate().filter(|(nr, _)| is_ready(*nr)) {
            let push = |fd, peer| threads.push(fd, peer);
            let accepted = accept_from(listener, shared, push);
            is_exhausted |= accepted.or_else(|error| failed(error, None))?;
        }
        for (nr, device) in devices.iter().enumerate() {
            if !is_ready(listeners.len() + nr) || !device.accepts() {
                continue;
            }
            device.prepare_accept();
            let push = |fd, _| device.push(fd);
            let accepted = accept_from(device.listener(), shared, push);
            is_exhausted |= accepted.or_else(|error| failed(error, Some(device)))?;
        }
    }
}

/// Handles a socket that fails. Returns false: descriptors have not run out.
///
/// # Errors
/// Returns an error if the server cannot go on without the socket.
fn failed(why: io::Error, device: Option<&DeviceThreads>) -> Result<bool, ServeError> {
    match device.is_some_and(|device| device.fail_socket(&why)) {
        true => Ok(false),
        false => Err(system("cannot accept connections")(why)),
    }
}

/// Accepts the connections that wait at one socket. Returns whether descriptors have run out.
fn accept_from(
    listener: &Listener,
    shared: &Shared,
    mut push: impl FnMut(OwnedFd, Peer),
) -> io::Result<bool> {
    for _ in 0..ACCEPTS_IN_A_ROW {
        match listener.accept() {
            Ok(Some((fd, peer))) => push(fd, peer),
            Ok(None) => return Ok(false),
            Err(error) if is_exhausted(&error) => {
                let counters = shared.counters.server();
                counters.accept_errors.count();
                counters.refuse(ConnectionRefusal::NoDescriptor);
                shared.log.warn(now_ns(), format_args!("cannot accept a connection: {error}"));
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
