//! What clients ask for and get: requests and bytes, counted by one worker, read by anybody.

use super::counter::Counter;
use super::kinds::RequestKind;

/// What an export, a connection or a connection that is gone was asked for.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: [Counter; RequestKind::ALL.len()],
    ended: Counter,
    errors: Counter,
    read_bytes: Counter,
    written_bytes: Counter,
    received_bytes: Counter,
    sent_bytes: Counter,
}

impl Traffic {
    /// A request is there, and not answered yet.
    #[inline]
    pub(crate) fn begin(&self, kind: RequestKind) {
        self.requests[kind as usize].add(1);
    }

    /// A request was answered: `bytes` of data were read for it or written by it.
    #[inline]
    pub(crate) fn end(&self, kind: RequestKind, bytes: u64) {
        self.ended.add(1);
        match kind {
            RequestKind::Read => self.read_bytes.add(bytes),
            RequestKind::Write => self.written_bytes.add(bytes),
            _ => {}
        }
    }

    /// A request was answered with an error.
    #[inline]
    pub(crate) fn fail(&self) {
        self.ended.add(1);
        self.errors.add(1);
    }

    /// Bytes came from the client: headers, payloads, the handshake; without TLS's own.
    #[inline]
    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// Bytes went to the client.
    #[inline]
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.add(bytes);
    }

    /// A copy as of now.
    pub(crate) fn sum(&self) -> TrafficSum {
        // First what has ended: so no request has ended that has not begun.
        let mut sum = TrafficSum { ended: self.ended.get(), ..Default::default() };
        for (sum, counter) in sum.requests.iter_mut().zip(&self.requests) {
            *sum = counter.get();
        }
        sum.errors = self.errors.get();
        sum.read_bytes = self.read_bytes.get();
        sum.written_bytes = self.written_bytes.get();
        sum.received_bytes = self.received_bytes.get();
        sum.sent_bytes = self.sent_bytes.get();
        sum
    }
}

/// What [`Traffic`] has counted at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficSum {
    requests: [u64; RequestKind::ALL.len()],
    ended: u64,
    /// Requests that were answered with an error.
    pub(crate) errors: u64,
    /// Bytes of data that reads have brought.
    pub(crate) read_bytes: u64,
    /// Bytes of data that writes have taken.
    pub(crate) written_bytes: u64,
    /// Bytes from the client.
    pub(crate) received_bytes: u64,
    /// Bytes to the client.
    pub(crate) sent_bytes: u64,
}

impl TrafficSum {
    /// Requests of this kind.
    pub(crate) fn requests(&self, kind: RequestKind) -> u64 {
        self.requests[kind as usize]
    }

    /// Requests of all kinds.
    pub(crate) fn all_requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// None of its requests will be answered any more.
    pub(super) fn end_all(&mut self) {
        self.ended = self.all_requests();
    }

    /// Requests that were not answered yet.
    pub(crate) fn in_flight(&self) -> u64 {
        self.all_requests().saturating_sub(self.ended)
    }

    /// Adds what another has counted.
    pub(super) fn add(&mut self, other: &TrafficSum) {
        for (sum, more) in self.requests.iter_mut().zip(&other.requests) {
            *sum += more;
        }
        self.ended += other.ended;
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}
