//! Signals, in processes of their own: handlers are the process's.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_serve::signals::StopSignal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

const CHILD: &str = "FOREBAY_TEST_SIGNALLED";

/// Starts test `name` once more, and waits for its first line.
fn start(name: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output.lines().map_while(Result::ok).filter(|line| line.contains("said:")))
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait_for(signal: &StopSignal) {
    while poll(&mut [PollFd::new(signal, PollFlags::IN)], None).is_err() {}
}

/// A line that is seen at once, whatever the test harness prints before it.
fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\nsaid: {text}").unwrap();
    output.flush().unwrap();
}

/// Like a server that cannot get rid of what is in flight.
fn hang() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_signal_can_be_waited_for_and_a_later_one_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let signal = StopSignal::install().unwrap();
        assert!(!signal.is_set());
        // From here on signals are seen.
        let _ = signal.as_fd();
        say("ready");
        wait_for(&signal);
        assert!(signal.is_set());
        signal.clear();
        say("stopping");
        return hang();
    }
    for number in [Signal::TERM, Signal::INT] {
        let name = "a_signal_can_be_waited_for_and_a_later_one_ends_the_process";
        let (mut child, mut lines) = start(name);
        lines.next().expect("it is ready");
        // Some senders send everything twice.
        send(&child, number);
        send(&child, number);
        lines.next().expect("it is stopping");
        while child.try_wait().unwrap().is_none() {
            send(&child, number);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(child.wait().unwrap().signal(), Some(number.as_raw()));
    }
}

#[test]
fn as_long_as_nobody_looks_a_signal_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let _signal = StopSignal::install().unwrap();
        say("still opening disks");
        return hang();
    }
    let (mut child, mut lines) = start("as_long_as_nobody_looks_a_signal_ends_the_process");
    lines.next().expect("it is there");
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_not_the_end() {
    if std::env::var_os(CHILD).is_some() {
        let _signal = StopSignal::install().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert!(rustix::io::write(&here, b"x").is_err());
        assert!(here.write_all(b"x").is_err());
        return;
    }
    let (mut child, _lines) = start("a_peer_that_is_gone_is_an_error_and_not_the_end");
    assert!(child.wait().unwrap().success());
}
