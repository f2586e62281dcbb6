//! Traffic counters: requests and bytes, written by one worker, read by any thread.

use super::counter::Counter;
use forebay_front::RequestKind;

/// Traffic of an export or a connection.
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
    /// Counts a request that was received and is not answered yet.
    #[inline]
    pub(crate) fn begin(&self, kind: RequestKind) {
        self.requests[kind as usize].add(1);
    }

    /// Counts a request that was answered, with `bytes` of data read or written.
    #[inline]
    pub(crate) fn end(&self, kind: RequestKind, bytes: u64) {
        self.ended.add(1);
        match kind {
            RequestKind::Read => self.read_bytes.add(bytes),
            RequestKind::Write => self.written_bytes.add(bytes),
            _ => {}
        }
    }

    /// Counts a request that was answered with an error.
    #[inline]
    pub(crate) fn fail(&self) {
        self.ended.add(1);
        self.errors.add(1);
    }

    /// Counts bytes from the client: headers, payloads and the handshake, without those of TLS.
    #[inline]
    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// Counts bytes sent to the client.
    #[inline]
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.add(bytes);
    }

    /// Returns a copy of the current values.
    pub(crate) fn sum(&self) -> TrafficSum {
        // Ended requests are read first, so that no request seems to end before it begins.
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

/// Values of [`Traffic`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficSum {
    requests: [u64; RequestKind::ALL.len()],
    ended: u64,
    /// Requests that were answered with an error.
    pub(crate) errors: u64,
    /// Bytes read by clients.
    pub(crate) read_bytes: u64,
    /// Bytes written by clients.
    pub(crate) written_bytes: u64,
    /// Bytes received from clients.
    pub(crate) received_bytes: u64,
    /// Bytes sent to clients.
    pub(crate) sent_bytes: u64,
}

impl TrafficSum {
    /// Returns the number of requests of this kind.
    pub(crate) fn requests(&self, kind: RequestKind) -> u64 {
        self.requests[kind as usize]
    }

    /// Returns the number of requests of all kinds.
    pub(crate) fn all_requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Records that none of its requests will be answered any more.
    pub(super) fn end_all(&mut self) {
        self.ended = self.all_requests();
    }

    /// Returns the number of requests that are not answered yet.
    pub(crate) fn in_flight(&self) -> u64 {
        self.all_requests().saturating_sub(self.ended)
    }

    /// Returns the traffic since an earlier moment.
    pub(crate) fn since(&self, before: &TrafficSum) -> TrafficSum {
        let mut requests = self.requests;
        for (now, before) in requests.iter_mut().zip(&before.requests) {
            *now = now.saturating_sub(*before);
        }
        TrafficSum {
            requests,
            ended: self.ended.saturating_sub(before.ended),
            errors: self.errors.saturating_sub(before.errors),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
        }
    }

    /// Adds the values of another.
    pub(crate) fn add(&mut self, other: &TrafficSum) {
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
