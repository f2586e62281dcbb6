//! QEMU's image locks: byte-range locks that keep a virtual machine and a disk apart.
//!
//! QEMU locks single bytes of every image that it opens, so that two programs do not write to one
//! image at the same time. Forebay takes the same locks. Each permission has a number `n` and two
//! bytes:
//!
//! - a lock on byte `100 + n` means that its holder uses the permission;
//! - a lock on byte `200 + n` means that its holder does not share the permission with others.
//!
//! All locks are shared (read) locks, so any number of programs may hold a byte. A program first
//! locks its bytes, and then tests the opposite byte of each. A permission that it uses must not be
//! unshared by another program, and a permission that it does not share must not be in use. Two
//! programs that start at the same time may both find a conflict; then both back off, and neither
//! gets the image. Forebay also tests before it locks, so that an open that waits for an image does
//! not block a third program.
//!
//! The locks are open-file-description locks (`F_OFD_SETLK`) on a dedicated descriptor, one per
//! file and process. Locks of one description never conflict, so any number of disks of this
//! process may share a file. The locks are advisory: they exclude only programs that test them.
//!
//! Source: QEMU's `block/file-posix.c` (`RAW_LOCK_PERM_BASE`, `RAW_LOCK_SHARED_BASE`), its
//! `docs/devel/` pages on permissions, and fcntl(2).

use super::ofd_lock::{self, Range};
use std::fs::File;
use std::io;

/// The permissions that have lock bytes. The numbers are QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Reads return the data that was written last.
    ConsistentRead = 0,
    /// Changes data.
    Write = 1,
    /// Rewrites existing data without changing it, as a repair does.
    WriteUnchanged = 2,
    /// Changes the length.
    Resize = 3,
}

use Permission::{ConsistentRead, Resize, Write, WriteUnchanged};

const NR_PERMISSIONS: usize = 4;
const ALL: [Permission; NR_PERMISSIONS] = [ConsistentRead, Write, WriteUnchanged, Resize];

/// The offset of permission 0, for each [`Role`].
const BASES: [libc::off_t; 2] = [100, 200];

/// The meaning of a locked byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Used = 0,
    Unshared = 1,
}

/// The permissions that a disk needs on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The disk writes.
    pub(super) writes: bool,
    /// The disk may change the length of the file.
    pub(super) resizes: bool,
    /// Other programs may write at the same time.
    pub(super) shares_writes: bool,
}

impl Access {
    fn uses(self, permission: Permission) -> bool {
        match permission {
            ConsistentRead => true,
            Write => self.writes,
            WriteUnchanged => false,
            Resize => self.resizes,
        }
    }

    /// Returns whether others are denied the permission. A reader allows others to rewrite existing
    /// data; a writer allows others only to read.
    fn withholds(self, permission: Permission) -> bool {
        let exclusive = match permission {
            ConsistentRead => false,
            Write | Resize => true,
            WriteUnchanged => self.writes,
        };
        exclusive && !self.shares_writes
    }

    /// Returns the bytes that the access locks.
    fn bytes(self) -> impl Iterator<Item = Byte> {
        let used = ALL.into_iter().filter(move |p| self.uses(*p)).map(|p| Byte(Role::Used, p));
        let unshared = ALL.into_iter().filter(move |p| self.withholds(*p));
        used.chain(unshared.map(|p| Byte(Role::Unshared, p)))
    }
}

/// A byte of the file that may be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte(Role, Permission);

impl Byte {
    fn offset(self) -> libc::off_t {
        BASES[self.0 as usize] + self.1 as libc::off_t
    }

    /// Returns the byte that must not be locked by another program.
    fn opposite(self) -> Byte {
        let role = match self.0 {
            Role::Used => Role::Unshared,
            Role::Unshared => Role::Used,
        };
        Byte(role, self.1)
    }
}

/// Why the locks of an image cannot be taken.
#[derive(Debug)]
pub(super) enum Denied {
    /// This program and another need a permission that the other does not share.
    Conflict(Conflict),
    /// Another program has locked the whole file.
    LockedWhole,
    /// The file system has no such locks.
    Unsupported(io::Error),
    /// The system could not report whether another program has the image.
    Failed(io::Error),
}

