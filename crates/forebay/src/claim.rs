//! Which files and block devices this process has open as disks, and who has one to itself.
//!
//! Two disks on the same file are two queues to one thing: what one has written and not flushed, a
//! flush by the other must not be told to be durable already. So a file is known by its device and
//! inode, a block device by its number, whatever the path; disks that are open on it at the same
//! time share a [`Place`]. A partition and the disk that it is on are two places, as they are two
//! caches in the kernel.
//!
//! With `exclusive=on` there is one disk to a place. Other programs are kept away as far as the
//! system does that: `O_EXCL` on a block device is refused while it is mounted or another has it
//! open so; the lock on a file is advisory. Both are on a descriptor of their own, which no ring
//! has, so that they end with the disk and not when the kernel has taken the ring apart.
// It makes a system call that the standard library does not wrap.
#![allow(unsafe_code)]

use crate::error::OpenError;
use crate::info::Feature;
use crate::runtime::fork::Origin;
use forebay_core::Durability;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// What a disk has to itself, as long as it lives.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// None: memory of its own, or remote.
    place: Option<Arc<Place>>,
    durability: Arc<Durability>,
    /// Others may write to it, whatever is done here.
    is_remote: bool,
}

/// A file or block device that is open, and what all disks on it have in common.
#[derive(Debug)]
struct Place {
    name: Name,
    origin: Origin,
    /// Kept open: what says that nobody else may have it.
    sole: Option<File>,
    durability: Arc<Durability>,
}

/// The same however it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Device and inode.
    File(u64, u64),
    /// The device's number.
    BlockDevice(u64),
}

impl Name {
    fn of(metadata: &Metadata) -> Name {
        match metadata.file_type().is_block_device() {
            true => Name::BlockDevice(metadata.rdev()),
            false => Name::File(metadata.dev(), metadata.ino()),
        }
    }
}

impl Drop for Claim {
    /// Under the lock: who comes next finds either the place, or nothing of it left. Not so in a
    /// child of a fork, where nobody finds it, and another thread may have had the lock for ever.
    fn drop(&mut self) {
        if let Some(place) = self.place.take_if(|place| !place.origin.is_elsewhere()) {
            let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
            drop(place);
            drop(places);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(file) = &self.sole
            && !self.origin.is_elsewhere()
        {
            // A child of a fork may have the descriptor as well, and the lock ends for both: so it
            // is the parent who ends it. On a device there is none.
            let _ = lock(file, libc::F_OFD_SETLK, libc::F_UNLCK);
        }
    }
}

/// All that are open.
static PLACES: Mutex<Vec<Weak<Place>>> = Mutex::new(Vec::new());

impl Claim {
    /// Of a disk that nobody else can write to, whatever they do.
    pub(crate) fn memory() -> Claim {
        Claim { place: None, durability: Arc::default(), is_remote: false }
    }

    /// Of a disk of another machine's or program's, which says itself who may use it.
    pub(crate) fn remote() -> Claim {
        Claim { place: None, durability: Arc::default(), is_remote: true }
    }

    /// Of a disk on `file`, which was opened by `path`; for itself, if `exclusive`.
    ///
    /// # Errors
    /// Another has it, here or elsewhere.
    pub(crate) fn of_file(
        file: &File,
        path: &Path,
        exclusive: bool,
        read_only: bool,
    ) -> Result<Claim, OpenError> {
        let system = |call| move |source| OpenError::System { path: path.to_owned(), call, source };
        let name = Name::of(&file.metadata().map_err(system("fstat"))?);
        // Held until the new one is there: of two that want it for themselves one gets it.
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.strong_count() > 0);
        let is_it = |place: &Arc<Place>| place.name == name && !place.origin.is_elsewhere();
        if let Some(place) = places.iter().filter_map(Weak::upgrade).find(is_it) {
            return match (place.sole.is_some(), exclusive) {
                (true, _) => Err(OpenError::InUse { path: path.to_owned() }),
                (false, true) => Err(not_exclusive(path, HERE)),
                (false, false) => Ok(Claim::on(place)),
            };
        }
        let sole = match exclusive {
            true => Some(open_alone(path, name, read_only)?),
            false if !read_only && is_locked(file) => {
                return Err(OpenError::Locked { path: path.to_owned() });
            }
            false => None,
        };
        let (origin, durability) = (Origin::here(), Arc::default());
        let place = Arc::new(Place { name, origin, sole, durability });
        places.push(Arc::downgrade(&place));
        Ok(Claim::on(place))
    }

