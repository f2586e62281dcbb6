//! TLS in an event loop, against clients of rustls and GnuTLS.

mod certificates;
mod folder;
mod gnutls;
mod peers;
mod reload;
mod rsa;
mod stream;

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::tls::TlsStream;
use rustix::event::{PollFd, PollFlags, poll};
use rustls::ServerConfig;

/// What became of a connection at the server: how many bytes it has echoed, and how it ended.
type Echoed = (usize, io::Result<()>);

/// Sends everything back, as a server with one connection would, until the client ends.
fn start_echo(socket: OwnedFd, config: Arc<ServerConfig>) -> JoinHandle<Echoed> {
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    std::thread::spawn(move || {
        let mut stream = TlsStream::new(config).unwrap();
        let mut echoed = 0;
        let end = echo(&mut stream, &socket, &mut echoed);
        stream.close_notify(&socket);
        (echoed, end)
    })
}

fn echo(stream: &mut TlsStream, socket: &OwnedFd, echoed: &mut usize) -> io::Result<()> {
    let mut bytes = vec![0; 3000];
    loop {
        match stream.read(socket, &mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                write_all(stream, socket, &bytes[..len])?;
                *echoed += len;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(!stream.has_plaintext(), "a loop would spin");
                wait(stream, socket, PollFlags::IN);
                if stream.wants_write() {
                    let _ = stream.flush(socket);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn write_all(stream: &mut TlsStream, socket: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (one, two) = bytes.split_at(bytes.len() / 3);
        match stream.write_vectored(socket, &[IoSlice::new(one), IoSlice::new(two)]) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(stream, socket, PollFlags::empty());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for these events, and for room if there is something to send.
fn wait(stream: &TlsStream, socket: &OwnedFd, mut events: PollFlags) {
    events.set(PollFlags::OUT, stream.wants_write());
    assert!(!events.is_empty(), "nothing would ever wake the loop");
    poll(&mut [PollFd::new(socket, events)], None).unwrap();
}
