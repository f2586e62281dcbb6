//! The process gives up what it does not need any more, when everything is open and before it
//! talks to anybody.
//!
//! What is left: the files of the disks may be opened again, which a queue of its own needs; the
//! socket files may be removed; the directory of the TLS certificates may be read, for a reload;
//! where a disk is on an NBD server, that may be connected to. Nothing
//! else of the file system, no new TCP port, no connection to another, no signal to another
//! process, no program with more rights than this one. Landlock sees what a ring does as well as
//! what system calls do.
//!
//! A kernel without Landlock, or with less of it, does what it can: what is in force is told, and
//! the server goes on. It is a second line: the first is that nothing of a peer's becomes a path.
//!
//! What is given up is given up by the calling thread and those that it starts later. So the main
//! thread calls this before it starts any. Those that disks have started when they were opened
//! keep their rights, unless the kernel can confine all at once (Linux 7.0); they run none of the
//! server's code.

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

/// The newest version of Landlock whose meaning is known here. The next but one would also forbid
/// to connect to unix sockets by their path, which the service manager's is.
const KNOWN: ABI = ABI::V8;

/// What a name is looked up in: a disk on an NBD server connects anew, by its name.
const RESOLVER: [&str; 5] = ["/etc", "/lib", "/lib64", "/usr/lib", "/run/systemd/resolve"];

/// What is in force, in a line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confinement {
    landlock: Landlock,
    connects: bool,
    no_new_privileges: bool,
    /// Threads that were there before, and are not confined.
    free_threads: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Landlock {
    /// By this version of it: what it knows of grows with them.
    Version(i32),
    Missing,
    Failed(String),
}

/// Gives up everything but `needs` and what is open, for this thread and those that it starts.
pub(super) fn confine(needs: &Needs) -> Confinement {
    // The clock of stamps looks at a file when it is started, and would be a slow one without it.
    let _ = forebay::now_ns();
    let no_new_privileges = rustix::thread::set_no_new_privs(true).is_ok();
    let (landlock, all_threads) = match restrict(needs) {
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

fn restrict(needs: &Needs) -> Result<RestrictionStatus, RulesetError> {
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
        rules = rules.add_rule(PathBeneath::new(file, access))?;
    }
    let remove: BitFlags<AccessFs> = AccessFs::RemoveFile.into();
    let readable = needs.connects.then_some(RESOLVER).into_iter().flatten().map(Path::new);
    let readable = readable.map(|path| (path.to_owned(), AccessFs::from_read(KNOWN)));
    let read: BitFlags<AccessFs> = AccessFs::ReadFile.into();
    let readable = readable.chain(needs.readable.iter().map(|path| (path.clone(), read)));
    let folders = needs.socket_files.iter().filter_map(|file| folder_of(file));
    for (path, access) in folders.map(|folder| (folder, remove)).chain(readable) {
        // What is not there needs no right.
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(path, access))?;
        }
    }
    rules.all_threads(true)?.restrict_self()
}

fn folder_of(file: &Path) -> Option<PathBuf> {
    Some(std::path::absolute(file).ok()?.parent()?.to_owned())
}

/// The files and block devices that are open now, and how each may be opened again.
fn open_files() -> Vec<(PathFd, BitFlags<AccessFs>)> {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    folder.filter_map(|entry| open_file(&entry.ok()?.path()).ok().flatten()).collect()
}

fn open_file(link: &Path) -> io::Result<Option<(PathFd, BitFlags<AccessFs>)>> {
    // It follows the link to the very file, whatever its name is by now.
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

/// Whether a descriptor is open for writing, as the kernel tells of it.
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
                write!(f, "confined by Landlock {version}: no files but those in use")?;
                match (*version >= 4, self.connects) {
                    (true, false) => f.write_str(", no new TCP ports or peers")?,
                    (true, true) => f.write_str(", no new TCP ports")?,
                    (false, _) => f.write_str("; TCP needs Linux 6.7")?,
                }
                if *version >= 6 {
                    f.write_str(", no signals")?;
                }
            }
            Landlock::Missing => {
                f.write_str("not confined: this kernel has no Landlock (it needs Linux 5.13)")?;
            }
            Landlock::Failed(error) => write!(f, "not confined by Landlock: {error}")?,
        }
        match self.free_threads {
            0 => {}
            free => write!(f, "; not so {free} threads of disks, which ran before")?,
        }
        if !self.no_new_privileges {
            f.write_str("; new privileges are possible: the kernel refused to forbid them")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
