//! A block device whose write-back fails while its storage is full.
//!
//! The device is a loop device on a sparse file in a small tmpfs. Writes complete in the page
//! cache, and their write-back fails when the tmpfs has no free page. Needs root on Linux.
//!
//! A crate includes this file by its path, and `skip.rs` in the same module.

use super::skip::skip;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the file system. The device is larger.
const FS_LEN: u64 = 4 << 20;
const DEVICE_LEN: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct ThinDevice {
    pub(crate) node: String,
    mount: PathBuf,
    _folder: tempfile::TempDir,
}

/// Runs a program. Returns its output.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

impl ThinDevice {
    /// Sets up a device for `test`. Calls [`skip`] and returns `None` if that is not possible.
    #[track_caller]
    pub(crate) fn new(test: &str) -> Option<ThinDevice> {
        let skipped = |why| skip(test, &format!("there is no loop device on a tmpfs: {why}"));
        ThinDevice::set_up().map_err(skipped).ok()
    }

    fn set_up() -> Result<ThinDevice, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().join("full");
        fs::create_dir(&mount).expect("a folder");
        let path = mount.to_str().expect("a path in UTF-8");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={FS_LEN}"), "none", path])?;
        // From here on, dropping `device` unmounts it.
        let mut device = ThinDevice { node: String::new(), mount, _folder: folder };
        let image = device.image();
        let file = File::create(&image).expect("a file");
        file.set_len(DEVICE_LEN).expect("a sparse file");
        let image = image.to_str().expect("a path in UTF-8");
        device.node = run("losetup", &["--find", "--show", image])?;
        Ok(device)
    }

    fn image(&self) -> PathBuf {
        self.mount.join("disk.img")
    }

    fn filler(&self) -> PathBuf {
        self.mount.join("filler")
    }

    /// Makes the write-back of unallocated parts fail from now on.
    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("a file");
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    /// Makes write-back succeed from now on.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).expect("the filler is there");
    }

    /// Fills the storage and makes the write-back of all cached data fail. The error is reported to
    /// an open file that is then closed, as if another program had synced the device.
    pub(crate) fn fail_write_back(&self) {
        self.fill();
        assert!(self.sync().is_err(), "the write-back of {} fails", self.node);
        self.free();
    }

    /// Syncs the device as another program does.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.node)?.sync_data()
    }

    /// Returns whether the storage has these bytes, regardless of the cache.
    pub(crate) fn stores(&self, bytes: &[u8], offset: u64) -> bool {
        let mut stored = vec![0; bytes.len()];
        let file = File::open(self.image()).expect("the image");
        file.read_exact_at(&mut stored, offset).expect("a read");
        stored == bytes
    }
}

impl Drop for ThinDevice {
    fn drop(&mut self) {
        let detached = self.node.is_empty() || run("losetup", &["--detach", &self.node]).is_ok();
        let unmount = |path: &Path| run("umount", &["--lazy", path.to_str().unwrap_or_default()]);
        let unmounted = unmount(&self.mount).is_ok();
        let is_clean = detached && unmounted;
        assert!(is_clean || std::thread::panicking(), "{} or its mount stays", self.node);
    }
}
