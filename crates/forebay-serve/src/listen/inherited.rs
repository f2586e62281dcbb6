//! Sockets that whoever started this process has opened: systemd's activation, which libnbd and
//! QEMU's tools speak as well.
//!
//! The manager keeps such a socket, so it is neither shut down nor unlinked here. Its descriptor is
//! only known by its number, and a number becomes an owned descriptor without `unsafe` by one way:
//! the kernel makes a copy of "descriptor N of that process", where the process is this one. The
//! original stays open, which changes nothing, since the manager has the socket open as well.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::{ListenError, Listener};

/// More sockets than anybody passes.
const MAX_SOCKETS: usize = 64;

pub(super) fn listeners() -> Result<Vec<Listener>, ListenError> {
    let passed = sd_notify::listen_fds_with_names()
        .map_err(|source| ListenError::Activation { source })?
        .take(MAX_SOCKETS);
    let mut listeners = Vec::new();
    for (number, name) in passed {
        let refuse = |source| ListenError::Inherited { number, name: name.clone(), source };
        let socket = copy_of(number).map_err(refuse)?;
        check(&socket).map_err(refuse)?;
        listeners.push(Listener::adopt(socket).map_err(refuse)?);
    }
    Ok(listeners)
}

fn copy_of(number: i32) -> io::Result<OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

fn check(socket: &OwnedFd) -> io::Result<()> {
    let family = socket_domain(socket)?;
    if ![AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6].contains(&family) {
        return Err(io::Error::other("it is neither a unix nor a TCP socket"));
    }
    if !socket_acceptconn(socket)? {
        return Err(io::Error::other(
            "it is not listening; a unit needs `ListenStream=` and `Accept=no`",
        ));
    }
    Ok(())
}
