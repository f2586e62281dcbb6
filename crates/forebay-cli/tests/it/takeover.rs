//! Takeover: a program that opens a device waits for the I/O of a killed predecessor.

use crate::common::{data_file, folder, forebay, skip_unless_required, stderr};
use crate::serve::front_end::{Driver, FrontEnd, READ, WRITE};
use crate::serve::server::Server;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// A block device that holds writes back: a loop device on a file whose file system can be frozen.
/// Needs root on Linux.
struct HeldDevice {
    node: String,
    mount: PathBuf,
    is_frozen: bool,
    _folder: TempDir,
}

/// Runs a program. Returns its output.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{program}: {}", stderr(&output).trim())),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

impl HeldDevice {
    fn new() -> Result<HeldDevice, String> {
        let folder = folder();
        let (image, mount) = (folder.path().join("fs.img"), folder.path().join("mount"));
        fs::create_dir(&mount).expect("a folder");
        fs::File::create(&image).and_then(|file| file.set_len(48 * MIB as u64)).expect("a file");
        run("mkfs.ext4", &["-q", text(&image)])?;
        run("mount", &["-o", "loop", text(&image), text(&mount)])?;
        // From here on, dropping `device` unmounts it.
        let mut device =
            HeldDevice { node: String::new(), mount, is_frozen: false, _folder: folder };
        fs::write(device.backing(), vec![1; 8 * MIB]).expect("room");
        device.node = run("losetup", &["--find", "--show", text(&device.backing())])?;
        Ok(device)
    }

    fn backing(&self) -> PathBuf {
        self.mount.join("disk.img")
    }

    /// Holds all writes back from now on.
    fn freeze(&mut self) {
        run("fsfreeze", &["--freeze", text(&self.mount)]).expect("ext4 can be frozen");
        self.is_frozen = true;
    }

    /// Lets the writes go on.
    fn thaw(&mut self) {
        run("fsfreeze", &["--unfreeze", text(&self.mount)]).expect("it is frozen");
        self.is_frozen = false;
    }

    /// Returns how many writes are in flight at the device.
    fn nr_in_flight(&self) -> u64 {
        let name = self.node.trim_start_matches("/dev/");
        let inflight =
            fs::read_to_string(format!("/sys/block/{name}/inflight")).expect("it is there");
        inflight.split_whitespace().nth(1).and_then(|nr| nr.parse().ok()).expect("two numbers")
    }

