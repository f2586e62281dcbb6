//! A short list with room for its first elements in place.
//!
//! The checkers keep several lists for each block of a disk. Nearly all of them have one or two
//! elements, and a run visits the blocks in random order: elements elsewhere in memory would be one
//! more cache miss for each visit.

use std::ops::{Deref, DerefMut};

/// A list of `T`. Up to `N` elements are in place. With two elements of 24 bytes the list is one
/// cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Few<T, const N: usize> {
    near: [T; N],
    /// The number of elements in `near`, or [`FAR`].
    nr_near: u32,
    far: Option<Box<Far<T>>>,
}

/// The elements of a longer list.
#[derive(Clone, Debug)]
struct Far<T> {
    all: Vec<T>,
}

/// All elements are in `far`.
const FAR: u32 = u32::MAX;

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Few<T, N> {
        Few { near: [T::default(); N], nr_near: 0, far: None }
    }
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// Returns whether it has no element. (A list in `far` has more than `N`.)
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.nr_near == 0
    }

    /// Appends an element.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        match self.near.get_mut(self.nr_near as usize) {
            Some(place) => {
                *place = value;
                self.nr_near += 1;
            }
            None => self.push_far(value),
        }
    }

    #[inline(never)]
    fn push_far(&mut self, value: T) {
        let Far { all } = &mut **self.far.get_or_insert_with(|| Box::new(Far { all: Vec::new() }));
        if self.nr_near != FAR {
            all.extend_from_slice(&self.near);
            self.nr_near = FAR;
        }
        all.push(value);
    }

    /// Keeps only the elements for which `keep` returns true.
    #[inline]
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        if self.nr_near == FAR {
            return self.retain_far(keep);
        }
        let mut nr = 0;
        for at in 0..self.nr_near as usize {
            let value = self.near[at];
            if keep(&value) {
                self.near[nr] = value;
                nr += 1;
            }
        }
        self.nr_near = nr as u32;
    }

    #[inline(never)]
    fn retain_far(&mut self, keep: impl FnMut(&T) -> bool) {
        let Some(far) = &mut self.far else { return };
        far.all.retain(keep);
        let nr = far.all.len();
        if nr <= N {
            self.near[..nr].copy_from_slice(&far.all);
            self.nr_near = nr as u32;
            far.all.clear();
        }
    }

    /// Removes all elements. Keeps the allocated memory.
    pub(crate) fn clear(&mut self) {
        if self.nr_near == FAR {
            self.far.iter_mut().for_each(|far| far.all.clear());
        }
        self.nr_near = 0;
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self.near.get(..self.nr_near as usize) {
            Some(near) => near,
            None => self.far.as_ref().map_or(&[], |far| &far.all),
        }
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self.near.get_mut(..self.nr_near as usize) {
            Some(near) => near,
            None => self.far.as_mut().map_or(&mut [], |far| &mut far.all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Few;
    use forebay_model::Random;

    #[test]
    fn short_list_equals_a_plain_one_at_any_length() {
        let (mut random, mut few, mut plain) =
            (Random::new(1, 0), Few::<u64, 2>::default(), vec![]);
        for nth in 0..10_000 {
            match random.below(8) {
                0 => (few.clear(), plain.clear()).0,
                1..4 => {
                    let nr = random.below(5);
                    few.retain(|value| value % 5 != nr);
                    plain.retain(|value| value % 5 != nr);
                }
                _ => (few.push(nth), plain.push(nth)).0,
            }
            few.iter_mut().chain(&mut plain).for_each(|value| *value += 1);
            assert_eq!((&*few, few.is_empty()), (&*plain, plain.is_empty()));
        }
    }
}
