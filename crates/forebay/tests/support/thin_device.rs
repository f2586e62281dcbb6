//! A block device whose write-back fails while its storage is full.
//!
//! A loop device on a sparse file in a small tmpfs: writes end in the page cache, and fail on their
//! way to the file when the tmpfs has no page left. For root on Linux.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of the file system, and of the device, which has room for more than that.
const FS_LEN: u64 = 4 << 20;
const DEVICE_LEN: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct ThinDevice {
    pub(crate) node: String,
    mount: PathBuf,
    _folder: tempfile::TempDir,
}

/// Runs a program, and returns what it has printed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

impl ThinDevice {
    /// Sets one up for `test`. `None`, with a message, where that is not possible: which is an
    /// error under `FOREBAY_REQUIRE_TOOLS=1`.
    #[allow(clippy::print_stderr)]
    pub(crate) fn new(test: &str) -> Option<ThinDevice> {
        match ThinDevice::set_up() {
            Ok(device) => Some(device),
            Err(why) => {
                let required = std::env::var_os("FOREBAY_REQUIRE_TOOLS");
                assert!(required.is_none_or(|value| value != "1"), "{test}: {why}");
                eprintln!("skipped: {test}, without a loop device on a tmpfs: {why}");
                None
            }
        }
    }

    fn set_up() -> Result<ThinDevice, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().join("full");
        fs::create_dir(&mount).expect("a folder");
        let path = mount.to_str().expect("a path in UTF-8");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={FS_LEN}"), "none", path])?;
        // From here on it is unmounted when this is dropped.
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

    /// From now on write-back of parts that are not allocated yet fails.
    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("a file");
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    /// From now on write-back succeeds.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).expect("the filler is there");
    }

    /// Fills the storage, and has the write-back of everything that is cached fail. It is reported
    /// to an open file that is closed then, as that of another program.
    pub(crate) fn fail_write_back(&self) {
        self.fill();
        assert!(self.sync().is_err(), "the write-back of {} fails", self.node);
        self.free();
    }

    /// Syncs the device as another program does.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.node)?.sync_data()
    }

    /// Whether the storage has these bytes, whatever is cached.
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
