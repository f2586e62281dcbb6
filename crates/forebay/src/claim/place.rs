//! An open file or block device, and the state that all disks on it share.
//!
//! # Write-back errors
//!
//! The disks on one place share their durable points, and each hardware context flushes through an
//! open file of its own. The kernel keeps one error word per file (`errseq_t`) and reports an error
//! once to each open file. But if an error was already reported to some open file, of any program,
//! a file that is opened later never gets that error: its flush succeeds over lost data. So:
//!
//! - O1 A place has an open file of its own. It is opened before any disk on the place writes, is
//!   used only for checks, and stays open as long as any disk on the place. So a disk that is
//!   closed takes no error with it.
//! - O2 An open file that is opened later moves no durable point before a check has followed its
//!   opening. A check takes the error that the place's file has not reported yet.
//! - O3 A check and the record of its loss are one step for other checks, by a lock (`check.rs`).
//!
//! Proof that a flush through an open file D never makes a lost write A durable. A's write-back
//! fails at a time e, before D's flush ends without an error (the flush itself writes the data that
//! is still cached).
//!
//! - D was opened before e, or before the error was reported to any open file. Then D reports it
//!   once, but not to this flush. So an earlier sync through D, of the same context, ended in an
//!   error and recorded the loss before this flush ends (F1 and F8 of the core).
//! - D was opened after e, and the error had been reported. Then the check after D's opening found
//!   it, or an earlier check did, and the loss was recorded under the lock (O1, O3), before D's
//!   context issued anything (O2).
//!
//! In both cases the loss is recorded before the durable point can pass A. If A has not ended by
//! then, its context finds that a flush has failed, and adds A to the loss.
//!
//! A check costs 2 to 5 us: it waits for the write-back of a range that has no pages. On file
//! systems that keep errors elsewhere (another machine, a lower layer, a server) the check is a
//! sync, in the thread that opens the file.
//!
//! When the last disk on a place is closed, its durable points end. Unflushed writes are then as
//! durable as after `close`. The next disk that is opened starts with durable points of its own.
use super::check::{ErrorProbe, WriteBackCheck};
use super::exclusive;
use super::image_lock::{Access, Denied, ImageLocks};
use super::name::Name;
use super::own_file::{OwnFile, Source};
use super::takeover::Writers;
use crate::file_system;
use crate::sys::fork::Origin;
use forebay_core::Backing;
use std::io::{self, Seek, SeekFrom};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// An open file or block device; see the module docs.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: Name,
    pub(super) origin: Origin,
    /// Opened with the first disk, and never replaced: the locks of the place are on it.
    file: OwnFile,
    is_read_only: bool,
    /// The same file, opened for writing with the first disk that may write, if `file` is
    /// read-only. A sync of a read-only file may do nothing (overlay).
    writable: OnceLock<OwnFile>,
    /// The place admits one disk only.
    pub(super) is_sole: bool,
    /// The byte locks of all disks, held on `file`.
    image_locks: Mutex<ImageLocks>,
    writers: Writers,
    backing: Backing,
    check: WriteBackCheck,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_sole && !self.origin.is_elsewhere() {
            exclusive::unlock(&self.file);
        }
    }
}

impl Place {
    /// Creates a place on `file`, which was opened for it only, and is read-only if `is_read_only`.
    pub(super) fn new(
        name: Name,
        (file, is_read_only): (OwnFile, bool),
        is_sole: bool,
        backing: Backing,
    ) -> Place {
        let is_local = matches!(name, Name::BlockDevice(_)) || file_system::is_local(&file);
        let probe = if is_local { ErrorProbe::WaitForRange } else { ErrorProbe::Sync };
        Place {
            name,
            origin: Origin::here(),
            file,
            is_read_only,
            writable: OnceLock::new(),
            is_sole,
            image_locks: Mutex::default(),
            writers: Writers::default(),
            backing,
            check: WriteBackCheck::new(probe),
        }
    }

    /// Returns the identity of the file or device.
    pub(super) fn name(&self) -> Name {
        self.name
    }

    /// Returns the state of the core that the place's disks share.
    pub(super) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Returns the present length of the file or device, bytes.
    ///
    /// # Errors
    /// Fails if the system cannot report it.
    pub(super) fn len_bytes(&self) -> io::Result<u64> {
        // Works for block devices too, whose status has no length. Nothing else uses the position
        // of this open file.
        (&*self.file).seek(SeekFrom::End(0))
    }

    /// Takes the byte locks of one more disk.
    ///
    /// # Errors
    /// Fails if another program has the file, or if the file system has no such locks.
    pub(super) fn lock_image(&self, access: Access) -> Result<(), Denied> {
        let mut locks = self.image_locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.add(&self.file, access)
    }

    /// Releases the byte locks of a disk.
    pub(super) fn unlock_image(&self, access: Access) {
        let mut locks = self.image_locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.remove(&self.file, access);
    }

