//! The files and block devices that this process has open as disks, and who may use each.
//!
//! Two disks on the same file are two queues to one thing: a write through one of them that is not
//! flushed is not durable for the other either. So a file is known by its device and inode, and a
//! block device by its number, whatever the path. Disks that are open on it at the same time share
//! a [`Place`]. A partition and the disk that it is on are two places, as they have two caches in
//! the kernel.
//!
//! - [`place`]: what the disks share, and how no error of a write-back is missed;
//! - [`lock`]: how other programs are kept away.
//!
//! With `exclusive=on` there is one disk on a place, and other programs are kept away as far as the
//! system does that. The lock is on the place's own descriptor, which no ring has: so it ends with
//! the place, and not when the kernel has taken a ring apart.

mod lock;
mod place;

use crate::error::OpenError;
use crate::info::Feature;
use forebay_core::{Backing, DeviceState};
use place::{Name, Place};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a disk may use, as long as it lives.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// None: memory of its own, or remote.
    place: Option<Arc<Place>>,
    /// Others may write to it, whatever is done here.
    is_remote: bool,
}

impl Drop for Claim {
    /// Under the lock: an open that comes next finds either the place, or nothing of it left. Not
    /// in a child of a fork, which does not find it, and where another thread may have had the lock
    /// for ever.
    fn drop(&mut self) {
        if let Some(place) = self.place.take_if(|place| !place.origin.is_elsewhere()) {
            let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
            drop(place);
            drop(places);
        }
    }
}

/// All that are open.
static PLACES: Mutex<Vec<Weak<Place>>> = Mutex::new(Vec::new());

impl Claim {
    /// The claim of a disk that nothing else can write to.
    pub(crate) fn memory() -> Claim {
        Claim { place: None, is_remote: false }
    }

    /// The claim of a disk of another machine or program, which decides itself who may use it.
    pub(crate) fn remote() -> Claim {
        Claim { place: None, is_remote: true }
    }

    /// The claim of a disk on `file`, which was opened by `path` and has `nr_hctxs` hardware
    /// contexts; for itself, if `exclusive`.
    ///
    /// # Errors
    /// Another disk or program has it, or it cannot be opened once more.
    pub(crate) fn of_file(
        file: &File,
        path: &Path,
        exclusive: bool,
        read_only: bool,
        nr_hctxs: u32,
    ) -> Result<Claim, OpenError> {
        let system = |call| move |source| OpenError::System { path: path.to_owned(), call, source };
        let name = Name::of(&file.metadata().map_err(system("fstat"))?);
        // Held until the new one is there: of two that want it for themselves one gets it.
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.strong_count() > 0);
        let is_it = |place: &Arc<Place>| place.name == name && !place.origin.is_elsewhere();
        if let Some(place) = places.iter().filter_map(Weak::upgrade).find(is_it) {
            match (place.is_sole, exclusive) {
                (true, _) => return Err(OpenError::InUse { path: path.to_owned() }),
                (false, true) => return Err(lock::not_exclusive(path, lock::HERE)),
                (false, false) => place.join(path, read_only).map_err(system("open"))?,
            }
            drop(places);
            let claim = Claim::on(place);
            claim.check_after_open();
            return Ok(claim);
        }
        let own = match exclusive {
            true => lock::open_alone(path, name, read_only)?,
            false if !read_only && lock::is_locked(file) => {
                return Err(OpenError::Locked { path: path.to_owned() });
            }
            false => place::open_again(path, name, read_only, 0).map_err(system("open"))?,
        };
        let place =
            Arc::new(Place::new(name, (own, read_only), exclusive, Backing::shared(nr_hctxs)));
        places.push(Arc::downgrade(&place));
        Ok(Claim::on(place))
    }

    fn on(place: Arc<Place>) -> Claim {
        Claim { place: Some(place), is_remote: false }
    }

    /// Records a loss that the files which were opened just now will not report. To be called when
    /// a file of the disk was opened later than the place, before anything is done through it.
    pub(crate) fn check_after_open(&self) {
        if let Some(place) = &self.place {
            place.check(true);
        }
    }

    /// Records a loss that is known to the kernel and not to the place, if that takes no wait. The
    /// losses are acknowledged next: so a file that is opened later reports none of them again.
    pub(crate) fn check_before_acknowledging(&self) {
        if let Some(place) = &self.place {
            place.check(false);
        }
    }

    /// The state of a disk of `nr_hctxs` hardware contexts. All disks on one place share the
    /// durable points and the retries.
    pub(crate) fn new_state(&self, nr_hctxs: u32) -> DeviceState {
        match &self.place {
            Some(place) => DeviceState::on(place.backing(), nr_hctxs),
            None => DeviceState::new(nr_hctxs),
        }
    }

    /// Returns whether nothing else writes to it, as far as can be known.
    pub(crate) fn is_sole(&self) -> bool {
        !self.is_remote && self.place.as_ref().is_none_or(|place| place.is_sole)
    }

    /// What `forebay info` says of it.
    pub(crate) fn feature(&self) -> Feature {
        match self.place.as_deref() {
            Some(Place { name: Name::BlockDevice(_), is_sole: true, .. }) => {
                Feature::present("exclusive", "O_EXCL: nothing is mounted on it or made of it")
            }
            Some(Place { name: Name::File(..), is_sole: true, .. }) => Feature::present(
                "exclusive",
                "a lock on all of the file, which keeps out who locks it too (advisory)",
            ),
            _ => Feature::missing("exclusive", "not asked for: exclusive=on; others may write"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Disk;

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
