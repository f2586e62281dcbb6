//! Confinement: the process drops the rights that it does not need, when everything is open and
//! before it accepts connections.
//!
//! It keeps these rights: to open the files of the disks again, once for each queue; to open the
//! files below the directories of `--allow-path`; to create files in the directory of `--trace`; to
//! remove its socket files, its PID file, and the
//! private directory of `--run`; to read the directory of the TLS certificates, for a reload; and
//! to connect to NBD servers, if a disk is on one. It loses all others: the rest of the file
//! system, new TCP ports and connections, signals to other processes, and programs with more
//! privileges. Landlock checks operations of io_uring as well as system calls.
//!
//! With a kernel that has no Landlock, or an old version, the server logs what is in force, and
//! goes on. Landlock is a second line of defence: the first is that no text of a peer becomes a
//! path.
//!
//! The rights are dropped for the calling thread and for threads that it starts later, so the main
//! thread calls this before it starts any. Threads that disks started when they were opened keep
//! their rights, unless the kernel can confine all threads at once (Linux 7.0); they run none of
//! the server's code.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use forebay_serve::Needs;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, RestrictSelfAttr, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Newest supported version of Landlock. The version after the next one would also restrict
/// connections to unix sockets by path, such as that of the service manager.
const KNOWN: ABI = ABI::V8;

/// Directories that resolving a host name reads: a disk on an NBD server connects again, by name.
const RESOLVER: [&str; 5] = ["/etc", "/lib", "/lib64", "/usr/lib", "/run/systemd/resolve"];

/// Confinement in force. The display text is a line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confinement {
    landlock: Landlock,
    connects: bool,
    no_new_privileges: bool,
    /// Number of threads that were started before, and are not confined.
    free_threads: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Landlock {
    /// In force, with this version.
    Version(i32),
    Missing,
    Failed(String),
}

/// Drops all rights but `needs`, the removal of a directory, and the open descriptors, for this
/// thread and those that it starts.
pub(super) fn confine(needs: &Needs, removed: Option<&Path>) -> Confinement {
    // The clock reads a file when it starts, and would be slow without it.
    let _ = forebay::now_ns();
    let no_new_privileges = rustix::thread::set_no_new_privs(true).is_ok();
    let (landlock, all_threads) = match restrict(needs, removed) {
        Ok(status) => (version(&status), status.all_threads),
        Err(error) => (Landlock::Failed(error.to_string()), false),
    };
    let free_threads = if all_threads { 0 } else { nr_threads().saturating_sub(1) };
    Confinement { landlock, connects: needs.connects, no_new_privileges, free_threads }
}

fn version(status: &RestrictionStatus) -> Landlock {
    match (&status.ruleset, &status.landlock) {
        (RulesetStatus::NotEnforced, _) => Landlock::Missing,
        (_, LandlockStatus::Available { effective_abi, .. }) => {
            Landlock::Version(*effective_abi as i32)
        }
        _ => Landlock::Missing,
    }
}

fn restrict(needs: &Needs, removed: Option<&Path>) -> Result<RestrictionStatus, RulesetError> {
    let mut net = AccessNet::from_all(KNOWN);
    if needs.connects {
        net.remove(AccessNet::ConnectTcp);
    }
    let mut scope = Scope::from_all(KNOWN);
    if std::env::var("NOTIFY_SOCKET").is_ok_and(|path| path.starts_with('@')) {
        scope.remove(Scope::AbstractUnixSocket);
    }
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(net)?
        .scope(scope)?
        .create()?;
    for (file, access) in open_files() {
        match (&mut rules).add_rule(PathBeneath::new(file, access)) {
            Err(error) if has_no_path(&error) => {}
            added => drop(added?),
        }
    }
    let remove: BitFlags<AccessFs> = AccessFs::RemoveFile.into();
    let readable = needs.connects.then_some(RESOLVER).into_iter().flatten().map(Path::new);
    let readable = readable.map(|path| (path.to_owned(), AccessFs::from_read(KNOWN)));
    let read: BitFlags<AccessFs> = AccessFs::ReadFile.into();
    let readable = readable.chain(needs.readable.iter().map(|path| (path.clone(), read)));
    let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let readable = readable.chain(needs.writable.iter().map(|path| (path.clone(), write)));
    let create = AccessFs::MakeDir | AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::ReadDir;
    let readable = readable.chain(needs.created.iter().map(|path| (path.clone(), create)));
    let remove_dir: BitFlags<AccessFs> = AccessFs::RemoveDir.into();
    let parent = removed.and_then(folder_of).map(|folder| (folder, remove_dir));
    let readable = readable.chain(parent);
    let folders = needs.socket_files.iter().filter_map(|file| folder_of(file));
    for (path, access) in folders.map(|folder| (folder, remove)).chain(readable) {
        // A path that does not exist needs no right.
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(path, access))?;
        }
    }
    rules.all_threads(true)?.restrict_self()
}

/// Returns whether a rule was refused because its file has no path, such as memory that the parent
/// process has left open (memfd). It cannot be opened again, so it needs no rule.
fn has_no_path(error: &RulesetError) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if code == Some(Errno::BADFD.raw_os_error()) {
            return true;
        }
        source = error.source();
    }
    false
}

fn folder_of(file: &Path) -> Option<PathBuf> {
    Some(std::path::absolute(file).ok()?.parent()?.to_owned())
}

/// Returns the open files and block devices, and the access with which each is open.
fn open_files() -> Vec<(PathFd, BitFlags<AccessFs>)> {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    folder.filter_map(|entry| open_file(&entry.ok()?.path()).ok().flatten()).collect()
}

fn open_file(link: &Path) -> io::Result<Option<(PathFd, BitFlags<AccessFs>)>> {
    // The link leads to the open file, even if the file was renamed.
    let kind = fs::metadata(link)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(None);
    }
    let writes = writes(link)?;
    let mut access: BitFlags<AccessFs> = AccessFs::ReadFile.into();
    if writes {
        access |= AccessFs::WriteFile;
    }
    if kind.is_block_device() {
        access |= AccessFs::IoctlDev;
    }
    Ok(Some((PathFd::new(link).map_err(io::Error::other)?, access)))
}

/// Returns whether a descriptor is open for writing.
fn writes(link: &Path) -> io::Result<bool> {
    let number = link.file_name().unwrap_or_default();
    let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(number))?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim(), 8).map_err(io::Error::other)?;
    Ok(OFlags::from_bits_retain(flags).intersects(OFlags::WRONLY | OFlags::RDWR))
}

fn nr_threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.landlock {
            Landlock::Version(version) => {
                write!(f, "confined by Landlock {version}: no access to other files")?;
                match (*version >= 4, self.connects) {
                    (true, false) => f.write_str(", no new TCP ports or connections")?,
                    (true, true) => f.write_str(", no new TCP ports")?,
                    (false, _) => f.write_str("; TCP is not confined (it needs Linux 6.7)")?,
                }
                if *version >= 6 {
                    f.write_str(", no signals to other processes")?;
                }
            }
            Landlock::Missing => {
                f.write_str("not confined: this kernel has no Landlock (it needs Linux 5.13)")?;
            }
            Landlock::Failed(error) => write!(f, "not confined by Landlock: {error}")?,
        }
        match self.free_threads {
            0 => {}
            free => {
                write!(f, "; {free} threads of disks, which were started before, are not confined")?
            }
        }
        if !self.no_new_privileges {
            f.write_str("; the kernel refused to disable new privileges")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
