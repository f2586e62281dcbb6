//! Failed write-backs: the effects `writeback=STATUS` and `foreign_sync`.
//!
//! With such a rule the wrapped disk is a file in a page cache. A write that the rule strikes
//! succeeds and is lost: its write-back fails right after it, and the cache has dropped the data by
//! the next read. So no part of it is sent to the wrapped disk, which always has the data that a
//! crash would leave. (Other writes are sent at once. They count as safe only after a flush
//! nevertheless.)
//!
//! The error is reported as Linux does it ([`ErrSeq`]): there is one error word per file, and one
//! cursor per open file description. Each queue is a description of its own; it is opened when its
//! thread first uses the disk. Disks on the same file share the word. A flush, and a durable write
//! where the wrapped disk has them, is a sync of the file: it fails if its queue has not reported
//! the error yet.
//!
//! `foreign_sync` lets another program sync the file before a request. An error that no queue has
//! reported yet is reported to that program instead, and never to a queue that is opened later.
//! Therefore the disk checks for such an error after it has opened a queue ([`Inode::check`]), as
//! the claim on a real file does (`claim/place.rs`).

use crate::claim::Claim;
use crate::info::Feature;
use crate::sys::fork::PerProcess;
use forebay_core::{Backing, BlockStatus, Completions, Durability, QueueLimits, Tag};
use forebay_model::{ErrCursor, ErrSeq};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// State that the queues of all disks on one file share.
#[derive(Debug, Default)]
pub(super) struct Inode(Mutex<Errors>);

#[derive(Debug, Default)]
struct Errors {
    word: ErrSeq,
    /// The cursor of a description that was opened before all others and is used only for checks.
    place: ErrCursor,
}

/// The inodes of open disks, by their backing file or device.
static INODES: PerProcess<Vec<(Backing, Weak<Inode>)>> = PerProcess::new();

impl Inode {
    /// Returns the inode of the file that `claim` is on, or a new one if it is on none.
    pub(super) fn of(claim: &Claim) -> Arc<Inode> {
        let Some(backing) = claim.backing() else { return Arc::default() };
        let mut inodes = INODES.lock();
        inodes.retain(|(_, inode)| inode.strong_count() > 0);
        let found = inodes.iter().find(|(other, _)| other.is(backing));
        if let Some(inode) = found.and_then(|(_, inode)| inode.upgrade()) {
            return inode;
        }
        let inode = Arc::new(Inode::default());
        inodes.push((backing.clone(), Arc::downgrade(&inode)));
        inode
    }

    fn lock(&self) -> MutexGuard<'_, Errors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failed write-back.
    pub(super) fn strike(&self, status: BlockStatus) {
        self.lock().word.set(status);
    }

    /// Simulates another program that opens the file, syncs it and closes it.
    pub(super) fn sync_elsewhere(&self) {
        let word = &mut self.lock().word;
        // The error is reported to that program.
        let _ = word.check_and_advance(&mut word.sample());
    }

    /// Records a loss if an error was reported that a queue opened since then will not report. The
    /// record is made before another check can begin.
    pub(super) fn check(&self, durability: &Durability) {
        let Errors { word, place } = &mut *self.lock();
        if word.check_and_advance(place).is_err() {
            durability.flush_failed();
        }
    }
}

/// The open file description of a queue.
#[derive(Debug)]
pub(super) struct Description {
    inode: Arc<Inode>,
    cursor: ErrCursor,
    /// Which requests at the wrapped disk are syncs, by tag.
    is_sync: Box<[bool]>,
    /// Empty between reaps.
    reaped: Completions,
}

impl Description {
    /// Opens the file for a queue of `depth` tags.
    pub(super) fn open(inode: &Arc<Inode>, depth: u32) -> Description {
        Description {
            inode: Arc::clone(inode),
            cursor: inode.lock().word.sample(),
            is_sync: vec![false; depth as usize].into(),
            reaped: Completions::new(depth),
        }
    }

    pub(super) fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Returns the result of a completed sync: `result`, or the error of the file.
    pub(super) fn sync(&mut self, result: Result<u64, BlockStatus>) -> Result<u64, BlockStatus> {
        let checked = self.inode.lock().word.check_and_advance(&mut self.cursor);
        result.and_then(|moved| checked.map(|()| moved))
    }

    /// Records that the wrapped disk has accepted a sync.
    pub(super) fn sync_queued(&mut self, tag: Tag) {
        self.is_sync[tag.index()] = true;
    }

    /// Returns the completions of `reap`, with the results of syncs.
    pub(super) fn reap(&mut self, done: &mut Completions, reap: impl FnOnce(&mut Completions)) {
        let mut reaped = std::mem::replace(&mut self.reaped, Completions::new(0));
        reap(&mut reaped);
        for completed in reaped.drain() {
            let is_sync = std::mem::take(&mut self.is_sync[completed.tag.index()]);
            let result = if is_sync { self.sync(completed.result) } else { completed.result };
            done.push(completed.tag, result);
        }
        self.reaped = reaped;
    }
}

/// Returns the limits of a disk with these effects, above a disk with the limits `inner`.
pub(super) fn limits(inner: QueueLimits) -> QueueLimits {
    inner
        // If the wrapped disk has no cache, every write to it is durable.
        .fua(inner.fua || !inner.volatile_cache)
        .volatile_cache(true)
        .fua_is_sync(true)
        .fua_queueable(false)
}

/// Returns how a disk with these effects and limits makes data durable.
pub(super) fn features(limits: &QueueLimits) -> [Feature; 2] {
    [
        Feature::present("flush", "syncs the file that the rules make of the disk"),
        Feature::either(
            "fua",
            limits.fua,
            "a durable write syncs that file",
            "a flush follows each durable write, and is shared",
        ),
    ]
}
