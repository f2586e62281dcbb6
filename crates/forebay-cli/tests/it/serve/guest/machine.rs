//! A virtual machine: its process, the guest's console, and QEMU's monitor.

use super::image::Distribution;
use crate::common::skip_unless_required;
use crate::serve::tools::is_there;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one step of a guest may take, even on a busy machine. A boot takes four seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const NAP: Duration = Duration::from_millis(5);

/// The guest's memory, which a vhost-user server maps, and its four processors: the kernel uses at
/// most one queue for each.
const MACHINE: &str = "-smp 4 -m 512 -object memory-backend-memfd,id=m,size=512M,share=on \
                       -machine memory-backend=m -nodefaults -no-reboot -display none \
                       -serial stdio -qmp unix:qmp,server=on,wait=off";

/// The accelerators that QEMU tries, unless `FOREBAY_GUEST_ACCEL` names others. In a virtual
/// machine, KVM may start and then not boot the guest.
const ACCELERATORS: &str = "tcg";

/// The kernel's parameters. On a busy machine its check of the timer may fail, as QEMU's processors
/// do not run all the time, and the boot then hangs. The log level shows the stacks of a kernel
/// that hangs. Its tests of ciphers only take time.
const KERNEL: &str = "console=ttyS0 loglevel=5 panic=-1 no_timer_check cryptomgr.notests";

/// The boots that are tried. The kernel of an emulated machine may hang before it has a disk, which
/// it reports as a soft lockup.
const NR_BOOTS: usize = 3;

/// Returns the packages of a guest's system. Without them, or without one of these tools, skips
/// the test by name.
#[track_caller]
pub(super) fn distribution(test: &str, tools: &[&str]) -> Option<&'static Distribution> {
    for tool in ["qemu-system-x86_64", "dpkg-deb", "ldd"].iter().chain(tools) {
        if !is_there(tool, test) {
            return None;
        }
    }
    Distribution::get().map_err(|why| skip_unless_required(test, why)).ok()
}

/// A running guest. Dropping this value kills it.
pub(super) struct Machine {
    child: Child,
    folder: TempDir,
    /// When the last step began.
    progress: Instant,
}

impl Machine {
    /// Starts a machine with these devices, whose guest runs `script` with these tools of the host.
    pub(super) fn start(
        distribution: &Distribution,
        script: &str,
        tools: &[&str],
        devices: &[String],
    ) -> Machine {
        let mut folder = crate::common::folder();
        distribution.pack(&folder, script, tools);
        let kernel = distribution.kernel().display().to_string();
        let args = ["-initrd", "initrd.cpio", "-kernel", &kernel, "-append", KERNEL];
        for nth in 1.. {
            let child = start_qemu(&folder, devices, &args);
            let mut machine = Machine { child, folder, progress: Instant::now() };
            if nth == NR_BOOTS || !machine.hangs_at_boot() {
                return machine;
            }
            let console = machine.console();
            let _ = writeln!(std::io::stderr(), "boot {nth}: the guest hung:\n{console}");
            folder = machine.end();
        }
        unreachable!("the last boot returns")
    }

    /// Waits until the guest has booted. Returns whether its kernel hangs instead.
    fn hangs_at_boot(&mut self) -> bool {
        while self.progress.elapsed() < PATIENCE {
            let has_ended = self.child.try_wait().expect("a child").is_some();
            let console = self.console();
            if has_ended || console.contains("GUEST BOOTED") {
                return false;
            }
            if console.contains("soft lockup") {
                return true;
            }
            std::thread::sleep(NAP);
        }
        false
    }

    /// Kills the machine, and returns its folder.
    fn end(mut self) -> TempDir {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
        std::mem::replace(&mut self.folder, crate::common::folder())
    }

    /// Returns all that the guest has printed.
    pub(super) fn console(&self) -> String {
        self.text("console").replace('\r', "")
    }

    fn text(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        String::from_utf8_lossy(&std::fs::read(path).expect("a file")).into_owned()
    }

    /// Returns the last value that the guest has reported by this name.
    #[track_caller]
    pub(super) fn value(&self, name: &str) -> String {
        let console = self.console();
        let begin = format!("GUEST {name} ");
        let value = console.lines().rev().find_map(|line| line.strip_prefix(&begin));
        value.unwrap_or_else(|| panic!("no {name}: {console}")).to_owned()
    }

