//! QEMU's image locks: byte-range locks that keep a virtual machine and a disk apart.
//!
//! QEMU locks single bytes of every image that it opens, so that two programs do not write to one
//! image at once. Forebay takes the same locks. Each permission has a number `n` and two bytes:
//!
//! - a lock on byte `100 + n` says that its holder uses the permission;
//! - a lock on byte `200 + n` says that its holder does not share the permission with others.
//!
//! All locks are shared (read) locks, so any number of programs may hold a byte. A program first
//! locks its bytes, and then tests the opposite byte of each: a permission that it uses must not be
//! unshared by another program, and one that it does not share must not be in use. Two programs
//! that start at the same time may both find a conflict; both then back off, and neither has the
//! image.
//!
//! The locks are open-file-description locks (`F_OFD_SETLK`) on a descriptor of their own, one for
//! each file and process: locks of one description never conflict, so any number of disks of this
//! process may share a file. They are advisory: only programs that ask are kept away.
//!
//! Source: QEMU's `block/file-posix.c` (`RAW_LOCK_PERM_BASE`, `RAW_LOCK_SHARED_BASE`), its
//! `docs/devel/` pages on permissions, and fcntl(2).
// It makes a system call that the standard library does not wrap.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The permissions that have bytes. The numbers are QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Reads return the data that was written last.
    ConsistentRead = 0,
    /// Changes data.
    Write = 1,
    /// Writes data that is there already, as a repair does.
    WriteUnchanged = 2,
    /// Changes the length.
    Resize = 3,
}

use Permission::{ConsistentRead, Resize, Write, WriteUnchanged};

const NR_PERMISSIONS: usize = 4;
const ALL: [Permission; NR_PERMISSIONS] = [ConsistentRead, Write, WriteUnchanged, Resize];

/// The byte of permission 0, for each [`Role`].
const BASES: [libc::off_t; 2] = [100, 200];

/// The meaning of a locked byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Used = 0,
    Unshared = 1,
}

/// How a disk uses an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// Whether it writes.
    pub(super) writes: bool,
    /// Whether it may change the length of the file.
    pub(super) resizes: bool,
    /// Whether other programs may write meanwhile.
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

    /// A reader lets others repair what is there, a writer lets others only read.
    fn withholds(self, permission: Permission) -> bool {
        let exclusive = match permission {
            ConsistentRead => false,
            Write | Resize => true,
            WriteUnchanged => self.writes,
        };
        exclusive && !self.shares_writes
    }

    /// The bytes that stand for it.
    fn bytes(self) -> impl Iterator<Item = Byte> {
        let used = ALL.into_iter().filter(move |p| self.uses(*p)).map(|p| Byte(Role::Used, p));
        let unshared = ALL.into_iter().filter(move |p| self.withholds(*p));
        used.chain(unshared.map(|p| Byte(Role::Unshared, p)))
    }
}

/// One byte of the file that may be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte(Role, Permission);

impl Byte {
    fn offset(self) -> libc::off_t {
        BASES[self.0 as usize] + self.1 as libc::off_t
    }

    /// The byte that must not be locked by another program.
    fn opposite(self) -> Byte {
        let role = match self.0 {
            Role::Used => Role::Unshared,
            Role::Unshared => Role::Used,
        };
        Byte(role, self.1)
    }
}

/// Why an image cannot be had.
#[derive(Debug)]
pub(super) enum Denied {
    /// Another program uses the permission, and this one would not share it.
    InUse(Permission),
    /// Another program does not share the permission, and this one would use it.
    NotShared(Permission),
    /// Another program has locked the whole file for itself.
    LockedWhole,
    /// The file system has no such locks.
    Unsupported(io::Error),
}

impl Denied {
    /// Returns what the other program does, as the end of a sentence about it.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Denied::InUse(Write) => "writes to it",
            Denied::InUse(_) => "may change its length",
            Denied::NotShared(ConsistentRead) => "does not allow others to read it",
            Denied::NotShared(_) => "does not allow others to write to it",
            Denied::LockedWhole => "has locked all of it",
            Denied::Unsupported(_) => "cannot be detected: its file system has no locks",
        }
    }
}

/// The byte locks that this process holds on a file, for all of its disks there.
///
/// Not safe for concurrent use by itself: the place that owns it has a mutex around it.
#[derive(Debug, Default)]
pub(super) struct ImageLocks {
    /// How many disks need each byte locked.
    nr_needed: [[u32; NR_PERMISSIONS]; 2],
}

