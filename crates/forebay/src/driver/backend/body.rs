//! Body of a request: its operation, its range and its memory.
//!
//! A queue has one body for each tag ([`Bodies`](super::handle::Bodies)). So a request allocates
//! nothing, except for lists of segments or ranges that grow.

use super::queue_state::QueueState;
use forebay_core::{IssuedRequest, Op, Segment, Tag};
use std::sync::Arc;

/// The first segment of a request without memory.
const NO_MEMORY: Segment = Segment { addr: 0, len: 0 };

/// The body of the requests of one tag, one at a time.
pub(super) struct Body {
    pub(super) state: Arc<QueueState>,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The memory of a read or write: one segment, and more if that is not all of it. The list
    /// keeps its capacity.
    first: Segment,
    more: Vec<Segment>,
    /// The ranges of a discard. Meaningless for other operations. The list keeps its capacity.
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) tag: Tag,
    pub(super) op: Op,
    pub(super) is_fua: bool,
    pub(super) is_full_sync: bool,
    pub(super) has_owned_memory: bool,
}

impl Body {
    pub(super) fn new(state: &Arc<QueueState>, tag: Tag) -> Body {
        Body {
            state: Arc::clone(state),
            offset: 0,
            len: 0,
            first: NO_MEMORY,
            more: Vec::new(),
            ranges: Vec::new(),
            tag,
            op: Op::Flush,
            is_fua: false,
            is_full_sync: false,
            has_owned_memory: false,
        }
    }

    /// Makes this the body of a request, without its memory and ranges.
    #[inline]
    pub(super) fn fill(&mut self, rq: &IssuedRequest<'_>) {
        let &IssuedRequest { op, fua, metadata, start, len, .. } = rq;
        (self.op, self.is_fua, self.is_full_sync) = (op, fua, metadata);
        (self.offset, self.len) = (start, len);
        self.has_owned_memory = rq.has_owned_memory();
    }

    /// Sets the memory of a read or write that has one segment.
    #[inline]
    pub(super) fn set_segment(&mut self, segment: Segment) {
        self.first = segment;
    }

    /// Sets the memory and the ranges of any request.
    pub(super) fn set_memory(&mut self, rq: &IssuedRequest<'_>) {
        let mut segments = rq.segments();
        self.first = segments.next().unwrap_or(NO_MEMORY);
        self.more.clear();
        self.more.extend(segments);
        self.ranges.clear();
        if self.op == Op::Discard {
            self.ranges.extend(rq.ranges());
        }
    }

    /// Returns the number of segments.
    pub(super) fn nr_segments(&self) -> usize {
        match self.op.moves_data() {
            false => 0,
            // The list may be that of an earlier request.
            true if u64::from(self.first.len) == self.len => 1,
            true => 1 + self.more.len(),
        }
    }

    /// Returns the segment `nth`, in the order of the bytes on the disk.
    pub(super) fn segment(&self, nth: usize) -> Segment {
        if nth == 0 { self.first } else { self.more[nth - 1] }
    }
}
