//! qemu-storage-daemon as a vhost-user-blk server: exports of one raw file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PROGRAM: &str = "qemu-storage-daemon";

/// The number of exports. Each has one client at a time, and a test opens up to three disks.
const NR_EXPORTS: usize = 4;

/// The number of queues of each export.
const NR_QUEUES: u32 = 5;

/// A daemon. Dropping it kills the program.
pub(crate) struct StorageDaemon {
    child: Child,
    folder: tempfile::TempDir,
    next: AtomicUsize,
}

impl StorageDaemon {
    /// Starts a daemon that exports a file, writable and with several queues.
    ///
    /// # Errors
    /// Returns why the program cannot be run.
    pub(crate) fn new(file: &Path) -> Result<StorageDaemon, String> {
        StorageDaemon::with_options(file, &format!("writable=on,num-queues={NR_QUEUES}"))
    }

    /// Starts a daemon that exports a file with these options of each export.
    ///
    /// # Errors
    /// Returns why the program cannot be run.
    pub(crate) fn with_options(file: &Path, options: &str) -> Result<StorageDaemon, String> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let pid_file = folder.path().join("pid");
        let mut command = Command::new(PROGRAM);
        command.arg("--pidfile").arg(&pid_file);
        let direct = if is_whole_pages(file) { "on" } else { "off" };
        let node = format!(
            "driver=file,node-name=n,discard=unmap,cache.direct={direct},filename={}",
            file.display()
        );
        command.args(["--blockdev", &node]);
        for nth in 0..NR_EXPORTS {
            let socket = socket(folder.path(), nth);
            let export = format!(
                "type=vhost-user-blk,id=e{nth},node-name=n,{options},addr.type=unix,addr.path={}",
                socket.display()
            );
            command.args(["--export", &export]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
        let mut daemon = StorageDaemon { child, folder, next: AtomicUsize::new(0) };
        // The file is written when all exports are open.
        while std::fs::read(&pid_file).map_or(0, |text| text.len()) == 0 {
            let ended = daemon.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "{PROGRAM}: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    /// Returns the spec of the next export, round and round.
    pub(crate) fn spec(&self) -> String {
        let nth = self.next.fetch_add(1, Ordering::Relaxed) % NR_EXPORTS;
        format!("vhost-user:{}", socket(self.folder.path(), nth).display())
    }

    /// Kills the program.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether the daemon can use direct I/O without a change of the size.
///
/// Buffered I/O is not enough for the contract: on ext4, a read may return a part of a write to the
/// same page that has not ended.
fn is_whole_pages(file: &Path) -> bool {
    std::fs::metadata(file).expect("the file of the export").len().is_multiple_of(4096)
}

fn socket(folder: &Path, nth: usize) -> PathBuf {
    folder.join(format!("e{nth}.sock"))
}

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}
