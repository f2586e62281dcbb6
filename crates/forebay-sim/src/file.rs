//! A device that is a file: which open file description reports which write-back error.
//!
//! Each hardware context has a description of its own. The layer has one more for the whole file,
//! the *place's*. It is opened first, and used only for a check after a context or a second disk
//! has opened its own (`claim/place.rs` of the library). Other programs may open and sync the file
//! at any time.

use crate::check::Checks;
use crate::trace::{DEVICE, Kind};
use forebay_core::BlockStatus;
use forebay_model::{ErrCursor, ErrSeq, Random};
use std::collections::VecDeque;

/// The errors of a file, and the cursor of each of its descriptions.
#[derive(Debug)]
pub(crate) struct FileErrors {
    word: ErrSeq,
    place: ErrCursor,
    contexts: Vec<ErrCursor>,
}

impl FileErrors {
    /// Returns a file without errors, which so many contexts have open.
    pub(crate) fn new(nr_contexts: usize) -> FileErrors {
        let cursor = ErrCursor::default();
        FileErrors { word: ErrSeq::new(), place: cursor, contexts: vec![cursor; nr_contexts] }
    }

    /// Removes all errors, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.word = ErrSeq::new();
        self.place = ErrCursor::default();
        self.contexts.fill(ErrCursor::default());
    }

    /// Opens the file anew for a context.
    pub(crate) fn open(&mut self, hctx: usize) {
        self.contexts[hctx] = self.word.sample();
    }

    /// Records that the write-back of some data has failed.
    pub(crate) fn strike(&mut self) {
        self.word.set(BlockStatus::Io);
    }

    /// Returns whether a sync of a context would report an error.
    pub(crate) fn has_error_for(&self, hctx: usize) -> bool {
        self.word.differs(self.contexts[hctx])
    }

    /// Ends a sync of a context.
    ///
    /// # Errors
    /// The error that its description has not reported yet.
    pub(crate) fn sync(&mut self, hctx: usize) -> Result<(), BlockStatus> {
        self.word.check_and_advance(&mut self.contexts[hctx])
    }

    /// Returns whether a sync of another program would see the last error first.
    pub(crate) fn is_unseen(&self) -> bool {
        self.word.is_unseen()
    }

    /// Opens, syncs and closes the file as another program.
    pub(crate) fn sync_elsewhere(&mut self) {
        // The error is reported to that program.
        let _ = self.word.check_and_advance(&mut self.word.sample());
    }

    /// Checks the place's description, which is not synced otherwise.
    ///
    /// # Errors
    /// An error that no check has found yet.
    pub(crate) fn check_place(&mut self) -> Result<(), BlockStatus> {
        self.word.check_and_advance(&mut self.place)
    }
}

/// How a file of the swarm behaves. Chances are out of [`CHANCES`], at each event of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSettings {
    /// Writes with FUA go through the page cache, and so may be lost like other writes.
    pub(crate) has_page_cache: bool,
    /// How often the write-back of a block fails.
    pub(crate) write_back_error: u32,
    /// How often another program syncs the file.
    pub(crate) sync_elsewhere: u32,
}

/// See [`FileSettings`].
const CHANCES: u32 = 1000;

/// The number of recently written blocks whose write-back may fail.
const NR_RECENT: usize = 16;

/// A file of the swarm.
#[derive(Debug)]
pub(crate) struct SwarmFile {
    pub(crate) settings: FileSettings,
    pub(crate) errors: FileErrors,
    /// The blocks that were written last.
    recent: VecDeque<u64>,
}

impl SwarmFile {
    pub(crate) fn new(settings: FileSettings, nr_contexts: usize) -> SwarmFile {
        SwarmFile { settings, errors: FileErrors::new(nr_contexts), recent: VecDeque::new() }
    }

    /// Removes all errors and recent writes, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.errors.reset();
        self.recent.clear();
    }

    /// Records that a block is written.
    pub(crate) fn write(&mut self, block: u64) {
        if self.recent.len() == NR_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(block);
    }

    /// Performs the events that may happen at any time: the write-back of a block fails, or another
    /// program syncs the file.
    pub(crate) fn stir(&mut self, random: &mut Random, checks: &mut Checks) {
        let settings = self.settings;
        if !self.recent.is_empty() && random.chance(settings.write_back_error, CHANCES) {
            let block = self.recent[random.below(self.recent.len() as u64) as usize];
            if checks.durable.is_dirty(block) {
                checks.durable.write_back_failed(block);
                self.errors.strike();
                checks.trace.note_of(DEVICE, Kind::WriteBackError, block, 0);
            }
        }
        if self.errors.is_unseen() && random.chance(settings.sync_elsewhere, CHANCES) {
            self.errors.sync_elsewhere();
            checks.trace.note_of(DEVICE, Kind::SyncElsewhere, 0, 0);
        }
    }
}
