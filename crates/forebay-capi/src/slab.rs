//! Generational slab: a key names one value, and never a different one.
//!
//! A key has the index of a place and the generation of the value in it. Taking a value begins the
//! next generation of its place, so every later use of the key is detected. Places are never freed.
//! A place that has used all its generations takes no more values.
//!
//! Keys go to C as the bits of a pointer. They are odd, so no key equals the address of a handle.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// The bits of an index: 24 of 64.
const INDEX_BITS: u32 = usize::BITS * 3 / 8;

/// The number of places, which is the maximum number of values.
const PLACES_MAX: u32 = 1 << INDEX_BITS;

/// Generations are below this number, which is 2^39 if a pointer has 64 bits.
const GENERATION_END: usize = 1 << (usize::BITS - 1 - INDEX_BITS);

/// The number of places in the first chunk. Each next chunk doubles the number of all places.
const FIRST_CHUNK: u32 = 64;

const NR_CHUNKS: usize = (PLACES_MAX / FIRST_CHUNK).ilog2() as usize + 1;

/// The number of attempts to lock the list of free places. Other threads hold the lock only
/// briefly, but in a child of a fork, a thread of the parent may hold it forever.
const LOCK_TRIES: u32 = 1000;

/// The name of a value: an odd number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(NonZeroUsize);

impl Key {
    #[inline]
    fn new(index: u32, generation: usize) -> Key {
        let bits = generation << (INDEX_BITS + 1) | (index as usize) << 1 | 1;
        Key(NonZeroUsize::MIN | bits)
    }

    /// Returns the key of these bits, if they can be those of a key.
    #[inline]
    pub(crate) fn from_bits(bits: usize) -> Option<Key> {
        NonZeroUsize::new(bits).filter(|bits| bits.get() & 1 == 1).map(Key)
    }

    #[inline]
    pub(crate) fn bits(self) -> usize {
        self.0.get()
    }

    #[inline]
    fn index(self) -> u32 {
        (self.bits() >> 1) as u32 % PLACES_MAX
    }

    #[inline]
    fn generation(self) -> usize {
        self.bits() >> (INDEX_BITS + 1)
    }
}

/// The reason why a key has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// No value ever had this key.
    Unknown,
    /// Its value was taken.
    Taken,
    /// Another call uses the value.
    InUse,
}

/// Values by key.
pub(crate) struct Slab<T> {
    chunks: [OnceLock<Chunk<T>>; NR_CHUNKS],
    free: Mutex<Free>,
}

type Chunk<T> = Box<[Mutex<Place<T>>]>;

struct Place<T> {
    /// The generation of the value, or of the next one.
    generation: usize,
    value: Option<T>,
}

/// The places without a value.
struct Free {
    /// Places that had values, the latest last.
    used: Vec<u32>,
    /// The number of places that ever had values.
    nr_used: u32,
}

/// A value that no other call uses.
pub(crate) struct Entry<'a, T> {
    slab: &'a Slab<T>,
    key: Key,
    /// The value is present.
    place: MutexGuard<'a, Place<T>>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab {
            chunks: [const { OnceLock::new() }; NR_CHUNKS],
            free: Mutex::new(Free { used: Vec::new(), nr_used: 0 }),
        }
    }

    /// Adds a value. Returns it if all places are taken.
    pub(crate) fn insert(&self, value: T) -> Result<Key, T> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match free.used.pop() {
            Some(index) => index,
            None if free.nr_used < PLACES_MAX => {
                free.nr_used += 1;
                free.nr_used - 1
            }
            None => return Err(value),
        };
        drop(free);
        let place = self.place_or_new(index);
        // A call with a key of an earlier value may have the lock for a moment.
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.value = Some(value);
        Ok(Key::new(index, place.generation))
    }

    /// Returns the value of a key. The entry keeps other calls from it.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Result<Entry<'_, T>, Miss> {
        let place = self.place(key.index()).ok_or(Miss::Unknown)?;
        let place = match place.try_lock() {
            Ok(place) => place,
            // The value is as it was, because a panic cannot leave it half changed.
            Err(TryLockError::Poisoned(place)) => place.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Miss::InUse),
        };
        if key.generation() < place.generation {
            return Err(Miss::Taken);
        }
        if key.generation() > place.generation || place.value.is_none() {
            return Err(Miss::Unknown);
        }
        Ok(Entry { slab: self, key, place })
    }

    /// Returns a place to the list of free places.
    fn release(&self, index: u32) {
        for _ in 0..LOCK_TRIES {
            match self.free.try_lock() {
                Ok(mut free) => return free.used.push(index),
                Err(TryLockError::Poisoned(free)) => return free.into_inner().used.push(index),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        // The place stays without a value.
    }

    #[inline]
    fn place(&self, index: u32) -> Option<&Mutex<Place<T>>> {
        let (chunk, at) = position(index);
        self.chunks[chunk].get().map(|places| &places[at])
    }

    fn place_or_new(&self, index: u32) -> &Mutex<Place<T>> {
        let (chunk, at) = position(index);
        let create = || {
            let nr = if chunk == 0 { FIRST_CHUNK } else { FIRST_CHUNK << (chunk - 1) };
            (0..nr).map(|_| Mutex::new(Place { generation: 0, value: None })).collect()
        };
        &self.chunks[chunk].get_or_init(create)[at]
    }
}

/// Returns the chunk of a place, and its index in that chunk.
#[inline]
fn position(index: u32) -> (usize, usize) {
    let chunk = (index / FIRST_CHUNK).checked_ilog2().map_or(0, |log| log + 1);
    let first = if chunk == 0 { 0 } else { FIRST_CHUNK << (chunk - 1) };
    (chunk as usize, (index - first) as usize)
}

impl<T> Entry<'_, T> {
    #[inline]
    pub(crate) fn value(&mut self) -> &mut T {
        self.place.value.as_mut().expect("an entry has a value")
    }

    /// Takes the value. Its key is no longer valid.
    pub(crate) fn take(mut self) -> T {
        let value = self.place.value.take().expect("an entry has a value");
        self.place.generation += 1;
        let is_left = self.place.generation < GENERATION_END;
        drop(self.place);
        if is_left {
            self.slab.release(self.key.index());
        }
        value
    }
}

#[cfg(test)]
mod tests;