impl ImageLocks {
    /// Takes the locks for one more disk, on `file`: always the same one, open for reading.
    ///
    /// # Errors
    /// Another program has the image, or the file system has no locks. The locks are as before.
    pub(super) fn add(&mut self, file: &File, access: Access) -> Result<(), Denied> {
        let mut taken = Vec::new();
        let mut result = Ok(());
        for byte in access.bytes().filter(|byte| self.needed(*byte) == 0) {
            if let Err(source) = set(file, byte, libc::F_RDLCK) {
                result = Err(match source.raw_os_error() {
                    Some(libc::EAGAIN | libc::EACCES) => Denied::LockedWhole,
                    _ => Denied::Unsupported(source),
                });
                break;
            }
            taken.push(byte);
        }
        // All are locked before one is tested: of two programs at least one sees the other.
        let result = result.and_then(|()| {
            taken.iter().try_for_each(|byte| match is_held(file, byte.opposite()) {
                Ok(false) => Ok(()),
                Ok(true) if byte.0 == Role::Used => Err(Denied::NotShared(byte.1)),
                Ok(true) => Err(Denied::InUse(byte.1)),
                Err(source) => Err(Denied::Unsupported(source)),
            })
        });
        match result {
            Ok(()) => access.bytes().for_each(|byte| *self.needed_mut(byte) += 1),
            // Unlocking fails only where locking does.
            Err(_) => taken.iter().for_each(|byte| {
                let _ = set(file, *byte, libc::F_UNLCK);
            }),
        }
        result
    }

    /// Gives back the locks of a disk that [`add`](Self::add) took for it.
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
    fcntl(file, libc::F_OFD_SETLK, byte, kind).map(drop)
}

/// Returns whether another program has `byte` locked. Locks of this description do not count.
fn is_held(file: &File, byte: Byte) -> io::Result<bool> {
    let found = fcntl(file, libc::F_OFD_GETLK, byte, libc::F_WRLCK)?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn fcntl(file: &File, call: i32, byte: Byte, kind: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte.offset(),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel reads and writes this one structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), call, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: Access = Access { writes: false, resizes: false, shares_writes: false };
    const WRITER: Access = Access { writes: true, resizes: false, shares_writes: false };
    const SHARED: Access = Access { writes: true, resizes: false, shares_writes: true };

    /// An open file description and its locks, as a program has them.
    struct Program(File, ImageLocks);

    impl Program {
        fn add(&mut self, access: Access) -> Result<(), Denied> {
            self.1.add(&self.0, access)
        }

        fn remove(&mut self, access: Access) {
            self.1.remove(&self.0, access);
        }
    }

    /// Two programs with one file.
    fn pair() -> (Program, Program) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Program(File::open(file.path()).unwrap(), ImageLocks::default());
        (open(), open())
    }

    fn offsets(access: Access) -> Vec<libc::off_t> {
        access.bytes().map(Byte::offset).collect()
    }

    #[test]
    fn each_access_locks_the_bytes_that_qemu_expects() {
        assert_eq!(offsets(WRITER), [100, 101, 201, 202, 203]);
        assert_eq!(offsets(READER), [100, 201, 203]);
        assert_eq!(offsets(SHARED), [100, 101]);
        assert_eq!(offsets(Access { resizes: true, ..WRITER }), [100, 101, 103, 201, 202, 203]);
    }

    #[test]
    fn a_second_program_is_refused_unless_both_share_or_both_read() {
        for first in [READER, WRITER, SHARED] {
            for second in [READER, WRITER, SHARED] {
                let (mut a, mut b) = pair();
                a.add(first).expect("the file is not locked");
                let both_read = first == READER && second == READER;
                let both_share = first == SHARED && second == SHARED;
                assert_eq!(
                    b.add(second).is_ok(),
                    both_read || both_share,
                    "{first:?} then {second:?}"
                );
            }
        }
    }

    #[test]
    fn the_reason_names_what_the_other_program_does() {
        let (mut a, mut b) = pair();
        a.add(WRITER).unwrap();
        assert!(matches!(b.add(WRITER), Err(Denied::NotShared(Write))));
        assert!(matches!(b.add(READER), Err(Denied::InUse(Write))));
        assert_eq!(b.add(READER).unwrap_err().reason(), "writes to it");
        assert_eq!(b.add(WRITER).unwrap_err().reason(), "does not allow others to write to it");
    }

    #[test]
    fn disks_of_one_process_share_a_file_and_the_last_one_gives_it_back() {
        let (mut a, mut b) = pair();
        a.add(WRITER).unwrap();
        a.add(WRITER).expect("the same process");
        a.add(READER).expect("the same process");
        a.remove(WRITER);
        assert!(b.add(READER).is_err(), "one writer is left");
        a.remove(WRITER);
        b.add(READER).expect("only readers are left");
        assert!(a.add(WRITER).is_err(), "the other program reads, and does not share writes");
        b.remove(READER);
        a.add(WRITER).expect("it is alone");
    }

    #[test]
    fn a_refused_disk_leaves_no_lock_behind() {
        let (mut a, mut b) = pair();
        a.add(READER).unwrap();
        assert!(b.add(WRITER).is_err());
        a.remove(READER);
        a.add(WRITER).expect("the refused one left nothing");
    }

    #[test]
    fn a_lock_on_the_whole_file_refuses_every_access() {
        let (mut a, _) = pair();
        let other = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", a.0.as_raw_fd()))
            .unwrap();
        let mut whole = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // SAFETY: as in `fcntl`.
        let set = unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw mut whole) };
        assert_eq!(set, 0);
        assert!(matches!(a.add(READER), Err(Denied::LockedWhole)));
    }
}
