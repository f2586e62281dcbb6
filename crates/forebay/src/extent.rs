//! What is known of ranges of a disk: whether there is data, or nothing but zeroes.

/// A stretch of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How long, bytes. Never 0.
    pub len: u64,
    /// What is there.
    pub kind: ExtentKind,
}

/// What is in a stretch of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Data; or it is not known what.
    Data,
    /// Reads as zeroes; there is room for it on the device.
    Zero,
    /// Reads as zeroes; a write may have to find room for it first.
    Hole,
}

/// Gathers what is known of a range, front to back: neighbours of one kind become one, and there
/// are never more than was asked for.
pub(crate) struct Extents<'a> {
    list: &'a mut Vec<Extent>,
    max: usize,
    left: u64,
}

impl<'a> Extents<'a> {
    /// Of `len` bytes; what `list` held is forgotten.
    pub(crate) fn new(list: &'a mut Vec<Extent>, len: u64, max: usize) -> Extents<'a> {
        list.clear();
        Extents { list, max, left: len }
    }

    /// How many bytes nothing is known of yet; 0 once there are as many extents as may be.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The next `len` bytes are so; what is beyond the range is ignored.
    pub(crate) fn push(&mut self, len: u64, kind: ExtentKind) {
        let len = len.min(self.left);
        if len == 0 {
            return;
        }
        let has_room = self.list.len() < self.max;
        match self.list.last_mut() {
            Some(last) if last.kind == kind => last.len += len,
            _ if has_room => self.list.push(Extent { len, kind }),
            _ => {
                self.left = 0;
                return;
            }
        }
        self.left -= len;
    }

    /// The rest is so.
    pub(crate) fn finish(mut self, kind: ExtentKind) {
        self.push(self.left, kind);
    }
}

#[cfg(test)]
mod tests {
    use super::ExtentKind::{Data, Hole, Zero};
    use super::*;

    #[test]
    fn neighbours_of_one_kind_are_one_and_no_more_are_kept_than_wanted() {
        let mut list = vec![Extent { len: 9, kind: Zero }];
        let mut extents = Extents::new(&mut list, 100, 2);
        extents.push(10, Data);
        extents.push(0, Hole);
        extents.push(10, Data);
        extents.push(30, Hole);
        assert_eq!(extents.left(), 50);
        extents.push(1, Zero);
        assert_eq!(extents.left(), 0);
        extents.finish(Hole);
        assert_eq!(list, [Extent { len: 20, kind: Data }, Extent { len: 30, kind: Hole }]);
        Extents::new(&mut list, 7, 1).finish(Zero);
        assert_eq!(list, [Extent { len: 7, kind: Zero }]);
        Extents::new(&mut list, 7, 0).finish(Zero);
        assert!(list.is_empty());
    }
}
