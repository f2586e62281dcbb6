//! Extents of a disk, converted for a client: within the request, in whole blocks, joined.

/// Converts extents, given as lengths in bytes with flags, and calls `emit` for each result, at
/// most `nr_max` times.
///
/// The results end at `end` at the latest. Their lengths are multiples of the block size, which is
/// `mask + 1`. A block in which two extents meet gets the flags that both have, since a flag is a
/// promise. A last block that the extents cover only in part is left out. If nothing is left, the
/// result is one extent without flags, so that the client makes progress.
pub(super) fn each(
    extents: &[(u64, u32)],
    end: u64,
    mask: u64,
    nr_max: usize,
    emit: impl FnMut(u64, u32),
) {
    let mut joiner = Joiner { last: None, nr_left: nr_max, emit };
    // `emitted` is the end of the results, in whole blocks; `seen` is the end of the input so far.
    let (mut emitted, mut seen) = (0_u64, 0_u64);
    // Flags so far of the block at `emitted`, if an extent covers a part of it.
    let mut begun: Option<u32> = None;
    for &(len, flags) in extents {
        if len == 0 || seen >= end || joiner.nr_left == 0 {
            continue;
        }
        seen = seen.saturating_add(len).min(end);
        if let Some(flags_before) = begun {
            let block_end = emitted.saturating_add(mask).saturating_add(1);
            if seen < block_end {
                begun = Some(flags_before & flags);
                continue;
            }
            joiner.push(block_end.saturating_sub(emitted), flags_before & flags);
            emitted = block_end;
        }
        let whole_end = seen & !mask;
        if whole_end > emitted {
            joiner.push(whole_end.saturating_sub(emitted), flags);
            emitted = whole_end;
        }
        begun = (seen > emitted).then_some(flags);
    }
    if emitted == 0 {
        joiner.push(end, 0);
    }
    joiner.flush();
}

/// Joins neighbours with equal flags.
struct Joiner<F> {
    last: Option<(u64, u32)>,
    nr_left: usize,
    emit: F,
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
            (self.emit)(len, flags);
        }
    }
}
