//! Send queue of a connection: memory to be sent, in order.
//!
//! Headers stay with their requests' tags, and data with the requests, so nothing is copied. A
//! request is sent when the total of bytes sent reaches the total queued when the request was
//! added.

use crate::driver::socket::NR_VECTORS_MAX;
use crate::driver::vectors::Vector;

/// Memory to be sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    list: Vec<Vector>,
    /// The first entry not sent completely; it is cut to the rest.
    first: usize,
    /// The total number of bytes queued.
    nr_put: u64,
    /// The total number of bytes sent.
    nr_sent: u64,
}

impl Outgoing {
    /// Adds memory at the end.
    #[inline]
    pub(super) fn push(&mut self, vector: Vector) {
        self.nr_put += vector.len() as u64;
        self.list.push(vector);
    }

    /// Returns the total number of bytes queued. Everything queued so far is sent when the total of
    /// bytes sent reaches it.
    #[inline]
    pub(super) fn mark(&self) -> u64 {
        self.nr_put
    }

    /// Returns whether everything queued up to a mark is sent.
    #[inline]
    pub(super) fn has_sent(&self, mark: u64) -> bool {
        self.nr_sent >= mark
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.list.len()
    }

    /// Returns as much as one system call takes.
    #[inline]
    pub(super) fn next(&self) -> &[Vector] {
        let rest = &self.list[self.first..];
        &rest[..rest.len().min(NR_VECTORS_MAX)]
    }

    /// Removes the first `len` bytes, which are sent.
    pub(super) fn advance(&mut self, len: usize) {
        self.nr_sent += len as u64;
        let mut left = len;
        while left > 0 {
            let first = &mut self.list[self.first];
            if first.len() > left {
                *first = first.part(left, usize::MAX);
                return;
            }
            left -= first.len();
            self.first += 1;
        }
        if self.is_empty() {
            self.list.clear();
            self.first = 0;
        }
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.first = 0;
        self.nr_sent = self.nr_put;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_sent_in_pieces_is_marked_when_complete() {
        let bytes = [1u8; 100];
        let mut out = Outgoing::default();
        let mut marks = Vec::new();
        for part in bytes.chunks(7) {
            out.push(Vector::of(part));
            marks.push(out.mark());
        }
        let mut nr_sent = 0;
        for len in [1, 5, 1, 30, 60, 3] {
            out.advance(len);
            nr_sent += len as u64;
            assert!(marks.iter().all(|&mark| out.has_sent(mark) == (mark <= nr_sent)));
            let left: usize = out.next().iter().map(Vector::len).sum();
            assert_eq!(left as u64 + nr_sent, 100);
            let next = out.next().first().map(|vector| vector.addr().addr());
            let expected = (nr_sent < 100).then(|| bytes.as_ptr().addr() + nr_sent as usize);
            assert_eq!(next, expected);
        }
        assert!(out.is_empty());
        out.push(Vector::of(&bytes));
        out.clear();
        assert!(out.is_empty() && out.has_sent(out.mark()));
    }

    #[test]
    fn one_call_is_not_given_more_than_it_takes() {
        let mut out = Outgoing::default();
        (0..NR_VECTORS_MAX + 10).for_each(|_| out.push(Vector::of(&[0; 3])));
        assert_eq!(out.next().len(), NR_VECTORS_MAX);
        out.advance(NR_VECTORS_MAX * 3);
        assert_eq!(out.next().len(), 10);
    }
}