    fn on(place: Arc<Place>) -> Claim {
        Claim { durability: Arc::clone(&place.durability), place: Some(place), is_remote: false }
    }

    /// What of it is durable: the same for all disks on one place.
    pub(crate) fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// Whether nobody else writes to it, as far as can be known.
    pub(crate) fn is_sole(&self) -> bool {
        !self.is_remote && self.place.as_ref().is_none_or(|place| place.sole.is_some())
    }

    /// What `forebay info` says of it.
    pub(crate) fn feature(&self) -> Feature {
        match self.place.as_deref() {
            Some(Place { name: Name::BlockDevice(_), sole: Some(_), .. }) => {
                Feature::present("exclusive", "O_EXCL: nothing is mounted on it or made of it")
            }
            Some(Place { name: Name::File(..), sole: Some(_), .. }) => Feature::present(
                "exclusive",
                "a lock on all of the file, which keeps out who locks it too (advisory)",
            ),
            _ => Feature::missing("exclusive", "not asked for: exclusive=on; others may write"),
        }
    }
}

const HERE: &str = "this process has it open already; close that disk first, or use a clone of it";

fn not_exclusive(path: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Exclusive { path: path.to_owned(), why: why.into() }
}

/// How often a device that is in use is tried, and how long it is waited between: a child of a fork
/// has all descriptors until it executes something, those that were closed here too.
const NR_TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Opens what is at `path` once more, so that nobody else gets it.
fn open_alone(path: &Path, name: Name, read_only: bool) -> Result<File, OpenError> {
    let is_device = matches!(name, Name::BlockDevice(_));
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).custom_flags(if is_device { libc::O_EXCL } else { 0 });
    let mut opened = options.open(path);
    for _ in 0..NR_TRIES {
        if !opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            break;
        }
        std::thread::sleep(PAUSE);
        opened = options.open(path);
    }
    let alone = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => not_exclusive(
            path,
            "it is in use: mounted, part of another device, or open with O_EXCL (EBUSY); \
                 lsblk and fuser say by whom",
        ),
        _ => not_exclusive(path, format!("it cannot be opened once more: {source}")),
    })?;
    let found = alone.metadata().map(|metadata| Name::of(&metadata));
    if found.ok() != Some(name) {
        return Err(not_exclusive(path, "another file has taken its place meanwhile; try again"));
    }
    if !is_device {
        let kind = if read_only { libc::F_RDLCK } else { libc::F_WRLCK };
        lock(&alone, libc::F_OFD_SETLK, kind).map_err(|source| match source.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => {
                not_exclusive(path, "another program has locked it; lslocks says which")
            }
            _ => not_exclusive(path, format!("its file system does not lock it: {source}")),
        })?;
    }
    Ok(alone)
}

/// Whether another program has all of it to itself. Locks of some bytes are other programs' own
/// affair.
fn is_locked(file: &File) -> bool {
    // Where nothing is known of locks, there are none.
    lock(file, libc::F_OFD_GETLK, libc::F_RDLCK).is_ok_and(|found| {
        (i32::from(found.l_type), found.l_start, found.l_len) == (libc::F_WRLCK, 0, 0)
    })
}

/// Sets a lock on all of a file, or asks who has one.
fn lock(file: &File, call: i32, kind: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        // All of it, however long.
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel reads and writes this one structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), call, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}
