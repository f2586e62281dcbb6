//! Generational slab: a key names one value, and never a different one.
//!
//! A key has the index of a place and the generation of the value in it. Taking a value begins the
//! next generation of its place, so every later use of the key is detected. Places are never freed.
//! A place that has used all its generations takes no more values.
//!
//! The state of a place is one word: its generation, and whether it has a value and a call uses it.
//! A call claims a value by an exchange of this word, which fails for the key of another
//! generation. So a call with such a key changes nothing, and disturbs no call with a valid one.
//!
//! Keys go to C as the bits of a pointer. They are odd, so no key equals the address of a handle.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
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

type Chunk<T> = Box<[Place<T>]>;

/// The place has no value. Its generation is that of the next one.
const EMPTY: usize = 0;
/// The place has a value that no call uses.
const IDLE: usize = 1;
/// A call uses the value.
const IN_USE: usize = 2;

const PHASE_BITS: u32 = 2;
const _: () = assert!(GENERATION_END.ilog2() + PHASE_BITS < usize::BITS);

struct Place<T> {
    /// The generation, above the phase: [`EMPTY`], [`IDLE`] or [`IN_USE`].
    state: AtomicUsize,
    /// The lock is free when a call claims the value, because only that call takes it.
    value: Mutex<Option<T>>,
}

fn state_of(generation: usize, phase: usize) -> usize {
    generation << PHASE_BITS | phase
}

impl<T> Place<T> {
    const fn new() -> Place<T> {
        Place { state: AtomicUsize::new(EMPTY), value: Mutex::new(None) }
    }

    fn generation(&self) -> usize {
        self.state.load(Ordering::Relaxed) >> PHASE_BITS
    }

    /// Ends a claim, or stores the first value of a generation.
    #[inline]
    fn publish(&self, generation: usize, phase: usize) {
        // Release: pairs with the acquire of the next claim, and with that of the next insert,
        // which is ordered by the list of free places.
        self.state.store(state_of(generation, phase), Ordering::Release);
    }

    /// A panic cannot leave the value half changed.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    value: MutexGuard<'a, Option<T>>,
    /// Dropped after the lock is free.
    claim: Claim<'a, T>,
}

/// The claim of a call to a value.
struct Claim<'a, T> {
    place: &'a Place<T>,
    /// The generation and the phase of the place after the claim.
    next: (usize, usize),
}

impl<T> Drop for Claim<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.place.publish(self.next.0, self.next.1);
    }
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
        *place.lock() = Some(value);
        // Only this call has the free place.
        let generation = place.generation();
        place.publish(generation, IDLE);
        Ok(Key::new(index, generation))
    }

    /// Returns the value of a key. The entry keeps other calls from it.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Result<Entry<'_, T>, Miss> {
        let (place, generation) = (self.place(key.index()).ok_or(Miss::Unknown)?, key.generation());
        let (idle, in_use) = (state_of(generation, IDLE), state_of(generation, IN_USE));
        // Acquire: the value was stored before, by `insert` or by the call of an earlier claim.
        match place.state.compare_exchange(idle, in_use, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                let claim = Claim { place, next: (generation, IDLE) };
                Ok(Entry { slab: self, key, value: place.lock(), claim })
            }
            Err(found) => Err(miss(generation, found)),
        }
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
    fn place(&self, index: u32) -> Option<&Place<T>> {
        let (chunk, at) = position(index);
        self.chunks[chunk].get().map(|places| &places[at])
    }

    fn place_or_new(&self, index: u32) -> &Place<T> {
        let (chunk, at) = position(index);
        let create = || {
            let nr = if chunk == 0 { FIRST_CHUNK } else { FIRST_CHUNK << (chunk - 1) };
            (0..nr).map(|_| Place::new()).collect()
        };
        &self.chunks[chunk].get_or_init(create)[at]
    }
}

/// Returns why a key of this generation has no value at a place in this state.
#[cold]
fn miss(generation: usize, found: usize) -> Miss {
    match found >> PHASE_BITS {
        present if generation < present => Miss::Taken,
        present if generation == present && found == state_of(present, IN_USE) => Miss::InUse,
        _ => Miss::Unknown,
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
        self.value.as_mut().expect("an entry has a value")
    }

    /// Takes the value. Its key is no longer valid.
    pub(crate) fn take(self) -> T {
        let Entry { slab, key, mut claim, value: mut locked } = self;
        let value = locked.take().expect("an entry has a value");
        drop(locked);
        let next = key.generation() + 1;
        claim.next = (next, EMPTY);
        drop(claim);
        if next < GENERATION_END {
            slab.release(key.index());
        }
        value
    }
}

#[cfg(test)]
mod tests;
