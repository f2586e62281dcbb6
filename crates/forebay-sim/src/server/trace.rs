//! The trace of a run: a hash over all events, the last events, and the count of each kind.

use std::collections::VecDeque;
use std::fmt::Debug;

/// How many events a violation shows.
const NR_SHOWN: usize = 60;

/// A kind of event. All seeds together must produce every kind of a world.
pub(crate) trait Kind: Copy + Debug {
    /// The number of the first kind. The kinds of the server come first.
    const FIRST: usize;
    /// The names of all kinds of this type.
    const NAMES: &'static [&'static str];

    /// Returns the place of the kind in its type.
    fn nth(self) -> usize;
}

/// Declares a type of kinds, whose first one has this number.
macro_rules! kinds {
    ($(#[$of_all:meta])* $type:ident from $first:expr; $($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type {
            $($(#[$doc])* $name),*
        }

        impl $crate::server::Kind for $type {
            const FIRST: usize = $first;
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            fn nth(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use kinds;

kinds! {
    /// Events at the server and its disk, with any protocol.
    Met from 0;
    /// A planted bug shows. It is the first kind, because `counts` leaves it out.
    Plant,
    NoRoom,
    Plugged,
    Merged,
    RacingReads,
    DeviceBusy,
    DeviceDone,
    DeviceFailed,
    DeviceShort,
    FlushFailed,
    End,
    PowerCut,
    PowerCutBusy,
    PowerCutLoses,
    ServerDies,
    ServerStops,
}

/// The number of the first kind of a protocol.
pub(crate) const FIRST_OF_PROTOCOL: usize = Met::NAMES.len();

/// An event: time, kind, and two numbers with details.
type Entry = (u64, &'static str, u64, u64);

/// The trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) now: u64,
    hash: u64,
    last: VecDeque<Entry>,
    /// By the number of the kind.
    counts: Vec<u64>,
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Trace {
        Trace { now: 0, hash: mix(0, seed), last: VecDeque::new(), counts: Vec::new() }
    }

    pub(crate) fn note<K: Kind>(&mut self, kind: K, a: u64, b: u64) {
        let number = K::FIRST + kind.nth();
        self.hash = mix(mix(mix(mix(self.hash, number as u64), a), b), self.now);
        if self.counts.len() <= number {
            self.counts.resize(number + 1, 0);
        }
        self.counts[number] += 1;
        if self.last.len() == NR_SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((self.now, K::NAMES[kind.nth()], a, b));
    }

    /// Adds bytes to the hash.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.hash = mix(self.hash, u64::from_le_bytes(word));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns how often each kind of event happened: those of the server, and those of the
    /// protocol with the kinds `K`.
    pub(crate) fn counts<K: Kind>(&self) -> Vec<(&'static str, u64)> {
        let names = Met::NAMES.iter().chain(K::NAMES).copied();
        let counts = self.counts.iter().copied().chain(std::iter::repeat(0));
        names.zip(counts).skip(1).collect()
    }

    pub(crate) fn nr_events(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn last(&self) -> Vec<String> {
        let line = |(now, name, a, b): &Entry| format!("{now} ns: {name} {a} {b}");
        self.last.iter().map(line).collect()
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