    /// Begins a step of the guest that ends without a line of it.
    pub(super) fn begin_step(&mut self) {
        self.progress = Instant::now();
    }

    /// Asserts that the guest has reported no failure, and that its step does not last too long.
    #[track_caller]
    pub(super) fn check(&self) {
        let console = self.console();
        let all = || format!("{console}\n{}", self.text("messages"));
        assert!(!console.contains("GUEST FAILED"), "{}", all());
        assert!(self.progress.elapsed() < PATIENCE, "no progress: {}", all());
    }

    /// Waits until the guest has printed this line.
    #[track_caller]
    pub(super) fn await_line(&mut self, line: &str) {
        self.progress = Instant::now();
        loop {
            // The order matters: all output of a process that has ended is in the file.
            let ended = self.child.try_wait().expect("a child");
            if self.console().lines().any(|printed| printed == line) {
                self.progress = Instant::now();
                return;
            }
            self.check();
            let all = || format!("{}\n{}", self.console(), self.text("messages"));
            assert!(ended.is_none(), "it ended before `{line}`: {ended:?}: {}", all());
            std::thread::sleep(NAP);
        }
    }

    /// Waits until the guest has come to this point of its script, and waits there.
    #[track_caller]
    pub(super) fn await_point(&mut self, point: &str) {
        self.await_line(&format!("GUEST WAITS {point}"));
    }

    /// Lets the guest go on from this point.
    #[track_caller]
    pub(super) fn release(&mut self, point: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "go {point}").expect("it reads its console");
    }

    /// Waits until the script has ended without a failure and the machine is off.
    #[track_caller]
    pub(super) fn finish(mut self) -> String {
        self.await_line("GUEST DONE");
        let status = wait(&mut self.child);
        assert!(status.success(), "{status}: {}", self.text("messages"));
        self.console()
    }

    /// Kills the machine, whatever it is doing. Returns the last value that the guest has reported
    /// by this name.
    #[track_caller]
    pub(super) fn kill(mut self, name: &str) -> String {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
        self.value(name)
    }

    /// Executes a command of QEMU's monitor.
    ///
    /// # Errors
    /// Returns QEMU's description of its error.
    #[track_caller]
    pub(super) fn monitor(&self, command: &str, arguments: Value) -> Result<Value, String> {
        let socket: PathBuf = self.folder.path().join("qmp");
        let mut stream = UnixStream::connect(socket).expect("QEMU listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        for (name, arguments) in [("qmp_capabilities", json!({})), (command, arguments)] {
            let request = json!({ "execute": name, "arguments": arguments });
            stream.write_all(request.to_string().as_bytes()).expect("QEMU reads");
            // A greeting and events come between.
            let reply = loop {
                let line = lines.next().expect("a reply").expect("in time");
                let value: Value = line.parse().expect("JSON");
                if value.get("return").is_some() || value.get("error").is_some() {
                    break value;
                }
            };
            if let Some(error) = reply.get("error") {
                return Err(error["desc"].as_str().expect("a text").to_owned());
            }
            if name == command {
                return Ok(reply["return"].clone());
            }
        }
        unreachable!("the second command returns")
    }
}

/// Starts QEMU in `folder` with the machine that all tests use. Its console is the standard output,
/// in a file.
pub(super) fn start_qemu(folder: &TempDir, devices: &[String], args: &[&str]) -> Child {
    let file = |name| File::create(folder.path().join(name)).expect("a file");
    let accelerators = std::env::var("FOREBAY_GUEST_ACCEL");
    let accelerators = accelerators.unwrap_or_else(|_| ACCELERATORS.to_owned());
    Command::new("qemu-system-x86_64")
        .args(MACHINE.split_whitespace())
        .args(["-machine", &format!("accel={accelerators}")])
        .args(devices)
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(file("console"))
        .stderr(file("messages"))
        .spawn()
        .expect("it is installed")
}

/// Waits until QEMU has ended.
#[track_caller]
pub(super) fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("QEMU does not end");
        }
        std::thread::sleep(NAP);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
