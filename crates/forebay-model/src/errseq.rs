//! The write-back errors of a file, as Linux reports them to its open file descriptions.
//!
//! The page cache writes data back long after the write has ended. If that fails, the kernel marks
//! the pages clean all the same: no later sync writes them again, and their data is gone after a
//! crash (or when the pages are reclaimed). It can only report the failure to a later sync. Each
//! inode has one [`ErrSeq`], and each open file description one [`ErrCursor`] (a `dup` shares it):
//!
//! - A sync through a description fails if an error was set since its last sync or its open.
//!   [`ErrSeq::check_and_advance`] returns the error once, and marks it as seen.
//! - A description that is opened while the last error is *not* seen reports that error as well.
//!   One that is opened later never does: [`ErrSeq::sample`].
//!
//! So the success of a sync proves nothing for data that was written before its description was
//! opened, and nothing while another sync through the same description holds the error.
//!
//! Source: `errseq_t` in `lib/errseq.c` and `file_check_and_advance_wb_err` in `mm/filemap.c` of
//! Linux 4.13 and later. The kernel packs the word into 32 bits; its counter wraps after 2^19
//! errors, which this one does not. Its lost races of `cmpxchg` are the orders in which callers
//! with `&mut` come.

use forebay_core::BlockStatus;

/// The error word of an inode: the last error, whether a description has reported it, and how many
/// errors were set after a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrSeq {
    error: Option<BlockStatus>,
    is_seen: bool,
    nr: u64,
}

/// The state of the error word that an open file description has reported: `file->f_wb_err`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrCursor(ErrSeq);

impl ErrSeq {
    /// Returns the word of an inode without errors.
    pub const fn new() -> ErrSeq {
        ErrSeq { error: None, is_seen: false, nr: 0 }
    }

    /// Records that a write-back has failed (`errseq_set`).
    pub fn set(&mut self, error: BlockStatus) {
        // Errors that no description has reported yet are one error to all of them.
        let nr = self.nr + u64::from(self.is_seen);
        *self = ErrSeq { error: Some(error), is_seen: false, nr };
    }

    /// Returns the cursor of a description that is opened now (`errseq_sample`).
    pub fn sample(&self) -> ErrCursor {
        ErrCursor(if self.is_seen { *self } else { ErrSeq::new() })
    }

    /// Returns whether a sync through this description would fail (`errseq_check`).
    pub fn differs(&self, cursor: ErrCursor) -> bool {
        *self != cursor.0
    }

    /// Returns whether the last error was not reported by any description.
    pub fn is_unseen(&self) -> bool {
        self.error.is_some() && !self.is_seen
    }

    /// Ends a sync through a description (`errseq_check_and_advance`).
    ///
    /// # Errors
    /// The last error, if the description has not reported it.
    pub fn check_and_advance(&mut self, cursor: &mut ErrCursor) -> Result<(), BlockStatus> {
        if !self.differs(*cursor) {
            return Ok(());
        }
        self.is_seen = true;
        cursor.0 = *self;
        self.error.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
