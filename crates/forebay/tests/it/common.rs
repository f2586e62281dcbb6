//! Helpers that the integration tests share: scratch files and devices, and a random number
//! generator.

use crate::skip::skip;
use forebay::{BioQueue, Completion, Disk, DiskInfo, FeatureState, Io};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A scratch file in the build's file system, which supports direct I/O.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new(len: u64) -> Scratch {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
        let path = folder.path().join("disk.img");
        let file = std::fs::File::create(&path).expect("a scratch file");
        file.set_len(len).expect("room for a scratch file");
        Scratch { path, _folder: folder }
    }

    /// Returns the spec of this file with these keys.
    pub(crate) fn spec(&self, keys: &str) -> String {
        format!("{}?{keys}", self.path.display())
    }
}

/// Returns the state that a disk reports for one feature.
#[track_caller]
pub(crate) fn feature<'a>(info: &'a DiskInfo, name: &str) -> &'a FeatureState {
    let feature = info.features.iter().find(|feature| feature.name == name);
    &feature.unwrap_or_else(|| panic!("no feature is called {name}")).state
}

/// A loop device backed by a scratch file.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub(crate) node: String,
    pub(crate) scratch: Scratch,
}

impl LoopDevice {
    /// Attaches a loop device to a scratch file of `len` bytes. Skips the test if that fails.
    #[track_caller]
    pub(crate) fn or_skip(test: &str, len: u64) -> Option<LoopDevice> {
        let skipped = |why: String| skip(test, &format!("there is no loop device: {why}"));
        LoopDevice::new(len).map_err(skipped).ok()
    }

    fn new(len: u64) -> Result<LoopDevice, String> {
        let scratch = Scratch::new(len);
        let set_up = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&scratch.path)
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !set_up.status.success() {
            return Err(String::from_utf8_lossy(&set_up.stderr).trim().to_owned());
        }
        let node = String::from_utf8_lossy(&set_up.stdout).trim().to_owned();
        Ok(LoopDevice { node, scratch })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.node]).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays attached", self.node);
    }
}

/// Environment variable that marks a process started by [`run_again`].
const CHILD: &str = "FOREBAY_TEST_CHILD";

/// Runs the test with this name (including its module) alone in a new process, with these variables
/// added to its environment. Returns its output, or `None` in that process.
pub(crate) fn run_again(test: &str, variables: &[(&str, &str)]) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let options = ["--exact", "--include-ignored", "--show-output", "--test-threads=1"];
    command.arg(test).args(options).env(CHILD, "1");
    command.envs(variables.iter().copied());
    Some(command.output().expect("a process"))
}

/// A compressed RAM device (zram), on machines that support it. It refuses I/O that must not wait.
#[derive(Debug)]
pub(crate) struct ZramDevice {
    pub(crate) node: String,
    number: String,
}

impl ZramDevice {
    /// Sets up a device of `len` bytes for `test`. If that fails, skips the test with a message and
    /// returns `None`; under `FOREBAY_REQUIRE_TOOLS=1` that is an error.
    pub(crate) fn new(test: &str, len: u64) -> Option<ZramDevice> {
        match ZramDevice::set_up(len) {
            Ok(device) => Some(device),
            Err(error) => {
                skip(test, &format!("no zram device: {error}"));
                None
            }
        }
    }

    fn set_up(len: u64) -> std::io::Result<ZramDevice> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add")?;
        let number = number.trim().to_owned();
        let device = ZramDevice { node: format!("/dev/zram{number}"), number };
        let size = format!("/sys/block/zram{}/disksize", device.number);
        std::fs::write(size, len.to_string())?;
        Ok(device)
    }
}

impl Drop for ZramDevice {
    fn drop(&mut self) {
        let removed = std::fs::write("/sys/class/zram-control/hot_remove", &self.number);
        assert!(removed.is_ok() || std::thread::panicking(), "{} stays: {removed:?}", self.node);
    }
}

/// A random number generator: SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub(crate) fn open(spec: &str) -> Disk {
    Disk::open(spec).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn submit(queue: &mut BioQueue, io: Io) {
    queue.submit(io).unwrap_or_else(|error| panic!("{error}"));
}

/// Reaps until the queue is empty. Returns the completions in the order in which they were reaped.
pub(crate) fn reap_all(queue: &mut BioQueue) -> Vec<Completion> {
    let mut done = Vec::new();
    while !queue.is_empty() {
        queue.reap(1, usize::MAX, &mut done);
    }
    done
}
