//! Registry of the files and block devices that this process has open as disks, and their locks.
//!
//! Two disks on the same file are two queues to one device: an unflushed write through one of them
//! is not durable for the other either. So a file is identified by its device and inode, and a
//! block device by its number, whatever the path. Disks that are open on it at the same time share
//! a [`Place`]. A partition and its whole disk are two places, because they have two caches in the
//! kernel.
//!
//! - [`place`]: the state that the disks share, and how no write-back error is missed;
//! - [`image_lock`]: byte locks, by which a disk and a QEMU virtual machine exclude each other;
//! - [`exclusive`]: exclusive use against all other programs;
//! - [`takeover`]: the wait for the I/O of a predecessor that was killed; [`ending`]: whether a
//!   process that is ending holds the locks;
//! - [`own_file`]: further open files of a disk, and a stock of them; [`distinct`]: that no two of
//!   these are duplicates;
//! - [`ofd_lock`]: the system calls of both; [`report`]: the text of `forebay info` about a claim.
//!
//! By default a disk holds the byte locks while it is open. With `exclusive=on` there is one disk
//! on a place, and other programs are excluded as far as the system supports that. All locks are on
//! the place's own descriptor, which is not registered with any ring. So they end with the disk or
//! the place, and not only when the kernel has torn down a ring. The takeover lock is on the files
//! of the queues for the opposite reason.

mod check;
mod distinct;
mod ending;
mod exclusive;
mod image_lock;
mod name;
mod ofd_lock;
mod own_file;
mod place;
mod report;
mod takeover;

use crate::error::OpenError;
use crate::info::ImageLock;
use crate::sys::fork::PerProcess;
pub(crate) use distinct::DistinctFile;
use forebay_core::{Backing, DeviceState};
use image_lock::{Access, Denied};
use name::Name;
pub(crate) use own_file::{OwnFile, Source, SpareFiles};
use place::Place;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
pub(crate) use takeover::QueueFile;

/// A disk's right to use its file or device, for its lifetime.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// `None` for a disk in memory, or a remote one.
    seat: Option<Arc<Seat>>,
    /// Other clients may write to the device, whatever is locked here.
    is_remote: bool,
}

/// Use of a file by a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// No other user is allowed: `exclusive=on`.
    pub(crate) exclusive: bool,
    pub(crate) read_only: bool,
    /// A write beyond the end of the file extends it.
    pub(crate) grows: bool,
    pub(crate) image_lock: ImageLock,
    /// The longest wait for I/O of a predecessor that was killed.
    pub(crate) takeover_wait: Duration,
}

impl Use {
    /// Returns the byte locks of such a disk. A file that is locked as a whole needs none.
    fn access(self, name: Name) -> Option<Access> {
        let is_whole = self.exclusive && matches!(name, Name::File(..));
        (self.image_lock != ImageLock::Off && !is_whole).then_some(Access {
            writes: !self.read_only,
            resizes: self.grows && !self.read_only,
            shares_writes: self.image_lock == ImageLock::Shared,
        })
    }

    /// Returns whether the files of the disk's queues have the takeover lock.
    pub(crate) fn marks(self) -> bool {
        !self.read_only && self.image_lock != ImageLock::Off
    }

    /// Returns whether the disk waits for a predecessor. If other programs may write at the same
    /// time, their locks are no sign of one.
    fn awaits_predecessor(self) -> bool {
        !self.read_only && self.image_lock == ImageLock::On
    }
}

/// A disk's share of its place.
#[derive(Debug)]
struct Seat {
    place: Arc<Place>,
    locks: Locks,
    /// For one of the writers of the place: its longest wait for a predecessor.
    writer: Option<Duration>,
}

/// State of a disk's byte locks.
#[derive(Debug)]
enum Locks {
    Held(Access),
    NotAsked,
    /// The file system has no locks, for this reason.
    Unsupported(String),
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.place.origin.is_elsewhere() {
            return;
        }
        if let Locks::Held(access) = self.locks {
            self.place.unlock_image(access);
        }
        if self.writer.is_some() {
            self.place.writers().leave();
        }
    }
}

/// Time that an open waits for another program to exit, such as a server that restarts, and the
/// shortest pause between two attempts.
const RESTART_PATIENCE: Duration = Duration::from_secs(3);
const RESTART_PAUSE: Duration = Duration::from_millis(20);

impl Drop for Claim {
    /// Drops the seat under the lock of the list: a later open finds either the place, or nothing
    /// of it. A child of a fork skips this: it does not use the place.
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take_if(|seat| !seat.place.origin.is_elsewhere()) {
            let places = PLACES.lock();
            drop(seat);
            drop(places);
        }
    }
}

/// Returns a time up to [`RESTART_PAUSE`], so that two programs that wait for one image do not
/// retry in step.
fn jitter() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RESTART_PAUSE * (now.subsec_nanos() % 1024) / 1024
}

/// All open places. A child of a fork uses no place of its parent.
static PLACES: PerProcess<Vec<Weak<Place>>> = PerProcess::new();