impl From<io::Error> for Denied {
    fn from(source: io::Error) -> Denied {
        match source.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Denied::LockedWhole,
            _ if ofd_lock::is_unsupported(&source) => Denied::Unsupported(source),
            _ => Denied::Failed(source),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Another program uses the permission, and this one does not share it.
    InUse(Permission),
    /// Another program does not share the permission, and this one uses it.
    NotShared(Permission),
}

impl Conflict {
    /// Returns what the other program does, to complete a sentence about it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Conflict::InUse(Write) => "writes to it",
            Conflict::InUse(_) => "may change its length",
            Conflict::NotShared(ConsistentRead) => "does not allow others to read it",
            Conflict::NotShared(_) => "does not allow others to write to it",
        }
    }
}

/// The byte locks that this process holds on a file, for all of its disks.
///
/// Not synchronized: the place that owns it holds it in a mutex.
#[derive(Debug, Default)]
pub(super) struct ImageLocks {
    /// Number of disks that need each byte locked.
    nr_needed: [[u32; NR_PERMISSIONS]; 2],
}

impl ImageLocks {
    /// Takes the locks for one more disk, on `file`: always the same open file, readable.
    ///
    /// # Errors
    /// Fails if another program has the image, or if the file system has no locks or has failed.
    /// The locks are then unchanged.
    pub(super) fn add(&mut self, file: &File, access: Access) -> Result<(), Denied> {
        let wanted: Vec<_> = access.bytes().filter(|byte| self.needed(*byte) == 0).collect();
        let test_all = || wanted.iter().try_for_each(|byte| test(file, *byte));
        test_all()?;
        let lock_all = || {
            wanted.iter().try_for_each(|byte| set(file, *byte, libc::F_RDLCK).map_err(Denied::from))
        };
        // All bytes are locked before one is tested: of two programs at least one sees the other.
        let result = lock_all().and_then(|()| test_all());
        match result {
            Ok(()) => access.bytes().for_each(|byte| *self.needed_mut(byte) += 1),
            // Also unlocks bytes that were not locked yet. Unlocking fails only where locking
            // fails.
            Err(_) => wanted.iter().for_each(|byte| {
                let _ = set(file, *byte, libc::F_UNLCK);
            }),
        }
        result
    }

    /// Releases the locks that [`add`](Self::add) took for a disk.
    pub(super) fn remove(&mut self, file: &File, access: Access) {
        for byte in access.bytes() {
            let needed = self.needed_mut(byte);
            assert!(*needed > 0, "a disk gives back only what it took");
            *needed -= 1;
            if *needed == 0 {
                let _ = set(file, byte, libc::F_UNLCK);
            }
        }
    }

    fn needed(&self, Byte(role, permission): Byte) -> u32 {
        self.nr_needed[role as usize][permission as usize]
    }

    fn needed_mut(&mut self, Byte(role, permission): Byte) -> &mut u32 {
        &mut self.nr_needed[role as usize][permission as usize]
    }
}

fn set(file: &File, byte: Byte, kind: i32) -> io::Result<()> {
    ofd_lock::set(file, Range::byte(byte.offset()), kind)
}

/// Fails if another program has locked the opposite of `byte`. Locks of this description do not
/// conflict with it.
fn test(file: &File, byte: Byte) -> Result<(), Denied> {
    let range = Range::byte(byte.opposite().offset());
    let found = ofd_lock::conflict(file, range, libc::F_WRLCK)?;
    let Byte(role, permission) = byte;
    match (i32::from(found.l_type), role) {
        (libc::F_UNLCK, _) => Ok(()),
        // All locks on single bytes are read locks.
        (libc::F_WRLCK, _) => Err(Denied::LockedWhole),
        (_, Role::Used) => Err(Denied::Conflict(Conflict::NotShared(permission))),
        (_, Role::Unshared) => Err(Denied::Conflict(Conflict::InUse(permission))),
    }
}

#[cfg(test)]
mod tests;
