//! Box that carries a request: from the driver to the back end, and back with its result.
//!
//! A driver has as many boxes as there were ever requests in flight, and uses them again. So a
//! request allocates nothing, except for lists of segments or ranges that grow.

use super::failure::Failure;
use crate::driver::kit::CompletionList;
use forebay_core::{BlockStatus, IssuedRequest, Op, Segment, Tag};
use std::sync::Arc;

/// The first segment of a request without memory.
const NO_MEMORY: Segment = Segment { addr: 0, len: 0 };

/// A box that carries requests of one queue, one at a time.
pub(super) struct Body {
    pub(super) list: Arc<CompletionList<Box<Body>>>,
    pub(super) failure: Arc<Failure>,
    /// The size of a logical block, bytes.
    pub(super) block_size: u64,
    /// The next box of the [`Stack`](super::stack::Stack) that it is in.
    pub(super) next: Option<Box<Body>>,
    pub(super) tag: Tag,
    pub(super) result: Result<u64, BlockStatus>,
    pub(super) op: Op,
    pub(super) is_fua: bool,
    pub(super) is_full_sync: bool,
    pub(super) has_owned_memory: bool,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The memory of a read or write: one segment, and perhaps more. The list keeps its capacity.
    first: Segment,
    more: Vec<Segment>,
    /// The ranges of a discard. Empty for other operations. The list keeps its capacity.
    pub(super) ranges: Vec<(u64, u64)>,
}

impl Body {
    pub(super) fn new(
        list: &Arc<CompletionList<Box<Body>>>,
        failure: &Arc<Failure>,
        block_size: u32,
    ) -> Box<Body> {
        Box::new(Body {
            list: Arc::clone(list),
            failure: Arc::clone(failure),
            block_size: block_size.into(),
            next: None,
            tag: Tag::from_index(0),
            result: Ok(0),
            op: Op::Flush,
            is_fua: false,
            is_full_sync: false,
            has_owned_memory: false,
            offset: 0,
            len: 0,
            first: NO_MEMORY,
            more: Vec::new(),
            ranges: Vec::new(),
        })
    }

    /// Makes this the box of a request whose memory is one segment.
    #[inline]
    pub(super) fn fill_plain(&mut self, rq: &IssuedRequest<'_>, segment: Segment) {
        let &IssuedRequest { tag, op, fua, metadata, start, len, .. } = rq;
        (self.tag, self.op, self.is_fua, self.is_full_sync) = (tag, op, fua, metadata);
        (self.offset, self.len) = (start, len);
        self.has_owned_memory = rq.has_owned_memory();
        self.first = segment;
        self.more.clear();
    }

    /// Makes this the box of a request.
    pub(super) fn fill(&mut self, rq: &IssuedRequest<'_>) {
        let mut segments = rq.segments();
        self.fill_plain(rq, segments.next().unwrap_or(NO_MEMORY));
        self.more.extend(segments);
        self.ranges.clear();
        if self.op == Op::Discard {
            self.ranges.extend(rq.ranges());
        }
    }

    /// Returns the number of segments.
    pub(super) fn nr_segments(&self) -> usize {
        if self.op.moves_data() { 1 + self.more.len() } else { 0 }
    }

    /// Returns the segment `nth`, in the order of the bytes on the disk.
    pub(super) fn segment(&self, nth: usize) -> Segment {
        if nth == 0 { self.first } else { self.more[nth - 1] }
    }
}
