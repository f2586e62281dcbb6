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

use crate::failure::Failure;

/// More sockets than anybody passes.
const MAX_SOCKETS: usize = 64;

/// The sockets that were handed down by `LISTEN_FDS`; none, if that is not meant for this process.
/// Names of `LISTEN_FDNAMES` are not needed.
///
/// # Errors
/// If one of them is not a listening unix or TCP socket, or the kernel does not allow
/// `pidfd_getfd`, as in some containers.
pub(super) fn sockets() -> Result<Vec<OwnedFd>, Failure> {
    let passed = sd_notify::listen_fds_with_names();
    let passed = passed.map_err(|error| {
        Failure::Run(format!("cannot take over the sockets of LISTEN_FDS: {error}"))
    })?;
    let socket = |(number, name): (i32, String)| {
        let told = format!("cannot take over descriptor {number} (`{name}`) of LISTEN_FDS");
        copy_of(number).map_err(|error| Failure::Run(format!("{told}: {error}")))
    };
    passed.take(MAX_SOCKETS).map(socket).collect()
}

fn copy_of(number: i32) -> io::Result<OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
    let family = socket_domain(&socket)?;
    if ![AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6].contains(&family) {
        return Err(io::Error::other("it is neither a unix nor a TCP socket"));
    }
    if !socket_acceptconn(&socket)? {
        return Err(io::Error::other(
            "it is not listening; a unit needs `ListenStream=` and `Accept=no`",
        ));
    }
    Ok(socket)
}
