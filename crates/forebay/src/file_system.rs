//! Properties of the file system of a file.
// It makes a system call that the standard library does not wrap.
#![allow(unsafe_code)]

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Magic numbers of ext2 to ext4, f2fs, tmpfs and XFS.
const LOCAL: [u64; 4] = [0xEF53, 0xF2F5_2010, 0x0102_1994, 0x5846_5342];

/// Returns whether the file system is known to keep file data, and write-back errors, in this
/// machine's page cache. Others (FUSE, network file systems, overlays) may have to wait for a
/// server or a lower layer, and may receive errors only from there.
pub(crate) fn is_local(file: &File) -> bool {
    let mut statfs = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel writes at most one `statfs`.
    let answer = unsafe { libc::fstatfs(file.as_raw_fd(), statfs.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value of this plain structure, and the kernel has filled it in.
    let f_type = unsafe { statfs.assume_init() }.f_type;
    answer == 0 && LOCAL.contains(&(f_type as u64 & 0xFFFF_FFFF))
}
