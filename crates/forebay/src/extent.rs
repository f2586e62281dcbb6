//! Extents: which ranges of a disk hold data, and which read as zeroes.

/// A range of a disk with one kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length in bytes. Never 0.
    pub len: u64,
    /// The kind of content.
    pub kind: ExtentKind,
}

/// The content of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Data, or unknown content.
    Data,
    /// Reads as zeroes, with space allocated on the device.
    Zero,
    /// Reads as zeroes. A write may have to allocate space first.
    Hole,
}

/// Collects the extents of a range, front to back. Adjacent extents of one kind are joined, and the
/// number of extents is limited. A [`Backend`](crate::Backend) describes its contents with it.
#[derive(Debug)]
pub struct Extents<'a> {
    list: &'a mut Vec<Extent>,
    max: usize,
    left: u64,
}

impl<'a> Extents<'a> {
    /// Starts with a range of `len` bytes and clears `list`.
    pub(crate) fn new(list: &'a mut Vec<Extent>, len: u64, max: usize) -> Extents<'a> {
        list.clear();
        Extents { list, max, left: len }
    }

    /// Returns how many bytes are not described yet; 0 once the maximum number of extents is
    /// reached.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Describes the next `len` bytes. Bytes beyond the range are ignored.
    pub fn push(&mut self, len: u64, kind: ExtentKind) {
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

    /// Describes the rest of the range.
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
