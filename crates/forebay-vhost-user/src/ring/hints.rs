//! Addresses of former requests, for prefetches of the next ones.
//!
//! Drivers use the same memory again, so the next request with a head is usually at the same place.
//! A wrong address costs only a useless prefetch.

use crate::memory::prefetch;

/// Addresses of the last request with each head, in this process.
#[derive(Debug)]
pub(super) struct Hints(Vec<Hint>);

#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    /// Its indirect table, or its first descriptor.
    table: usize,
    header: usize,
}

impl Hints {
    /// Returns the hints of a ring with `size` descriptors, without addresses.
    pub(super) fn new(size: u16) -> Hints {
        Hints(vec![Hint::default(); usize::from(size)])
    }

    /// Records the addresses of a request.
    #[inline]
    pub(super) fn set(&mut self, head: u16, table: usize, header: usize) {
        self.0[usize::from(head)] = Hint { table, header };
    }

    /// Prefetches the table and the header of a request. Any head is harmless.
    #[inline]
    pub(super) fn prefetch(&self, head: u16) {
        if let Some(hint) = self.0.get(usize::from(head)) {
            prefetch(hint.table);
            prefetch(hint.header);
        }
    }
}