    fn info(&self, keys: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["info", &format!("{}?{keys}", self.node)]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for HeldDevice {
    fn drop(&mut self) {
        if self.is_frozen {
            self.thaw();
        }
        let detached = self.node.is_empty() || run("losetup", &["--detach", &self.node]).is_ok();
        let unmounted = run("umount", &["--lazy", text(&self.mount)]).is_ok();
        let is_clean = detached && unmounted;
        assert!(is_clean || thread::panicking(), "{} or its mount stays", self.node);
    }
}

/// Waits until `is_so`, at most for a minute.
#[track_caller]
fn await_that(is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not become so");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a program that writes to the device while it holds writes back, and kills it.
fn kill_a_writer(device: &mut HeldDevice, keys: &str) -> Child {
    device.freeze();
    let mut writer: Child = forebay(&folder())
        .args(["bench", "--name=writer", "--rw=write", "--bs=4k", "--size=16k", "--iodepth=4"])
        .arg(format!("--filename={}?{keys}", device.node))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be run");
    await_that(|| device.nr_in_flight() > 0);
    writer.kill().expect("it runs");
    writer
}

#[test]
fn a_device_is_opened_once_the_writes_of_a_killed_program_have_ended() {
    let test = "a_device_is_opened_once_the_writes_of_a_killed_program_have_ended";
    for keys in ["direct=on", "direct=on&exclusive=on"] {
        let mut device = match HeldDevice::new() {
            Ok(device) => device,
            Err(why) => return skip_unless_required(test, &why),
        };
        let mut writer = kill_a_writer(&mut device, keys);
        writer.wait().expect("it ends, although its writes are in flight");
        assert!(device.nr_in_flight() > 0, "they are still in flight");
        let refused = device.info(&format!("{keys}&takeover_wait_ms=0")).output().expect("it runs");
        assert!(!refused.status.success(), "{keys}");
        let why = "a program that wrote to it has ended, and its I/O is still in flight after 0 ms";
        assert!(stderr(&refused).contains(why), "{keys}: {}", stderr(&refused));
        // A reader overtakes nothing.
        let reader = device.info("direct=on&read_only=on").output().expect("it runs");
        assert!(reader.status.success(), "{keys}: {}", stderr(&reader));
        let mut patient =
            device.info(&format!("{keys}&takeover_wait_ms=600000")).spawn().expect("it runs");
        thread::sleep(Duration::from_millis(200));
        assert!(patient.try_wait().expect("a child").is_none(), "{keys}: it waits");
        device.thaw();
        let opened = patient.wait_with_output().expect("it ends");
        assert!(opened.status.success(), "{keys}: {}", stderr(&opened));
        assert_eq!(device.nr_in_flight(), 0, "{keys}");
    }
}

/// The kernel lets such a program end only after its I/O. Until then the program keeps its image
/// locks.
#[test]
fn a_device_is_opened_once_a_killed_program_that_still_has_its_locks_has_ended() {
    let test = "a_device_is_opened_once_a_killed_program_that_still_has_its_locks_has_ended";
    for keys in ["engine=aio", "engine=psync", "engine=aio&exclusive=on"] {
        let keys = format!("direct=on&{keys}");
        let mut device = match HeldDevice::new() {
            Ok(device) => device,
            Err(why) => return skip_unless_required(test, &why),
        };
        let mut writer = kill_a_writer(&mut device, &keys);
        let mut patient =
            device.info(&format!("{keys}&takeover_wait_ms=600000")).spawn().expect("it runs");
        let refused = device.info(&format!("{keys}&takeover_wait_ms=0")).output().expect("it runs");
        assert!(!refused.status.success(), "{keys}");
        let why = "a program that wrote to it has ended, and its I/O is still in flight after ";
        assert!(stderr(&refused).contains(why), "{keys}: {}", stderr(&refused));
        // Longer than the wait for a program that runs.
        thread::sleep(Duration::from_millis(3500));
        assert!(patient.try_wait().expect("a child").is_none(), "{keys}: it waits");
        assert!(writer.try_wait().expect("a child").is_none(), "{keys}: it has not ended");
        device.thaw();
        let opened = patient.wait_with_output().expect("it ends");
        assert!(opened.status.success(), "{keys}: {}", stderr(&opened));
        assert_eq!(device.nr_in_flight(), 0, "{keys}");
        writer.wait().expect("it ends");
    }
}

#[test]
fn a_server_does_not_wait_long_for_one_that_runs() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    for keys in ["", "?exclusive=on"] {
        let args = format!("disk.img{keys} --vhost-user-blk=unix:v --num-queues=1");
        let server = Server::start(&folder, &args);
        let start = Instant::now();
        let mut second = forebay(&folder);
        second.args(["serve", &format!("disk.img{keys}"), "--vhost-user-blk=unix:w"]);
        let refused = second.arg("--takeover-wait=600").output().expect("it runs");
        assert!(!refused.status.success(), "{keys}");
        assert!(stderr(&refused).contains("another program"), "{}", stderr(&refused));
        assert!(start.elapsed() < Duration::from_secs(300), "{keys}: it waits for a server");
        server.kill();
    }
}

/// Reads the first sector.
#[track_caller]
fn first_sector(driver: &mut Driver) -> [u8; 512] {
    driver.submit(1, READ, 0, 512);
    assert_eq!(driver.answer(), 0);
    let mut data = [0; 512];
    driver.read_data(1, &mut data);
    data
}

/// A virtual machine loses no write, and no write of the dead server replaces a newer one.
#[test]
fn a_restarted_server_repeats_a_write_once_that_of_the_dead_server_has_ended() {
    let test = "a_restarted_server_repeats_a_write_once_that_of_the_dead_server_has_ended";
    let mut device = match HeldDevice::new() {
        Ok(device) => device,
        Err(why) => return skip_unless_required(test, &why),
    };
    let folder = folder();
    let socket = folder.path().join("v");
    let args = format!("{}?direct=on --vhost-user-blk=unix:v --num-queues=1", device.node);
    let server = Server::start(&folder, &args);
    let mut machine = FrontEnd::new(1);
    machine.connect(&socket);
    let mut driver = machine.driver(0);
    assert_eq!(first_sector(&mut driver), [1; 512]);
    device.freeze();
    driver.write_data(0, &[2; 512]);
    driver.submit(0, WRITE, 0, 512);
    await_that(|| device.nr_in_flight() > 0);
    server.kill();
    assert!(device.nr_in_flight() > 0, "the dead server's write is still in flight");

    let mut hasty = forebay(&folder);
    hasty.arg("serve").args(args.split(' ')).arg("--takeover-wait=0");
    let refused = hasty.output().expect("it runs");
    assert!(!refused.status.success());
    let why = "a program that wrote to it has ended, and its I/O is still in flight after 0 ms";
    assert!(stderr(&refused).contains(why), "{}", stderr(&refused));

    let server = thread::scope(|scope| {
        let patient = scope.spawn(|| Server::start(&folder, &format!("{args} --takeover-wait=60")));
        thread::sleep(Duration::from_millis(300));
        assert!(UnixStream::connect(&socket).is_err(), "it waits before it listens");
        assert!(driver.take_used().is_none());
        device.thaw();
        patient.join().expect("it listens")
    });
    machine.connect(&socket);
    assert_eq!(driver.answer(), 0, "the write is repeated, and answered once");
    assert_eq!(first_sector(&mut driver), [2; 512]);
    driver.write_data(0, &[3; 512]);
    driver.submit(0, WRITE, 0, 512);
    assert_eq!(driver.answer(), 0);
    assert_eq!((first_sector(&mut driver), device.nr_in_flight()), ([3; 512], 0));
    machine.disconnect();
    assert!(server.terminate().success());
}
