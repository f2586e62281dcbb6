//! Signals, and notifications to a service manager.

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::{Client, command};
use crate::common::folder;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Timeout for events that should happen immediately.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service manager, and the server that it has started.
struct Managed {
    notify: UnixDatagram,
    server: Child,
    socket: PathBuf,
}

impl Managed {
    fn start(folder: &TempDir, spec: &str) -> Managed {
        let path = folder.path().join("notify");
        let notify = UnixDatagram::bind(&path).expect("a socket");
        notify.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let socket = folder.path().join("s");
        // The server runs without a terminal, as under a service manager.
        let server = Command::new("setsid")
            .args(["sh", "-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_forebay")])
            .args(["serve", spec, "--threads=1", &format!("--nbd=unix:{}", socket.display())])
            .current_dir(folder.path())
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "200000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        Managed { notify, server, socket }
    }

    /// Returns the next notification, except watchdog messages.
    fn next_message(&self) -> String {
        loop {
            let message = self.message();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    fn message(&self) -> String {
        let mut bytes = [0; 256];
        let len = self.notify.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..len]).trim_end().to_owned()
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).expect("it is there");
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn manager_is_notified_of_start_watchdog_and_end() {
    let folder = folder();
    let mut managed = Managed::start(&folder, "ram:1m");
    assert_eq!(managed.message(), "READY=1\nSTATUS=1 exports");
    for _ in 0..3 {
        assert_eq!(managed.message(), "WATCHDOG=1");
    }
    managed.send(Signal::INT);
    assert_eq!(managed.next_message(), "STOPPING=1\nSTATUS=draining");
    assert!(managed.server.wait().expect("its end").success());
}

#[test]
fn manager_is_notified_of_a_reload_and_its_end() {
    let folder = folder();
    let mut managed = Managed::start(&folder, "ram:1m");
    assert_eq!(managed.next_message(), "READY=1\nSTATUS=1 exports");
    managed.send(Signal::HUP);
    let began = managed.next_message();
    let time = began.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload");
    assert!(time.parse::<u64>().is_ok(), "{began}");
    assert_eq!(managed.next_message(), "READY=1");
    managed.send(Signal::TERM);
    assert_eq!(managed.next_message(), "STOPPING=1\nSTATUS=draining");
    assert!(managed.server.wait().expect("its end").success());
}

/// A client has written to a slow disk, so the shutdown of the server takes long.
#[test]
fn the_same_signal_twice_is_one_and_a_later_one_ends_the_process() {
    for number in [Signal::TERM, Signal::INT] {
        let folder = folder();
        let mut managed = Managed::start(&folder, "fault:ram:1m?rule=write:delay=40s");
        managed.next_message();
        let mut client = Client::connect(&managed.socket, "").expect("a connection");
        client.send((command::WRITE, 0), 0, 4096, &[1; 4096]).expect("it is sent");
        assert!(client.read(4096, 512).is_ok(), "and it has begun what came before");
        // Some senders send every signal twice.
        managed.send(number);
        managed.send(number);
        assert_eq!(managed.next_message(), "STOPPING=1\nSTATUS=draining");
        let start = Instant::now();
        while managed.server.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            managed.send(number);
            std::thread::sleep(Duration::from_millis(50));
        }
        let status = managed.server.wait().expect("its end");
        assert_eq!(status.signal(), Some(number.as_raw()));
    }
}

/// A reload that is requested early happens once the server serves.
#[test]
fn a_reload_does_not_end_a_server_whose_disks_are_being_opened() {
    let folder = folder();
    let path = folder.path().join("mute");
    let mute = UnixListener::bind(&path).expect("a socket");
    let uri = format!("nbd+unix:///?socket={}", path.display());
    let mut managed = Managed::start(&folder, &uri);
    let _connection = mute.accept().expect("it connects");
    managed.send(Signal::HUP);
    managed.send(Signal::TERM);
    let status = managed.server.wait().expect("its end");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "SIGHUP has not ended it");
}

/// The disk is another server, which sends a greeting and nothing more.
#[test]
fn a_signal_ends_it_at_once_while_disks_are_opened() {
    let folder = folder();
    let path = folder.path().join("mute");
    let mute = UnixListener::bind(&path).expect("a socket");
    let uri = format!("nbd+unix:///?socket={}", path.display());
    let mut managed = Managed::start(&folder, &uri);
    let (mut connection, _): (UnixStream, _) = mute.accept().expect("it connects");
    connection.write_all(b"NBDMAGICIHAVEOPT\0\x03").expect("it is sent");
    // The server has answered the greeting, and waits.
    connection.read_exact(&mut [0; 4]).expect("its flags");
    managed.send(Signal::TERM);
    let status = managed.server.wait().expect("its end");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
}