    /// Adds a disk that writes, after a wait for the I/O of a predecessor ([`Writers::enter`]).
    ///
    /// # Errors
    /// Fails if the system cannot report the locks.
    pub(super) fn enter_writer(&self, patience: Duration) -> io::Result<bool> {
        self.writers.enter(&self.file, patience)
    }

    /// Returns the disks that write.
    pub(super) fn writers(&self) -> &Writers {
        &self.writers
    }

    /// Prepares the place for one more disk, which is of `source` and has not written yet.
    ///
    /// # Errors
    /// Fails if the file cannot be opened for writing.
    pub(super) fn join(&self, source: Source<'_>, read_only: bool) -> io::Result<()> {
        if self.is_read_only && !read_only && self.writable.get().is_none() {
            let _ = self.writable.set(source.open(self.name, false, 0)?);
        }
        Ok(())
    }

    /// Records a loss if the file has an unrecorded write-back error (O2). Syncs only if `may_sync`
    /// is set and nothing cheaper finds it.
    pub(super) fn check(&self, may_sync: bool) {
        let file = self.writable.get().unwrap_or(&self.file);
        self.check.run(file, self.backing.durability(), may_sync);
    }
}

#[cfg(test)]
use crate::driver::skip;
#[cfg(test)]
#[path = "../../tests/support/thin_device.rs"]
mod thin_device;

#[cfg(test)]
mod tests {
    use super::super::name::open_again;
    use super::thin_device::ThinDevice;
    use super::*;
    use crate::Disk;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const A: [u8; 4096] = [0xA5; 4096];

    fn at(path: &Path) -> Source<'_> {
        Source { path, spares: None }
    }

    fn place(path: &Path, is_read_only: bool) -> Place {
        let name = Name::of(&path.metadata().expect("it is there"));
        let file = open_again(path, name, is_read_only, 0).expect("it opens");
        Place::new(name, (file.into(), is_read_only), false, Backing::shared(1))
    }

    #[test]
    fn check_finds_an_error_that_was_reported_elsewhere_once() {
        for (probe, may_sync) in [
            (ErrorProbe::WaitForRange, false),
            (ErrorProbe::WaitForRange, true),
            (ErrorProbe::Sync, true),
        ] {
            let Some(device) = ThinDevice::new("check_finds_an_error_...") else { return };
            let node = Path::new(&device.node);
            let place = place(node, true);
            assert_eq!(place.check.probe(), ErrorProbe::WaitForRange, "of a block device");
            place.check.set_probe(probe);
            place.join(at(node), false).expect("it opens for writing");
            assert!(place.writable.get().is_some());
            let writer = open_again(node, place.name, false, 0).expect("it opens");
            writer.write_all_at(&A, 0).expect("a write into the cache");
            place.check(may_sync);
            assert_eq!(place.backing.durability().nr_failures(), 0);
            writer.write_all_at(&A, 1 << 20).expect("a write into the cache");
            device.fail_write_back();
            device.sync().expect("the error was reported");
            assert!(!device.stores(&A, 1 << 20), "it is lost");
            for _ in 0..2 {
                place.check(may_sync);
                assert_eq!(place.backing.durability().nr_failures(), 1, "{probe:?}");
            }
        }
    }

    #[test]
    fn check_that_must_not_wait_leaves_the_error_to_one_that_may() {
        let Some(device) = ThinDevice::new("check_that_must_not_wait_...") else { return };
        let place = place(Path::new(&device.node), false);
        place.check.set_probe(ErrorProbe::Sync);
        let writer = open_again(Path::new(&device.node), place.name, false, 0).expect("it opens");
        writer.write_all_at(&A, 0).expect("a write into the cache");
        device.fail_write_back();
        place.check(false);
        assert_eq!(place.backing.durability().nr_failures(), 0);
        place.check(true);
        assert_eq!(place.backing.durability().nr_failures(), 1);
    }

    #[test]
    fn loss_that_was_acknowledged_is_not_found_again_by_a_sync() {
        let Some(device) = ThinDevice::new("loss_that_was_acknowledged_...") else { return };
        let disk = Disk::open(&format!("psync:{}", device.node)).expect("it opens");
        let claim = disk.shared.claim();
        claim.place().expect("a device").check.set_probe(ErrorProbe::Sync);
        disk.write_at(&A, 0).expect("a write into the cache");
        device.fail_write_back();
        disk.flush().expect_err("it is lost");
        assert!(disk.acknowledge_loss().is_some());
        claim.check_after_open();
        assert_eq!(disk.lost_writes(), None, "it was acknowledged");
    }

    #[test]
    fn file_that_was_replaced_is_not_opened_for_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [0; 512]).expect("a file");
        let place = place(&path, true);
        let error = open_again(&path, Name::File(0, 0), true, 0).expect_err("another name");
        assert!(error.to_string().starts_with("another file has taken its place"));
        let moved = folder.path().join("moved");
        std::fs::rename(&path, &moved).expect("it moves");
        assert!(place.join(at(&path), false).is_err(), "nothing is there");
        place.join(at(&path), true).expect("there is nothing to open");
        place.join(at(&moved), false).expect("the same by another name");
    }
}
