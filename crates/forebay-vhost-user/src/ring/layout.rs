//! Lengths and alignments of the parts of a split ring (VIRTIO 1.2, section 2.7).

/// Length of a descriptor, bytes.
pub(super) const DESCRIPTOR: usize = 16;
/// Length of an entry of the available ring, bytes.
pub(super) const AVAILABLE_ENTRY: usize = 2;
/// Length of an entry of the used ring, bytes.
pub(super) const USED_ENTRY: usize = 8;
/// Length of the flags and the index in front of the entries of either ring, bytes.
pub(super) const RING_HEADER: usize = 4;
/// Length of the event index behind the entries of either ring, bytes.
const EVENT_INDEX: usize = 2;

/// Part of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Descriptors,
    Available,
    Used,
}

impl Part {
    /// Returns the length of the part of a ring with `size` descriptors, bytes.
    pub(crate) fn len(self, size: u16) -> u64 {
        let nr = usize::from(size);
        let len = match self {
            Part::Descriptors => nr * DESCRIPTOR,
            Part::Available => RING_HEADER + nr * AVAILABLE_ENTRY + EVENT_INDEX,
            Part::Used => RING_HEADER + nr * USED_ENTRY + EVENT_INDEX,
        };
        len as u64
    }

    /// Returns the alignment that its address in the guest must have, bytes.
    pub(crate) fn alignment(self) -> u64 {
        match self {
            Part::Descriptors => 16,
            Part::Available => 2,
            Part::Used => 4,
        }
    }
}
