//! A proxy between a front end and a vhost-user device, which hides features of the device.
//!
//! QEMU and the library's driver always use FLUSH if a device has it. Behind this proxy none has.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{JoinHandle, spawn};

/// Feature bits of a virtio block device.
pub(crate) const FLUSH: u64 = 1 << 9;
pub(crate) const CONFIG_WCE: u64 = 1 << 11;

/// The message whose reply has the features.
const GET_FEATURES: u32 = 1;
/// Length of the header of a message, bytes.
const HEADER: usize = 12;
/// Most descriptors of a message: the regions of a memory table.
const MAX_FDS: usize = 8;

/// A proxy. Dropping it makes it refuse further connections.
pub(crate) struct Proxy {
    listener: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens at `socket` for front ends of the device at `device`, without the features `hidden`.
    pub(crate) fn start(socket: &Path, device: &Path, hidden: u64) -> Proxy {
        let listener = UnixListener::bind(socket).expect("a socket");
        let accepting = listener.try_clone().expect("a descriptor");
        let device: PathBuf = device.to_owned();
        let thread = spawn(move || {
            while let Ok((front_end, _)) = accepting.accept() {
                let device = UnixStream::connect(&device).expect("the device listens");
                connect(front_end, device, hidden);
            }
        });
        Proxy { listener, thread: Some(thread) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = shutdown(&self.listener, Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Passes messages on in both directions until one side ends.
fn connect(front_end: UnixStream, device: UnixStream, hidden: u64) {
    let copies = [&front_end, &device].map(|side| side.try_clone().expect("a descriptor"));
    let [to_front_end, to_device] = copies;
    spawn(move || pass_all(&front_end, &to_device, 0));
    spawn(move || pass_all(&device, &to_front_end, hidden));
}

fn pass_all(from: &UnixStream, to: &UnixStream, hidden: u64) {
    while pass(from, to, hidden).is_some() {}
    let _ = (shutdown(from, Shutdown::Both), shutdown(to, Shutdown::Both));
}

/// Passes a message on, with its descriptors. `None`: one side has ended.
fn pass(from: &UnixStream, to: &UnixStream, hidden: u64) -> Option<()> {
    let mut message = vec![0; HEADER];
    let fds = receive(from, &mut message)?;
    let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"));
    let (code, len) = (word(0), word(8) as usize);
    message.resize(HEADER + len, 0);
    { from }.read_exact(&mut message[HEADER..]).ok()?;
    if hidden != 0 && code == GET_FEATURES {
        let body = message[HEADER..].first_chunk_mut::<8>().expect("the features");
        *body = (u64::from_le_bytes(*body) & !hidden).to_le_bytes();
    }
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)), "so many were received");
    }
    let sent = sendmsg(to, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL).ok()?;
    assert_eq!(sent, message.len(), "a message fits a socket");
    Some(())
}

/// Receives a whole header, and the descriptors that come with it.
fn receive(from: &UnixStream, header: &mut [u8]) -> Option<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let nr = loop {
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        match recvmsg(from, &mut [IoSliceMut::new(header)], &mut control, flags) {
            Err(Errno::INTR) => {}
            got => break got.ok()?.bytes,
        }
    };
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    };
    let fds = control.drain().filter_map(rights).flatten().collect();
    (nr == header.len()).then_some(fds)
}
