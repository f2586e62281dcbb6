//! A file whose flushes take a set time, for tests and measurements of unmodified programs.
//!
//! [`SlowFile`] is a FUSE file system with one file. Reads and writes pass to memory. A flush
//! (`fsync`, `fdatasync`, or the same through libaio) takes the set time, and the device executes
//! one flush at a time, so the n-th of concurrent flushes takes n times as long. The file supports
//! direct I/O and libaio.
//!
//! Linux holds the inode's lock of a FUSE file from before a flush until its end. So concurrent
//! flushes reach the file system one after another, and a write waits for the flush in front of it.
//! Reads do not wait. A file on a block device differs in both: its writes do not wait, and the
//! block layer of Linux combines concurrent flushes.
//!
//! The mount is in no directory tree: it exists as a descriptor of this process, and programs reach
//! it through `/proc`. So nothing is left after a panic or a kill.
#![forbid(unsafe_code)]

mod device;
mod protocol;
mod server;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use crate::device::Device;

/// The name of the file.
const NAME: &str = "data";

/// Threads that serve reads and writes.
const NR_WORKERS: usize = 4;

/// A file whose flushes take a set time. Dropping it unmounts its file system. Programs that still
/// have the file open get `EIO` from then on.
#[derive(Debug)]
pub struct SlowFile {
    path: PathBuf,
    device: Arc<Device>,
    /// The only reference to the mount. The last user unmounts.
    _mount: OwnedFd,
}

impl SlowFile {
    /// Mounts a file system with a file of `size` zero bytes, each flush of which takes `flush`.
    ///
    /// # Errors
    /// The reason why this process cannot mount it: no `/dev/fuse`, no privilege, or an old kernel.
    pub fn mount(size: u64, flush: Duration) -> Result<SlowFile, String> {
        let device = Device::new(size, flush);
        let device = device
            .map_err(|error| format!("cannot create a memory file of {size} bytes: {error}"))?;
        let device = Arc::new(device);
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        let fuse = fuse.map_err(|error| format!("cannot open /dev/fuse: {error}"))?;
        let mount = mount(&fuse)
            .map_err(|error| format!("cannot mount a FUSE file system: {error}: it needs root"))?;
        serve(Arc::new(fuse), &device)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let folder = format!("/proc/{}/fd/{}", std::process::id(), mount.as_raw_fd());
        Ok(SlowFile { path: Path::new(&folder).join(NAME), device, _mount: mount })
    }

    /// Returns the path of the file, for this process and for others while this value lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of flushes that have reached the file system, failed ones included.
    pub fn nr_flushes(&self) -> u64 {
        self.device.nr_flushes()
    }

    /// Makes the `nth` flush since the mount fail with `errno`. The first flush has number 1. The
    /// flush takes as long as one that succeeds.
    ///
    /// # Panics
    /// If Linux would not return that error: it handles `ENOSYS` itself, and sends no flush any
    /// more. Other values have to be between 1 and 999.
    pub fn fail_flush(&self, nth: u64, errno: i32) {
        self.device.fail_flush(nth, errno);
    }
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        self.device.remove();
    }
}

/// Mounts a file system of this process in no directory tree.
fn mount(fuse: &File) -> io::Result<OwnedFd> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: String| fsconfig_set_string(&context, key, value);
    set("source", "forebay-slowfs".to_owned())?;
    set("fd", fuse.as_raw_fd().to_string())?;
    set("rootmode", "40000".to_owned())?;
    set("user_id", rustix::process::geteuid().as_raw().to_string())?;
    set("group_id", rustix::process::getegid().as_raw().to_string())?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Starts the threads. They end when the kernel has removed the file system.
fn serve(fuse: Arc<File>, device: &Arc<Device>) -> io::Result<()> {
    let (flushes, queue) = mpsc::channel();
    let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    };
    let (to, shared) = (Arc::clone(&fuse), Arc::clone(device));
    start("slowfs-flush", Box::new(move || server::flush_each(&to, &shared, &queue)))?;
    for _ in 0..NR_WORKERS {
        let (fuse, shared, flushes) = (Arc::clone(&fuse), Arc::clone(device), flushes.clone());
        start("slowfs", Box::new(move || server::run(&fuse, &shared, &flushes)))?;
    }
    Ok(())
}