impl Claim {
    /// Returns the claim of a disk that nothing else can write to.
    pub(crate) fn memory() -> Claim {
        Claim { seat: None, is_remote: false }
    }

    /// Returns the claim of a disk of another machine or program, which controls its use itself.
    pub(crate) fn remote() -> Claim {
        Claim { seat: None, is_remote: true }
    }

    /// Returns the claim of a remote disk that no other client can write to.
    #[cfg(feature = "rbd")]
    pub(crate) fn remote_exclusive() -> Claim {
        Claim { seat: None, is_remote: false }
    }

    /// Claims `file`, which is of `source`, for a disk with `nr_hctxs` hardware contexts.
    /// While another program has locked the file, retries for up to 3 s, and longer if that program
    /// was killed. Then waits for the I/O of a predecessor that was killed.
    ///
    /// # Errors
    /// Fails if another disk or program uses the file, if I/O of a predecessor does not end in
    /// time, or if the file cannot be opened again.
    pub(crate) fn of_file(
        file: &File,
        source: Source<'_>,
        wanted: Use,
        nr_hctxs: u32,
    ) -> Result<Claim, OpenError> {
        let path = source.path;
        let since = Instant::now();
        // A killed program may end between an attempt and the search for it. So one more attempt
        // follows before the file is refused.
        let mut may_have_ended = true;
        loop {
            let refused = match Claim::try_of_file(file, source, wanted, nr_hctxs) {
                Ok(mut claim) => {
                    let waited = since.elapsed().saturating_sub(RESTART_PATIENCE);
                    claim.await_predecessor(path, wanted, waited)?;
                    return Ok(claim);
                }
                Err(refused) => refused,
            };
            let waited = since.elapsed();
            let is_locked =
                matches!(refused, OpenError::Locked { .. } | OpenError::ImageInUse { .. });
            let may_be_ending = wanted.awaits_predecessor()
                && (is_locked || matches!(refused, OpenError::Exclusive { .. }));
            if !is_locked || waited >= RESTART_PATIENCE {
                let is_ending = may_be_ending && ending::holds_locks(file);
                if !may_be_ending || !(is_ending || may_have_ended) {
                    return Err(refused);
                }
                if is_ending && waited >= wanted.takeover_wait {
                    let waited_ms = waited.as_millis() as u64;
                    return Err(OpenError::PredecessorBusy { path: path.to_owned(), waited_ms });
                }
                may_have_ended = is_ending;
            }
            std::thread::sleep(RESTART_PAUSE + jitter());
        }
    }

    /// Waits for the I/O of a predecessor, if the disk is the first of this process that writes.
    /// The time `waited` for its locks is a part of the wait.
    fn await_predecessor(
        &mut self,
        path: &Path,
        wanted: Use,
        waited: Duration,
    ) -> Result<(), OpenError> {
        let Some(seat) = self.seat.as_mut().filter(|_| wanted.awaits_predecessor()) else {
            return Ok(());
        };
        let seat = Arc::get_mut(seat).expect("the claim is new");
        let patience = wanted.takeover_wait.saturating_sub(waited);
        let entered = seat.place.enter_writer(patience).map_err(|source| OpenError::System {
            path: path.to_owned(),
            call: "fcntl(F_OFD_GETLK)",
            source,
        })?;
        if !entered {
            let waited_ms = wanted.takeover_wait.as_millis() as u64;
            return Err(OpenError::PredecessorBusy { path: path.to_owned(), waited_ms });
        }
        seat.writer = Some(wanted.takeover_wait);
        Ok(())
    }

    fn try_of_file(
        file: &File,
        source: Source<'_>,
        wanted: Use,
        nr_hctxs: u32,
    ) -> Result<Claim, OpenError> {
        let path = source.path;
        let Use { exclusive, read_only, .. } = wanted;
        let system = |call| move |source| OpenError::System { path: path.to_owned(), call, source };
        let name = Name::of(&file.metadata().map_err(system("fstat"))?);
        // Held until the new place is listed: of two concurrent exclusive opens, one succeeds.
        let mut places = PLACES.lock();
        places.retain(|place| place.strong_count() > 0);
        let is_it = |place: &Arc<Place>| place.name == name;
        if let Some(place) = places.iter().filter_map(Weak::upgrade).find(is_it) {
            match (place.is_sole, exclusive) {
                (true, _) => return Err(OpenError::InUse { path: path.to_owned() }),
                (false, true) => return Err(exclusive::not_exclusive(path, exclusive::HERE)),
                (false, false) if !read_only && exclusive::is_locked(file) => {
                    return Err(OpenError::Locked { path: path.to_owned() });
                }
                (false, false) => place.join(source, read_only).map_err(system("open"))?,
            }
            let claim = Claim::on(place, path, wanted)?;
            drop(places);
            claim.check_after_open();
            return Ok(claim);
        }
        let own = match exclusive {
            true => exclusive::open_alone(source, name, read_only)?,
            false if !read_only && exclusive::is_locked(file) => {
                return Err(OpenError::Locked { path: path.to_owned() });
            }
            false => source.open(name, read_only, 0).map_err(system("open"))?,
        };
        let place =
            Arc::new(Place::new(name, (own, read_only), exclusive, Backing::shared(nr_hctxs)));
        places.push(Arc::downgrade(&place));
        Claim::on(place, path, wanted)
    }

