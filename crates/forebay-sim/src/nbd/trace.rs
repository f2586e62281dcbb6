//! The trace of a run: a hash over all events, the last events, and the count of each kind.

use std::collections::VecDeque;

/// How many events a violation shows.
const NR_SHOWN: usize = 60;

macro_rules! met {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A kind of event. All seeds together must produce every kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Met {
            $($(#[$doc])* $name),*
        }

        impl Met {
            pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

met! {
    /// A planted bug shows. It is the first kind, because `counts` leaves it out.
    Plant,
    Connect,
    Simple,
    Structured,
    Extended,
    LibraryHandshake,
    LibrarySimple,
    LibraryStructured,
    LibraryExtended,
    ExportName,
    NoZeroes,
    Contexts,
    /// A proxy changes the form of the replies.
    Recut,
    OptionRefused,
    OptionSkipped,
    OptionsPipelined,
    HandshakeAborted,
    HandshakeClosed,
    Read,
    ReadDf,
    Write,
    WriteFua,
    Flush,
    Trim,
    TrimFua,
    Zero,
    ZeroFua,
    ZeroFast,
    Cache,
    Status,
    Illegal,
    IllegalWithPayload,
    ReadOnlyRefused,
    BadMagic,
    PayloadTooLong,
    Good,
    Failed,
    FailedLate,
    /// The server has ended a connection, because a read has failed within its reply.
    BrokenOff,
    Refused,
    Chunks,
    Hole,
    ChunksInterleaved,
    Leave,
    LeaveBusy,
    VanishInHandshake,
    VanishInPayload,
    VanishInReply,
    VanishBusy,
    Reconnect,
    SlowClient,
    HeldBack,
    NoRoom,
    Plugged,
    Split,
    Merged,
    RacingReads,
    Move,
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
    Drained,
}

const NR_KINDS: usize = Met::NAMES.len();

/// An event: time, kind, and two numbers with details.
type Entry = (u64, Met, u64, u64);

/// The trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) now: u64,
    hash: u64,
    last: VecDeque<Entry>,
    counts: [u64; NR_KINDS],
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Trace {
        Trace { now: 0, hash: mix(0, seed), last: VecDeque::new(), counts: [0; NR_KINDS] }
    }

    pub(crate) fn note(&mut self, met: Met, a: u64, b: u64) {
        self.hash = mix(mix(mix(mix(self.hash, met as u64), a), b), self.now);
        self.counts[met as usize] += 1;
        if self.last.len() == NR_SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((self.now, met, a, b));
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

    /// Returns how often each kind of event happened.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        Met::NAMES.iter().copied().zip(self.counts).skip(1).collect()
    }

    pub(crate) fn nr_events(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn last(&self) -> Vec<String> {
        let line = |(now, met, a, b): &Entry| format!("{now} ns: {met:?} {a} {b}");
        self.last.iter().map(line).collect()
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
