//! Search for a process that is ending and still holds locks of a file.
//!
//! A killed process closes its files once its own I/O has ended: the kernel waits for requests of
//! `io_submit`, and a thread in a system call ends after the call. Until then the process keeps its
//! image locks, and they look like those of a process that runs: `F_OFD_GETLK` reports no process.
//! So this module reads `/proc`. A process is ending if its first thread exits or has a pending
//! SIGKILL. Each of its threads lists the locks of its open files in `fdinfo`.
//!
//! The result decides only how long an open waits, and no write depends on it. Processes of other
//! users or PID namespaces, and a `/proc` that hides them, are not found. An equal inode number on
//! another file system may be mistaken for the file.
//!
//! Source: proc_pid_stat(5), proc_pid_fdinfo(5); `do_exit`, `exit_aio` and `complete_signal` of
//! Linux.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `PF_EXITING` of `include/linux/sched.h`: the thread runs `do_exit`, or has run it.
const EXITING: u64 = 0x4;

/// The bit of SIGKILL in a set of pending signals.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// Returns whether a process that is ending has locks on open files of `file`'s inode.
pub(super) fn holds_locks(file: &File) -> bool {
    let Ok(inode) = file.metadata().map(|facts| facts.ino()) else { return false };
    let processes = entries(Path::new("/proc")).filter(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit())
    });
    let threads = processes.filter(|process| {
        fs::read_to_string(process.join("stat")).is_ok_and(|stat| is_ending(&stat))
    });
    // A first thread that has ended lists no files; others may still be in a system call.
    let mut files = threads
        .flat_map(|process| entries(&process.join("task")))
        .flat_map(|thread| entries(&thread.join("fdinfo")));
    files.any(|file| fs::read_to_string(file).is_ok_and(|facts| has_lock(&facts, inode)))
}

/// Returns the entries of a folder: none if it cannot be read, as when its process has ended.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns whether the thread with this `stat` is ending.
fn is_ending(stat: &str) -> bool {
    // The name before it may contain anything. The field behind the name has number 3.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let field = |nr: usize| fields.get(nr - 2).and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    let (flags, pending) = (field(9), field(31));
    flags & EXITING != 0 || pending & KILLED != 0
}

/// Returns whether the open file with this `fdinfo` has an OFD lock on an inode with this number.
fn has_lock(facts: &str, inode: u64) -> bool {
    let suffix = format!(":{inode}");
    facts.lines().any(|line| {
        line.contains(" OFDLCK ") && line.split(' ').any(|field| field.ends_with(&suffix))
    })
}

#[cfg(test)]
mod tests {
    use super::super::ofd_lock::{self, Range};
    use super::*;

    #[test]
    fn locks_of_an_open_file_are_found_in_its_fdinfo() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let file = image.as_file();
        let inode = file.metadata().expect("an open file").ino();
        let facts = || {
            let fd = std::os::fd::AsRawFd::as_raw_fd(file);
            fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("an open file")
        };
        assert!(!has_lock(&facts(), inode));
        ofd_lock::set(file, Range::byte(300), libc::F_RDLCK).expect("it has locks");
        assert!(has_lock(&facts(), inode), "{}", facts());
        assert!(!has_lock(&facts(), inode + 1));
        assert!(!holds_locks(file), "this process is not ending");
    }

    #[test]
    fn threads_that_exit_or_are_killed_are_ending() {
        let stat = |flags: u64, pending: u64| {
            let zeroes = ["0"; 21].join(" ");
            format!("7 (a) b (c)) S 1 7 7 0 -1 {flags} {zeroes} {pending} 0 0\n")
        };
        assert!(!is_ending(&stat(0x40_0040, 0)));
        assert!(!is_ending(&stat(0x40_0040, 1 << 14)), "SIGTERM may be handled");
        assert!(is_ending(&stat(0x40_0044, 0)));
        assert!(is_ending(&stat(0x40_0040, 0x100)));
        assert!(!is_ending(""));
        let own = fs::read_to_string("/proc/thread-self/stat").expect("a thread");
        assert!(!is_ending(&own), "{own}");
    }
}