    /// Takes the byte locks for one more disk. The caller holds the lock of the list, so that no
    /// concurrent open takes the place for one without locks.
    fn on(place: Arc<Place>, path: &Path, wanted: Use) -> Result<Claim, OpenError> {
        let locks = match wanted.access(place.name) {
            None => Locks::NotAsked,
            Some(access) => match place.lock_image(access) {
                Ok(()) => Locks::Held(access),
                Err(Denied::Unsupported(why)) => Locks::Unsupported(why.to_string()),
                Err(Denied::Failed(source)) => {
                    let (path, call) = (path.to_owned(), "fcntl(F_OFD_SETLK)");
                    return Err(OpenError::System { path, call, source });
                }
                Err(Denied::LockedWhole) => {
                    return Err(OpenError::Locked { path: path.to_owned() });
                }
                Err(Denied::Conflict(conflict)) => {
                    let (path, why) = (path.to_owned(), conflict.reason());
                    return Err(OpenError::ImageInUse { path, why });
                }
            },
        };
        Ok(Claim { seat: Some(Arc::new(Seat { place, locks, writer: None })), is_remote: false })
    }

    fn place(&self) -> Option<&Place> {
        self.seat.as_deref().map(|seat| &*seat.place)
    }

    /// Returns the number of the block device, as traces have it: the major number times 2^20, plus
    /// the minor number. `None` for other disks.
    pub(crate) fn block_device(&self) -> Option<u32> {
        match self.place()?.name() {
            Name::BlockDevice(number) => {
                Some(forebay_trace::directory::device(libc::major(number), libc::minor(number)))
            }
            _ => None,
        }
    }

    /// Returns the present length of the file or device, bytes. `None`: the disk has none of its
    /// own.
    ///
    /// # Errors
    /// Fails if the system cannot report it.
    pub(crate) fn len_bytes(&self) -> io::Result<Option<u64>> {
        self.place().map(Place::len_bytes).transpose()
    }

    /// Records a loss that the files opened just now will not report. Called after a file of the
    /// disk was opened later than the place, and before it is used.
    pub(crate) fn check_after_open(&self) {
        if let Some(place) = self.place() {
            place.check(true);
        }
    }

    /// Records a loss that the kernel knows and the place does not. If a loss is already recorded,
    /// waits for a sync where only a sync finds errors. The caller acknowledges the losses next, so
    /// a file that is opened later must not report one of them again.
    pub(crate) fn check_before_acknowledging(&self) {
        if let Some(place) = self.place() {
            place.check(place.backing().durability().lost().is_some());
        }
    }

    /// Creates the state of a disk with `nr_hctxs` hardware contexts. All disks on one place share
    /// the durable points and the retries.
    pub(crate) fn new_state(&self, nr_hctxs: u32) -> DeviceState {
        match self.backing() {
            Some(backing) => DeviceState::on(backing, nr_hctxs),
            None => DeviceState::new(nr_hctxs),
        }
    }

    /// Returns the state that all disks on the place share; `None` without a place.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.place().map(Place::backing)
    }

    /// Returns whether nothing else writes to the device, as far as this process can detect.
    pub(crate) fn is_sole(&self) -> bool {
        !self.is_remote && self.place().is_none_or(|place| place.is_sole)
    }
}

#[cfg(test)]
mod tests {
    use super::PLACES;
    use crate::Disk;
    use crate::sys::forked::in_child;

    #[test]
    fn child_of_a_fork_opens_a_file_while_its_parent_opens_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [0; 4096]).expect("a file");
        let places = PLACES.lock();
        assert!(in_child(|| {
            let disk = Disk::open(&path.display().to_string()).expect("it opens");
            disk.write_at(&[1; 512], 0).is_ok()
        }));
        drop(places);
    }

    #[test]
    fn disks_on_one_file_share_durable_points_and_retries() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [0; 4096]).expect("a file");
        std::fs::hard_link(&path, folder.path().join("link")).expect("a link");
        let open = |spec: String| Disk::open(&spec).expect("it opens");
        let of = |disk: &Disk| disk.shared.device_state().backing();
        let one = open(path.display().to_string());
        let link = format!("psync:{}?read_only=on", folder.path().join("link").display());
        let other = open(link.clone());
        assert!(of(&one).is(&of(&other)));
        std::fs::write(folder.path().join("other.img"), [0; 4096]).expect("a file");
        let elsewhere = open(folder.path().join("other.img").display().to_string());
        assert!(!of(&one).is(&of(&elsewhere)));
        // The place ends with the last disk on it.
        let first = of(&one);
        drop((one, other));
        assert!(!first.is(&of(&open(link))));
    }
}
