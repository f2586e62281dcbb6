//! Extents of a disk, made fit for a client: within the request, in whole blocks, joined.

/// Goes through extents, given as lengths in bytes with flags, and calls `tell` for each that is
/// to be told, at most `nr_max` times.
///
/// Nothing is told beyond `end`. Lengths that are told are multiples of the block, of which `mask`
/// is one less: a block in which two extents meet has the flags that both have, since a flag is a
/// promise. What the extents cover only in part of their last block is left out. If nothing is
/// left, all is told without a flag, because a client has to get on.
pub(super) fn each(
    extents: &[(u64, u32)],
    end: u64,
    mask: u64,
    nr_max: usize,
    tell: impl FnMut(u64, u32),
) {
    let mut joiner = Joiner { last: None, nr_left: nr_max, tell };
    // What was told ends at `told`, in whole blocks; what was seen ends at `seen`.
    let (mut told, mut seen) = (0_u64, 0_u64);
    // The flags so far of the block at `told`, if that was begun.
    let mut begun: Option<u32> = None;
    for &(len, flags) in extents {
        if len == 0 || seen >= end || joiner.nr_left == 0 {
            continue;
        }
        seen = seen.saturating_add(len).min(end);
        if let Some(flags_before) = begun {
            let block_end = told.saturating_add(mask).saturating_add(1);
            if seen < block_end {
                begun = Some(flags_before & flags);
                continue;
            }
            joiner.push(block_end.saturating_sub(told), flags_before & flags);
            told = block_end;
        }
        let whole_end = seen & !mask;
        if whole_end > told {
            joiner.push(whole_end.saturating_sub(told), flags);
            told = whole_end;
        }
        begun = (seen > told).then_some(flags);
    }
    if told == 0 {
        joiner.push(end, 0);
    }
    joiner.flush();
}

/// Joins neighbours of the same flags.
struct Joiner<F> {
    last: Option<(u64, u32)>,
    nr_left: usize,
    tell: F,
}

impl<F: FnMut(u64, u32)> Joiner<F> {
    fn push(&mut self, len: u64, flags: u32) {
        match &mut self.last {
            Some((last_len, last_flags)) if *last_flags == flags => {
                *last_len = last_len.saturating_add(len);
            }
            _ => {
                self.flush();
                self.last = Some((len, flags));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((len, flags)) = self.last.take()
            && self.nr_left > 0
        {
            self.nr_left = self.nr_left.saturating_sub(1);
            (self.tell)(len, flags);
        }
    }
}
