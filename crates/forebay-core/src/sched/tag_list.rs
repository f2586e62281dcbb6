//! Doubly linked lists of tags, for FIFOs from whose middle requests leave.
//!
//! The links are rows of a table by tag, so a list allocates nothing, and a request that is merged
//! or dispatched leaves its list at once. Counterpart in Linux: `struct list_head`.

use crate::tag::Tag;
use alloc::boxed::Box;

/// The links of all lists of a scheduler. A tag is in at most one of them.
#[derive(Clone, Debug)]
pub(super) struct Links(Box<[Link]>);

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    before: Option<Tag>,
    after: Option<Tag>,
}

/// The ends of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TagList {
    first: Option<Tag>,
    last: Option<Tag>,
}

impl Links {
    /// Creates the links of `depth` tags.
    pub(super) fn new(depth: u32) -> Links {
        Links((0..depth).map(|_| Link::default()).collect())
    }

    fn of(&mut self, tag: Tag) -> &mut Link {
        &mut self.0[tag.index()]
    }
}

impl TagList {
    /// Returns the oldest tag.
    #[inline]
    pub(super) fn first(&self) -> Option<Tag> {
        self.first
    }

    /// Appends a tag.
    pub(super) fn push_back(&mut self, tag: Tag, links: &mut Links) {
        *links.of(tag) = Link { before: self.last, after: None };
        match self.last {
            Some(last) => links.of(last).after = Some(tag),
            None => self.first = Some(tag),
        }
        self.last = Some(tag);
    }

    /// Inserts a tag before `next`, which is in this list.
    pub(super) fn insert_before(&mut self, next: Tag, tag: Tag, links: &mut Links) {
        let before = links.of(next).before.replace(tag);
        *links.of(tag) = Link { before, after: Some(next) };
        match before {
            Some(before) => links.of(before).after = Some(tag),
            None => self.first = Some(tag),
        }
    }

    /// Removes a tag, which is in this list.
    pub(super) fn remove(&mut self, tag: Tag, links: &mut Links) {
        let Link { before, after } = core::mem::take(links.of(tag));
        match before {
            Some(before) => links.of(before).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => links.of(after).before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn all(list: &TagList, links: &Links) -> Vec<usize> {
        let after = |tag: &Tag| links.0[tag.index()].after;
        let tags: Vec<Tag> = core::iter::successors(list.first(), after).collect();
        assert_eq!(tags.last().copied(), list.last);
        tags.into_iter().map(Tag::index).collect()
    }

    #[test]
    fn tags_leave_from_any_place_and_the_others_keep_their_order() {
        let mut links = Links::new(8);
        let [tag0, tag1, tag2, tag3, tag4] = [0, 1, 2, 3, 4].map(Tag::from_index);
        let mut list = TagList::default();
        for tag in [tag0, tag1, tag2, tag3] {
            list.push_back(tag, &mut links);
        }
        assert_eq!(all(&list, &links), [0, 1, 2, 3]);
        list.remove(tag1, &mut links);
        list.insert_before(tag3, tag1, &mut links);
        list.insert_before(tag0, tag4, &mut links);
        assert_eq!(all(&list, &links), [4, 0, 2, 1, 3]);
        for (tag, left) in [(tag3, 4), (tag4, 3), (tag2, 2), (tag0, 1), (tag1, 0)] {
            list.remove(tag, &mut links);
            assert_eq!(all(&list, &links).len(), left);
        }
        list.push_back(tag3, &mut links);
        assert_eq!(all(&list, &links), [3]);
    }
}
