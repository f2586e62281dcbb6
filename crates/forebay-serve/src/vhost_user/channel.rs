//! Thread that reads the messages of a device's front ends, one connection after the other.

use super::connections::{ConnectionQueue, FIRST_MESSAGE, PendingConnection};
use super::ring::ThreadCommand;
use crate::clients::{ClientAddress, Place};
use crate::device::Device;
use crate::export::Export;
use crate::inbox::Inbox;
use crate::listen::Peer;
use crate::log::Closed;
use crate::metrics::RingCounters;
use crate::shared::Shared;
use forebay::now_ns;
use forebay_vhost_user::{RingCommand, Rings};
use rustix::net::{RecvFlags, recv};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Message channel of a device.
pub(super) struct Channel {
    pub(super) shared: Arc<Shared>,
    pub(super) device: Arc<Device>,
    pub(super) connections: Arc<ConnectionQueue>,
    pub(super) inboxes: Vec<Arc<Inbox<ThreadCommand>>>,
    pub(super) counters: Vec<Arc<RingCounters>>,
}

impl Channel {
    /// Serves connections until the queue of connections is closed, or the export is removed.
    pub(super) fn run(self) {
        while let Some(connection) = self.connections.next() {
            self.serve(connection);
            self.connections.end_current();
            self.shared.closing.note_end();
        }
        self.shared.exports.left(self.device.export);
    }

    fn serve(&self, connection: PendingConnection) {
        let PendingConnection { stream, counters, opened_ns } = connection;
        let device = &self.device;
        let shared_export = self.shared.exports.get(device.export);
        let Export { name: export, tenant, .. } = &*shared_export;
        let export = export.as_str();
        let id = counters.id();
        self.line(format_args!("connection {id} from unix: export {export:?}, vhost-user-blk"));
        // Each connection has other memory. No ring runs now.
        device.refusal.store(false, Ordering::Relaxed);
        let before: Vec<_> = self.counters.iter().map(|ring| ring.traffic().sum()).collect();
        let (address, submitter) =
            (ClientAddress::Device(device.number), Arc::clone(&device.submitter));
        let seat = tenant.connect(id, Place { address, peer: Peer::Unix, submitter });
        let rings = Connection { channel: self, id };
        let ended = self.connections.await_first_message(&stream, FIRST_MESSAGE).and_then(|()| {
            // A connection without a message is a probe, not a client.
            if has_message(&stream) {
                self.shared.closing.note_client();
            }
            forebay_vhost_user::serve(stream, &device.config, &device.cache, &rings)
        });
        // The rings have stopped, so none of their I/O is in flight.
        drop(seat);
        let mut traffic = counters.sum();
        for (ring, before) in self.counters.iter().zip(&before) {
            traffic.add(&ring.traffic().sum().since(before));
        }
        let why = match (self.connections.why_closing(), ended) {
            (Some(why), _) => why.to_owned(),
            (None, Ok(())) => "closed by the front end".to_owned(),
            (None, Err(why)) => why,
        };
        let open_ns = now_ns().saturating_sub(opened_ns);
        self.line(Closed { id, peer: Peer::Unix, export: Some(export), why, traffic, open_ns });
    }

    fn line(&self, text: impl fmt::Display) {
        self.shared.log.line(now_ns(), text);
    }
}

/// Returns whether a front end has sent something.
fn has_message(stream: &UnixStream) -> bool {
    let mut byte = [MaybeUninit::<u8>::uninit()];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(stream, &mut byte, flags).is_ok_and(|((received, _), _)| !received.is_empty())
}

/// The rings of a device while it serves a connection.
struct Connection<'a> {
    channel: &'a Channel,
    id: u64,
}

impl Rings for Connection<'_> {
    fn send(&self, ring: u16, command: RingCommand) -> bool {
        self.channel.inboxes[usize::from(ring)].push(ThreadCommand::Channel(command))
    }

    fn stopped(&self, ring: u16) {
        self.channel.line(format_args!("connection {}: ring {ring} stopped", self.id));
    }

    fn closing(&self) {
        self.channel.connections.end_messages();
    }

    fn panicked(&self) {
        self.channel.shared.counters.server().panics.count();
    }
}
