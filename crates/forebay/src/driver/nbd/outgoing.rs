//! What is to be sent and was not: stretches of memory, in order.
//!
//! Headers stay with their requests' tags, and data with the requests: nothing is copied. A request
//! is sent when so many bytes have gone as there were to send when it was put here.

use super::socket::NR_VECTORS_MAX;
use crate::driver::vectors::Vector;

/// What is to be sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    list: Vec<Vector>,
    /// The first that was not sent, or not whole; it is cut to what is left.
    first: usize,
    /// How many bytes were put here, ever.
    nr_put: u64,
    /// How many of them have gone.
    nr_sent: u64,
}

impl Outgoing {
    /// Puts memory behind all other.
    #[inline]
    pub(super) fn push(&mut self, vector: Vector) {
        self.nr_put += vector.len() as u64;
        self.list.push(vector);
    }

    /// How many bytes were put here, ever: what is put now is sent when so many have gone.
    #[inline]
    pub(super) fn mark(&self) -> u64 {
        self.nr_put
    }

    /// Whether all has gone that was put here up to a mark.
    #[inline]
    pub(super) fn has_sent(&self, mark: u64) -> bool {
        self.nr_sent >= mark
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.list.len()
    }

    /// As much as one call takes.
    #[inline]
    pub(super) fn next(&self) -> &[Vector] {
        let rest = &self.list[self.first..];
        &rest[..rest.len().min(NR_VECTORS_MAX)]
    }

    /// The first `len` bytes have gone.
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

    /// Nothing of it will be sent.
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
    fn what_is_sent_in_pieces_is_marked_when_it_is_whole() {
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
