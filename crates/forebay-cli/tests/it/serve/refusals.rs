//! Options that `forebay serve` refuses before it serves: messages and exit codes.

use crate::common::{data_file, folder, skip_unless_required, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[track_caller]
fn check(args: &[&str], code: i32, message: &str) {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    // Without a refusal the server would run forever.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_forebay"), "serve"]).args(args);
    let output = command.current_dir(folder.path()).output().expect("it can be run");
    let told = stderr(&output);
    assert!(told.starts_with(&format!("forebay: {message}")), "{args:?}: {told}");
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    assert_eq!(stdout(&output), "", "{args:?}");
    assert!(!folder.path().join("forebay.sock").exists(), "{args:?}");
}

#[test]
fn tls_that_is_not_on_is_not_taken_for_it() {
    let off = "--tls-certificates and --tls-verify-peer need TLS, which is off";
    check(&["disk.img", "--tls-certificates=pki"], 2, off);
    check(&["disk.img", "--tls-verify-peer"], 2, off);
    let plain = "with `--tls on` a client without a certificate connects without TLS";
    check(&["disk.img", "--tls=on", "--tls-certificates=pki", "--tls-verify-peer"], 2, plain);
    check(&["disk.img", "--tls=require"], 1, "TLS needs certificates");
}

#[test]
fn device_without_a_socket_or_a_disk_is_refused_with_what_is_missing() {
    let no_socket = "--blk-file disk.img needs the socket of a virtual machine: add --socket-path \
                     PATH or --fd N, or write the disk as SPEC";
    check(&["--blk-file=disk.img"], 2, no_socket);
    check(&["--blk-file=disk.img", "--nbd=unix:nbd.sock"], 2, no_socket);
    for option in ["--socket-path=a", "--vhost-user-blk=unix:a", "--fd=9"] {
        let name = option.split('=').next().unwrap_or_default();
        let no_disk = format!("{name} has no disk to serve: name its image with --blk-file");
        check(&[option], 2, &no_disk);
    }
    check(&[], 2, "missing argument: <SPEC>");
    let unix = "--vhost-user-blk=vm.sock: expected unix:PATH, such as unix:vm.sock\n";
    check(&["disk.img", "--vhost-user-blk=vm.sock"], 2, unix);
    let device = ["disk.img", "--vhost-user-blk=unix:a", "--queue-size=2"];
    check(&device, 2, "--queue-size=2: expected a power of two from 4 to 1024\n");
    let device = ["disk.img?nr_bios=3", "--vhost-user-blk=unix:a", "--num-queues=2"];
    check(&device, 1, "disk.img?nr_bios=3: cannot serve this disk as vhost-user-blk: nr_bios=3");
}

#[test]
fn descriptor_that_is_not_open_is_refused_with_the_remedy() {
    let message = "cannot use descriptor 77 (--fd): it is not open: the program that starts the \
                   server must open the socket, and pass it on without the flag FD_CLOEXEC\n";
    check(&["disk.img", "--fd=77"], 1, message);
}

#[test]
fn option_of_nbd_without_nbd_is_refused_before_its_value() {
    let message = "--tls is for NBD, which is off: add --nbd ADDRESS, or leave it out";
    check(&["disk.img", "--vhost-user-blk=unix:v", "--tls=require"], 2, message);
    let message = "--description is for NBD, which is off: add --nbd ADDRESS, or leave it out";
    check(&["disk.img", "--vhost-user-blk=unix:v", "--description=a"], 2, message);
    let message = "--tls-certificates is for NBD, which is off";
    check(&["disk.img", "--vhost-user-blk=unix:v", "--tls-certificates=pki"], 2, message);
    let message = "--tls-verify-peer is for NBD, which is off";
    check(&["disk.img", "--vhost-user-blk=unix:v", "--tls-verify-peer"], 2, message);
}

#[test]
fn limits_that_cannot_be_kept_are_refused() {
    for (option, max) in [
        ("--memory-mib=0", 1048576),
        ("--memory-mib=17592186044417", 1048576),
        ("--threads=0", 4096),
        ("--threads=many", 4096),
        ("--max-connections=0", 1048576),
    ] {
        let message = format!("{option}: expected a whole number from 1 to {max}\n");
        check(&["disk.img", option], 2, &message);
    }
    for option in ["--poll=0", "--poll=always", "--poll=1000001", "--poll=-1"] {
        let message =
            format!("{option}: expected adaptive, off, or microseconds from 1 to 1000000\n");
        check(&["disk.img", option], 2, &message);
    }
    let args = ["disk.img", "--nbd=tcp:no.such.host.invalid"];
    let unknown = "cannot listen at tcp:no.such.host.invalid:10809: the host name does not \
                   resolve: check it, or give an IP address (";
    check(&args, 1, unknown);
    let args = ["disk.img", "--memory-mib=1", "--max-connections=1000", "--threads=2"];
    let little = "1 MiB of memory is too little: 1000 connections on 2 threads need 16 MiB, so \
                  that each has at least 4 KiB: raise --memory-mib, or lower --max-connections \
                  or --threads";
    check(&args, 2, little);
}

#[test]
fn names_must_be_such_as_clients_can_ask_for() {
    let long = "n".repeat(4097);
    let why = |what| format!("the {what} is longer than 4096 bytes");
    let told = |what| format!("disk.img: cannot export this disk: {}", why(what));
    check(&["disk.img", "--name", &long], 1, &told("name"));
    check(&["disk.img", "--description", &long], 1, &told("description"));
    check(&["disk.img", "disk.img"], 2, "two exports have the name `disk.img`");
    let twice = "--name is given 2 times, for 1 disk: give it at most once per disk";
    check(&["disk.img", "--name=a", "--name=b"], 2, twice);
}

#[test]
fn problem_of_a_disk_or_socket_is_reported_once_with_the_remedy() {
    check(&["nosuch.img"], 1, "nosuch.img: no such file; create it first");
    check(&["disk.img?foo=1"], 2, "disk.img?foo=1: unknown key `foo`");
    check(&["disk.img", "--metrics=foo"], 2, "--metrics: cannot listen at `foo`: an address");
    let folder =
        "cannot listen at unix:nosuch/s: No such file or directory (os error 2): create the";
    check(&["disk.img", "--nbd=unix:nosuch/s"], 1, folder);
    let busy = "cannot listen at unix:.: this path exists and is not a socket";
    check(&["disk.img", "--nbd=unix:."], 1, busy);
}

#[test]
fn options_that_contradict_the_spec_are_refused() {
    let message = "disk.img?read_only=off: read_only=off contradicts --read-only";
    check(&["disk.img?read_only=off", "--read-only"], 2, message);
    let message = "--shared: disk.img?exclusive=on: exclusive=on lets no other program use the";
    check(&["disk.img?exclusive=on", "--shared"], 2, message);
    let message = "--shared has no effect: disk.img?lock=off has a key lock";
    check(&["disk.img?lock=off", "--shared"], 2, message);
}

/// Runs a server with wrong usage, which must exit on its own. Returns its standard error.
#[track_caller]
fn usage_error(args: &[&str]) -> String {
    let folder = folder();
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_forebay"), "serve"]).args(args);
    let output = command.current_dir(folder.path()).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
    stderr(&output)
}

#[test]
fn options_of_other_servers_are_refused_with_the_option_to_use() {
    for (option, tip) in [
        ("--port=10809", "; use --nbd tcp:HOST:PORT"),
        ("-p", "; use --nbd tcp:HOST:PORT"),
        ("--socket=s", "; use --nbd unix:PATH"),
        ("--daemonize", "; use --fork"),
        ("--pidfile=x", "; use --pid-file"),
        ("--readonly", "; use --read-only"),
        ("--export-name=x", "; use --name"),
    ] {
        let told = usage_error(&["disk.img", option]);
        assert!(told.contains(tip), "{option}: {told}");
        assert_eq!(told.matches("unknown option").count(), 1, "{option}: {told}");
    }
    // clap's own tip would suggest to pass the option as a disk.
    for option in ["--port", "--no-such-option"] {
        let told = usage_error(&["disk.img", option]);
        assert!(!told.contains("-- "), "{told}");
    }
    let told = usage_error(&["disk.img", "--max-connection=5"]);
    assert!(told.contains("did you mean --max-connections?"), "{told}");
}

#[test]
fn a_disk_that_may_not_be_written_is_served_by_read_only() {
    let test = "a_disk_that_may_not_be_written_is_served_by_read_only";
    let folder = folder();
    let path = data_file(&folder, "disk.img", 1 << 20);
    let set = |path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
    };
    set(folder.path(), 0o777);
    set(&path, 0o444);
    let serve = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_forebay"), "serve"]).args(args);
        // The superuser may write to any file.
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        command.current_dir(folder.path()).output()
    };
    let told = match serve(&["disk.img"]) {
        // Other users may be unable to enter the build directory.
        Err(error) => return skip_unless_required(test, &error.to_string()),
        Ok(output) => stderr(&output),
    };
    let expected = "forebay: disk.img: no permission to read and write it: to serve it read-only, \
                    add --read-only\n";
    assert_eq!(told, expected);
    let told = stderr(&serve(&["disk.img", "ram:1m"]).expect("it can be run"));
    assert!(told.contains("--read-only, or `?read_only=on` in the SPEC of this disk"), "{told}");
}
