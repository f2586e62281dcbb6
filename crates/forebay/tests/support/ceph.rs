//! A Ceph cluster of one node, and images in it.
//!
//! `contrib/ceph/one-node.sh` starts the cluster in a folder of its own, and deletes it when its
//! standard input ends: at the end of the test program, however that ends.
//!
//! The tests of other crates include this file by its path.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/ceph/one-node.sh");

/// The programs of the packages that the script needs.
const PROGRAMS: [&str; 3] = ["ceph-mon", "ceph-osd", "rbd"];

/// A running cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    folder: PathBuf,
    _script: Child,
    /// The script deletes the cluster when this is closed.
    _stdin: ChildStdin,
    next_image: AtomicUsize,
}

/// Held by tests that use the cluster, and alone by tests that disturb it.
static USE: RwLock<()> = RwLock::new(());

/// A cluster in use by a test.
pub(crate) struct Used<G> {
    cluster: &'static Cluster,
    _guard: G,
}

impl<G> std::ops::Deref for Used<G> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

/// Returns the cluster of this test program.
///
/// # Errors
/// Returns why there is none: the programs are not installed.
pub(crate) fn cluster() -> Result<Used<RwLockReadGuard<'static, ()>>, String> {
    let cluster = shared()?;
    Ok(Used { cluster, _guard: USE.read().unwrap_or_else(PoisonError::into_inner) })
}

/// Returns the cluster of this test program, for a test that disturbs it. No other test uses it
/// meanwhile.
///
/// # Errors
/// Returns why there is none: the programs are not installed.
pub(crate) fn cluster_alone() -> Result<Used<RwLockWriteGuard<'static, ()>>, String> {
    let cluster = shared()?;
    Ok(Used { cluster, _guard: USE.write().unwrap_or_else(PoisonError::into_inner) })
}

fn shared() -> Result<&'static Cluster, String> {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    SHARED.get_or_init(Cluster::start).as_ref().map_err(String::clone)
}

impl Cluster {
    fn start() -> Result<Cluster, String> {
        if let Some(missing) = PROGRAMS.into_iter().find(|program| !is_installed(program)) {
            return Err(format!("{missing} is not installed"));
        }
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ceph-{}", std::process::id()));
        // The script refuses one that a killed process with the same id has left.
        let _ = std::fs::remove_dir_all(&folder);
        let mut script = Command::new(SCRIPT)
            .arg("run")
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{SCRIPT}: {error}"))?;
        let stdin = script.stdin.take().expect("a pipe");
        let mut line = String::new();
        let stdout = script.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        assert!(line.starts_with("started: "), "{SCRIPT} has failed: run it by hand");
        let next_image = AtomicUsize::new(0);
        Ok(Cluster { folder, _script: script, _stdin: stdin, next_image })
    }

    /// Returns the path of the configuration.
    pub(crate) fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// Creates an image of `len` bytes with these features, such as `exclusive-lock`. Returns its
    /// name in the pool `rbd`.
    pub(crate) fn create(&self, len: u64, features: &str) -> String {
        let nth = self.next_image.fetch_add(1, Ordering::Relaxed);
        let name = format!("image-{nth}");
        let image = format!("rbd/{name}");
        let size = format!("{len}B");
        self.rbd(&["create", &image, "--size", &size, "--image-feature", features]);
        name
    }

    /// Sets an option of an image of the pool `rbd`.
    pub(crate) fn set(&self, image: &str, option: &str, value: &str) {
        self.rbd(&["config", "image", "set", &format!("rbd/{image}"), option, value]);
    }

    /// Sets an option of an image of the pool `rbd`, without the checks of `rbd config`.
    pub(crate) fn set_as_is(&self, image: &str, option: &str, value: &str) {
        let key = format!("conf_{option}");
        self.rbd(&["image-meta", "set", &format!("rbd/{image}"), &key, value]);
    }

    /// Returns the spec of an image of the pool `rbd`.
    pub(crate) fn spec(&self, image: &str) -> String {
        format!("rbd:rbd/{image}?conf={}", self.conf().display())
    }

    /// Runs the program `rbd`, which must succeed.
    #[track_caller]
    pub(crate) fn rbd(&self, args: &[&str]) -> String {
        succeeded("rbd", args, self.command("rbd", args))
    }

    /// Runs the program `ceph`, which must succeed.
    #[track_caller]
    pub(crate) fn ceph(&self, args: &[&str]) -> String {
        succeeded("ceph", args, self.command("ceph", args))
    }

    /// Runs a program with the configuration of the cluster.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.arg("--conf").arg(self.conf()).args(args).stdin(Stdio::null());
        command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Kills the OSD: SIGKILL.
    pub(crate) fn kill_osd(&self) {
        self.script("kill-osd");
    }

    /// Starts the OSD that was killed.
    pub(crate) fn start_osd(&self) {
        self.script("start-osd");
    }

    /// Stops the OSD, so that it does not answer, until the guard is dropped.
    pub(crate) fn pause_osd(&self) -> PausedOsd {
        let pid = std::fs::read_to_string(self.folder.join("osd.pid")).expect("an OSD runs");
        let osd = PausedOsd { pid: pid.trim().to_owned() };
        assert!(osd.signal("-STOP"), "the OSD runs");
        osd
    }

    fn script(&self, command: &str) {
        let output = Command::new(SCRIPT).arg(command).arg(&self.folder).output();
        succeeded(SCRIPT, &[command], output.expect("a script that can be run"));
    }
}

/// A stopped OSD. Dropping it lets the OSD go on, also after a failed assertion: the other tests
/// use the same OSD.
#[derive(Debug)]
pub(crate) struct PausedOsd {
    pid: String,
}

impl PausedOsd {
    fn signal(&self, signal: &str) -> bool {
        let status = Command::new("kill").args([signal, &self.pid]).status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for PausedOsd {
    fn drop(&mut self) {
        let goes_on = self.signal("-CONT");
        assert!(goes_on || std::thread::panicking(), "the OSD runs again");
    }
}

#[track_caller]
fn succeeded(program: &str, args: &[&str], output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
