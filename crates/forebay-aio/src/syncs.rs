//! `fsync` and `fdatasync` of the program's threads, which share syncs of a file.
//!
//! - [`rounds`]: which thread makes a sync, and which ones wait for it;
//! - [`choice`]: whether the threads share;
//! - [`calls`]: the functions that programs call.
//!
//! # Which syncs are shared
//!
//! The kernel reports a failed write-back once to each open file, so a sync that is shared must be
//! one of the same open file. Threads share if they name the same descriptor, and it refers to the
//! same inode for each. The program may close the descriptor while they wait, as it may during a
//! sync of its own. So the first thread of a round registers the file with an io_uring (the
//! [`Keeper`](crate::keeper)). The sync of the round goes by the descriptor, if that refers to the
//! file before and after it. Otherwise it goes by the ring.
//!
//! A program that closes a descriptor and opens the same inode under the same number, all while
//! other threads are in a sync of that number, has threads of both open files in a round. Then some
//! may miss a failure that the kernel has already reported to another open file. If the number is
//! another file just during the sync of a round, and its first file before and after, that sync is
//! one of the other file, and may take an error of it. The library cannot see either. Both need a
//! program that changes a descriptor while its threads sync it, within microseconds.
//!
//! Syncs by `io_submit` go to the kernel at once, since it must have them when the call returns.
//!
//! # Signals, cancellation, forks
//!
//! Both functions may be called by a handler of signals, and may be interrupted by one that never
//! returns. So all signals are blocked while a thread is in a round, and nothing here allocates
//! memory. Both are cancellation points: a cancellation that is pending takes effect before the
//! sync. A child of a fork, in which other threads of its parent may have held a lock, makes its
//! own syncs.

#[cfg(not(blk_loom))]
mod calls;
#[cfg(not(blk_loom))]
mod choice;
#[cfg(all(test, blk_loom))]
mod models;
mod primitive;
mod rounds;
