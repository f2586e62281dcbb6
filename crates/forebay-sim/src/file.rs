//! A device that is a file: which open file description reports which write-back error.
//!
//! Each hardware context has a description of its own. The layer has one more for the whole file,
//! the *place's*: it is opened first and is used only for a check after a context or a second disk
//! has opened its own (`claim/place.rs` of the library). Other programs open and sync the file as
//! they like.

use forebay_core::BlockStatus;
use forebay_model::{ErrCursor, ErrSeq};

/// See the module.
#[derive(Debug)]
pub(crate) struct FileErrors {
    word: ErrSeq,
    place: ErrCursor,
    contexts: Vec<ErrCursor>,
}

impl FileErrors {
    /// A file without errors, which so many contexts have open.
    pub(crate) fn new(nr_contexts: usize) -> FileErrors {
        let cursor = ErrCursor::default();
        FileErrors { word: ErrSeq::new(), place: cursor, contexts: vec![cursor; nr_contexts] }
    }

    /// The same file without errors, in the same memory.
    pub(crate) fn reset(&mut self) {
        self.word = ErrSeq::new();
        self.place = ErrCursor::default();
        self.contexts.fill(ErrCursor::default());
    }

    /// A context opens the file anew.
    pub(crate) fn open(&mut self, hctx: usize) {
        self.contexts[hctx] = self.word.sample();
    }

    /// The write-back of some data has failed.
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

    /// Another program opens the file, syncs it and closes it.
    pub(crate) fn sync_elsewhere(&mut self) {
        // The error is that program's.
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
