//! Backend channel: the socket by which a device sends messages to its front end.
//!
//! The device has one message, CONFIG_CHANGE_MSG: the configuration space has changed, and the
//! front end reads it again. The crate `vhost` receives this message but cannot send it.
//!
//! The front end is not trusted, and may never read its end. So the message is sent without a wait,
//! and demands no reply. If the socket is full, it contains a message that was not read. That one
//! makes the front end read the configuration space later than now, so no second one is needed.

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// CONFIG_CHANGE_MSG: its number, the version of the protocol, and the length of its body.
const CONFIG_CHANGE: [u32; 3] = [2, 1, 0];

/// Outcome of a notification of the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// The message was sent, or the front end has not read an earlier one.
    Sent,
    /// No front end is connected.
    NoFrontEnd,
    /// The front end has set up no channel.
    NoChannel,
    /// The front end has closed the channel.
    Closed,
}

/// The front end of a device.
#[derive(Debug, Default)]
enum FrontEnd {
    #[default]
    Absent,
    WithoutChannel,
    WithChannel(OwnedFd),
    /// The front end has closed the channel.
    ChannelClosed,
}

/// The channel of a device. The thread of the device's messages sets it, any thread sends.
#[derive(Debug, Default)]
pub(crate) struct BackendChannel(Mutex<FrontEnd>);

impl BackendChannel {
    fn set_front_end(&self, front_end: FrontEnd) {
        // Each change under this lock is complete even if a panic follows.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = front_end;
    }

    /// Records that a front end is connected, without a channel.
    pub(crate) fn connect(&self) {
        self.set_front_end(FrontEnd::WithoutChannel);
    }

    /// Sets the channel of the front end: a stream socket.
    pub(crate) fn set(&self, socket: OwnedFd) {
        self.set_front_end(FrontEnd::WithChannel(socket));
    }

    /// Closes the channel at the end of the connection.
    pub(crate) fn disconnect(&self) {
        self.set_front_end(FrontEnd::Absent);
    }

    /// Makes the front end read the configuration space again. Does not wait.
    pub(crate) fn notify(&self) -> Notified {
        let mut front_end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = match &*front_end {
            FrontEnd::Absent => return Notified::NoFrontEnd,
            FrontEnd::WithoutChannel => return Notified::NoChannel,
            FrontEnd::ChannelClosed => return Notified::Closed,
            FrontEnd::WithChannel(socket) => socket,
        };
        let message = CONFIG_CHANGE.map(u32::to_ne_bytes).concat();
        loop {
            match send(socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) if len == message.len() => return Notified::Sent,
                Err(Errno::AGAIN) => return Notified::Sent,
                Err(Errno::INTR) => {}
                // Linux takes such a short message whole or not at all. Behind a part of one,
                // nothing can follow.
                Ok(_) | Err(_) => {
                    *front_end = FrontEnd::ChannelClosed;
                    return Notified::Closed;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    const MESSAGE: [u8; 12] = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn message_reaches_the_front_end_that_is_connected() {
        let channel = BackendChannel::default();
        assert_eq!(channel.notify(), Notified::NoFrontEnd);
        channel.connect();
        assert_eq!(channel.notify(), Notified::NoChannel);
        let (mut front, back) = UnixStream::pair().expect("a pair");
        channel.set(back.into());
        for _ in 0..2 {
            assert_eq!(channel.notify(), Notified::Sent);
            let mut message = [0; 12];
            front.read_exact(&mut message).expect("a message");
            assert_eq!(message, MESSAGE);
        }
        drop(front);
        assert_eq!(channel.notify(), Notified::Closed);
        assert_eq!(channel.notify(), Notified::Closed);
        channel.disconnect();
        assert_eq!(channel.notify(), Notified::NoFrontEnd);
    }

    #[test]
    fn front_end_that_does_not_read_blocks_nothing_and_has_whole_messages() {
        let channel = BackendChannel::default();
        let (mut front, back) = UnixStream::pair().expect("a pair");
        channel.set(back.into());
        // More than the socket holds.
        for _ in 0..100_000 {
            assert_eq!(channel.notify(), Notified::Sent);
        }
        channel.disconnect();
        let mut messages = Vec::new();
        front.read_to_end(&mut messages).expect("messages");
        assert!(messages.len() < 100_000 * MESSAGE.len(), "the socket was full");
        let (whole, rest) = messages.as_chunks::<12>();
        assert!(rest.is_empty() && whole.iter().all(|message| *message == MESSAGE));
    }
}
