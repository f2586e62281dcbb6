//! A guest with the distribution's kernel, on a modelled device behind `forebay serve`.
//!
//! QEMU emulates the processor, so the guest needs no hardware support for virtual machines. The
//! kernel, its modules and busybox are those of the tests of guests, as is the start of the script.

use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::measure::say;

const INIT: &str = include_str!("../../../crates/forebay-cli/tests/it/serve/guest/scripts/init.sh");
const SCRIPT: &str = include_str!("guest.sh");
const PACK: &str = include_str!("pack.sh");

/// One processor, so that the kernel has one queue. The server maps the memory.
const MACHINE: &str = "-machine accel=tcg,memory-backend=m -smp 1 -m 768 -nodefaults -no-reboot \
                       -object memory-backend-memfd,id=m,size=768M,share=on -display none \
                       -serial stdio -kernel vmlinuz -initrd initrd.cpio \
                       -chardev socket,id=c,path=disk.sock \
                       -device vhost-user-blk-pci,chardev=c,num-queues=1,queue-size=256";
const KERNEL: &str = "console=ttyS0 loglevel=4 panic=-1 no_timer_check cryptomgr.notests";

/// The folder of an unpacked package with another kernel.
const KERNEL_VARIABLE: &str = "FOREBAY_GUEST_KERNEL";

/// How long a boot may take, and any step after it beyond the time of its jobs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The kernel of an emulated machine may hang while it boots.
const NR_BOOTS: usize = 3;

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of a guest.
pub(super) struct Console(String);

impl Console {
    /// Returns the lines between the guest's marks of this name.
    pub(super) fn section(&self, name: &str) -> Result<&str> {
        let begin = format!("GUEST BEGIN {name}\n");
        let (_, rest) = self.0.split_once(&begin).with_context(|| format!("no {name}"))?;
        let (section, _) =
            rest.split_once("GUEST END\n").with_context(|| format!("{name}: cut"))?;
        Ok(section)
    }

    /// Returns the version of the kernel.
    pub(super) fn kernel(&self) -> Result<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix("GUEST KERNEL ")).context("no version")
    }
}

/// Boots a guest whose disk is the modelled device `spec`, and whose driver takes `depth` requests
/// at once. Runs `calls` of its script, which take about `work`.
pub(super) fn run(
    forebay: &Path,
    spec: &str,
    depth: u32,
    calls: &str,
    work: Duration,
) -> Result<Console> {
    let folder = TempDir::new()?;
    let init = [INIT, SCRIPT, calls, "report DONE\npoweroff -f\n"].concat();
    std::fs::write(folder.path().join("init"), init)?;
    let guest = packages(forebay)?;
    let mut pack = Command::new("sh");
    pack.args(["-c", PACK, "pack"]).arg(&guest).arg(folder.path());
    let pack = pack.args(std::env::var_os(KERNEL_VARIABLE)).output()?;
    ensure!(
        pack.status.success(),
        "packing the guest failed (it needs fio, ldd, dpkg-deb, and once apt-get with its lists): \
         {}",
        String::from_utf8_lossy(&pack.stderr)
    );
    for nth in 1..=NR_BOOTS {
        if let Some(console) = boot(forebay, &folder, spec, depth, work)? {
            return Ok(Console(console));
        }
        say(&format!("boot {nth}: the guest hung"));
    }
    bail!("the guest hangs while it boots")
}

/// Returns the folder that the tests of guests use too.
fn packages(forebay: &Path) -> Result<PathBuf> {
    let target = forebay.ancestors().nth(2).context("a program in target/dist")?;
    Ok(target.join("tmp/guest"))
}

/// Returns `None` if the guest does not boot.
fn boot(
    forebay: &Path,
    folder: &TempDir,
    spec: &str,
    depth: u32,
    work: Duration,
) -> Result<Option<String>> {
    let _ = std::fs::remove_file(folder.path().join("disk.sock"));
    let mut server = Command::new(forebay);
    server.args(["serve", spec, "--num-queues=1", "--poll=off"]);
    server.args(["--vhost-user-blk", "unix:disk.sock"]);
    let log = File::create(folder.path().join("log"))?;
    let server = server.current_dir(folder.path()).stdin(Stdio::null()).stdout(log.try_clone()?);
    let mut server = Process(server.stderr(log).spawn()?);
    let start = Instant::now();
    while !folder.path().join("disk.sock").exists() {
        let has_ended = server.0.try_wait()?.is_some() || start.elapsed() > PATIENCE;
        ensure!(!has_ended, "serve {spec}: {}", read_to_string(folder.path().join("log"))?);
        sleep(Duration::from_millis(20));
    }
    let console = File::create(folder.path().join("console"))?;
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(MACHINE.split_whitespace());
    qemu.args(["-append", &format!("{KERNEL} device_depth={depth}")]).current_dir(folder.path());
    qemu.stdin(Stdio::null()).stderr(console.try_clone()?).stdout(console);
    let mut qemu = Process(qemu.spawn().context("qemu-system-x86_64: is it installed?")?);
    let text = || -> Result<String> {
        let bytes = std::fs::read(folder.path().join("console"))?;
        Ok(String::from_utf8_lossy(&bytes).replace('\r', ""))
    };
    let start = Instant::now();
    loop {
        // The order matters: all output of a process that has ended is in the file.
        let has_ended = qemu.0.try_wait()?.is_some();
        let console = text()?;
        let has_booted = console.contains("GUEST BOOTED");
        if has_ended {
            ensure!(console.contains("GUEST DONE\n"), "the guest failed:\n{console}");
            return Ok(Some(console));
        }
        if !has_booted && (start.elapsed() > PATIENCE || console.contains("soft lockup")) {
            return Ok(None);
        }
        ensure!(start.elapsed() < PATIENCE + work * 2, "the guest does not end:\n{console}");
        sleep(Duration::from_millis(100));
    }
}

/// Returns whether the kernel is not that of the distribution.
pub(super) fn has_other_kernel() -> bool {
    std::env::var_os(KERNEL_VARIABLE).is_some()
}

/// Returns the version of QEMU.
pub(super) fn qemu_version() -> Result<String> {
    let output = Command::new("qemu-system-x86_64").arg("--version").output();
    let output = output.context("qemu-system-x86_64: is it installed?")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().nth(3).context("a version")?;
    Ok(version.to_owned())
}
