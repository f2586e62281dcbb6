//! Generational slab: indices are reused, a [`Key`] is not.

use crate::plant::plants;

/// Key of an entry. It is unique: after the entry is removed, it finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Returns the key as a number, for events and completions. Its highest bits ([`MARK_SHIFT`])
    /// are 0.
    #[inline]
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the key of a number, ignoring its highest bits.
    #[inline]
    pub fn of_u64(number: u64) -> Key {
        Key { index: number as u32, generation: (number >> 32) as u32 & GENERATION_MASK }
    }
}

/// First bit of a number that keys leave to other uses.
pub const MARK_SHIFT: u32 = 60;

const GENERATION_MASK: u32 = (1 << (MARK_SHIFT - 32)) - 1;

/// A table of entries by key.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Inserts an entry.
    #[inline]
    pub(crate) fn insert(&mut self, thing: T) -> Key {
        self.insert_with(|_| thing)
    }

    /// Inserts an entry that is made from its key.
    #[inline]
    pub(crate) fn insert_with(&mut self, thing: impl FnOnce(Key) -> T) -> Key {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push((0, None));
                (self.entries.len() - 1) as u32
            }
        };
        let entry = &mut self.entries[index as usize];
        let key = Key { index, generation: entry.0 };
        entry.1 = Some(thing(key));
        key
    }

    /// Returns the entry of this key, if it still exists.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.entries.get_mut(key.index as usize) {
            Some((generation, thing)) if *generation == key.generation || plants!(AnswerNext) => {
                thing.as_mut()
            }
            _ => None,
        }
    }

    /// Returns all entries.
    #[cfg(forebay_plant)]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|(_, thing)| thing.as_mut())
    }

    /// Removes and returns an entry.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, thing) = self.entries.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let thing = thing.take()?;
        *generation = (*generation + 1) & GENERATION_MASK;
        self.free.push(key.index);
        Some(thing)
    }

    /// Returns the key of the first entry at or behind index `from`, and moves `from` behind it.
    /// Entries may be added and removed while a loop calls this from 0 on.
    pub(crate) fn next_key(&self, from: &mut usize) -> Option<Key> {
        let rest = self.entries.get(*from..)?;
        let index = *from + rest.iter().position(|(_, thing)| thing.is_some())?;
        *from = index + 1;
        Some(Key { index: index as u32, generation: self.entries[index].0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_key_does_not_find_a_later_entry() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(Key::of_u64(first.to_u64()), first);
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_ne!(first, second);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.len(), 1);
        assert_eq!(slots.next_key(&mut 0), Some(second));
    }

    #[test]
    fn each_key_is_found_once_while_things_are_removed() {
        let mut slots = Slots::new();
        let keys: Vec<_> = (0..6).map(|thing| slots.insert(thing)).collect();
        assert_eq!([0, 3].map(|nr: usize| slots.remove(keys[nr])), [Some(0), Some(3)]);
        let (mut at, mut found) = (0, Vec::new());
        while let Some(key) = slots.next_key(&mut at) {
            found.push(key);
            slots.remove(key);
        }
        assert_eq!(found, [keys[1], keys[2], keys[4], keys[5]]);
        assert_eq!((slots.len(), slots.next_key(&mut 0)), (0, None));
    }
}
