//! Socket activation: sockets that the parent process has opened, as systemd, libnbd and QEMU's
//! tools do.
//!
//! The service manager keeps such a socket, so it is neither shut down nor unlinked here. Only the
//! number of its descriptor is known. One call makes an owned descriptor of a number without
//! `unsafe`: pidfd_getfd, which copies a descriptor of a process, here of this one. The original
//! stays open, which has no effect, since the service manager has the socket open as well.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::failure::Failure;

/// Most sockets that are taken over.
const MAX_SOCKETS: usize = 64;

/// Returns the sockets of `LISTEN_FDS`, except the descriptors `others`. Returns none if the
/// variable is for another process. The names of `LISTEN_FDNAMES` are not used.
///
/// # Errors
/// Returns an error if a descriptor is not a listening unix or TCP socket, or if the kernel does
/// not allow `pidfd_getfd`, as in some containers.
pub(super) fn sockets(others: &[i32]) -> Result<Vec<OwnedFd>, Failure> {
    let passed = sd_notify::listen_fds_with_names();
    let passed = passed
        .map_err(|error| Failure::Run(format!("cannot use the sockets of LISTEN_FDS: {error}")))?;
    let socket = |(number, name): (i32, String)| {
        let what = format!("cannot use descriptor {number} (`{name}`) of LISTEN_FDS");
        copy_of(number).map_err(|error| Failure::Run(format!("{what}: {error}")))
    };
    let passed = passed.take(MAX_SOCKETS).filter(|(number, _)| !others.contains(number));
    passed.map(socket).collect()
}

/// Returns the socket with this descriptor, which `--fd` names.
///
/// # Errors
/// Returns an error if the descriptor is not a listening unix socket.
pub(super) fn socket(number: i32) -> Result<OwnedFd, Failure> {
    let unix_socket = copy_of(number).and_then(|socket| match socket_domain(&socket)? {
        AddressFamily::UNIX => Ok(socket),
        _ => Err(io::Error::other("a virtual machine needs a unix socket")),
    });
    unix_socket
        .map_err(|error| Failure::Run(format!("cannot use descriptor {number} (--fd): {error}")))
}

fn copy_of(number: i32) -> io::Result<OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty());
    let socket = socket.map_err(|errno| match errno {
        Errno::BADF => io::Error::other(
            "it is not open: the program that starts the server must open the socket, and pass it \
             on without the flag FD_CLOEXEC",
        ),
        _ => errno.into(),
    })?;
    let family = socket_domain(&socket)?;
    if ![AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6].contains(&family) {
        return Err(io::Error::other("not a unix or TCP socket"));
    }
    if !socket_acceptconn(&socket)? {
        return Err(io::Error::other(
            "the socket does not listen: a systemd unit needs `ListenStream=` and `Accept=no`",
        ));
    }
    Ok(socket)
}
