//! `forebay ctl` on a running server.

use super::client::{Client, command};
use super::confinement::has_landlock;
use super::server::Server;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Returns a directory with `run`, which only this user may enter, and `images`.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    for name in ["run", "images"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    let mode = PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(folder.path().join("run"), mode).expect("our own");
    folder
}

fn image(folder: &TempDir, name: &str, bytes: u64) {
    let file = std::fs::File::options().create(true).append(true).open(folder.path().join(name));
    file.and_then(|file| file.set_len(bytes)).expect("a file");
}

pub(super) fn run(folder: &TempDir, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let command = command.args(["ctl", "run/control"]).args(args.split_whitespace());
    command.current_dir(folder.path()).output().expect("it can be run")
}

/// Returns the output of a command that succeeds.
#[track_caller]
pub(super) fn ctl(folder: &TempDir, args: &str) -> String {
    let output = run(folder, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the error of a command that fails with status 1.
#[track_caller]
pub(super) fn error(folder: &TempDir, args: &str) -> String {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(1), "{args}: {output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn confined_server_is_managed_from_its_start_to_its_end() {
    let folder = folder();
    image(&folder, "images/a.img", 1 << 20);
    let args = "ram:1M --name base --control run/control --allow-path images";
    let mut server = Server::start(&folder, args);
    assert!(
        ctl(&folder, "list").starts_with("export \"base\"\n  disk    ram:1M, 1048576 bytes; 0")
    );
    let added = ctl(&folder, "add a images/a.img --limits iops=5000");
    assert!(added.starts_with("export \"a\"\n  disk    images/a.img, 1048576 bytes; 0"), "{added}");
    assert!(added.contains("  limits  iops=5000\n"), "{added}");
    assert!(error(&folder, "add a images/a.img").contains("export \"a\" already exists"));
    let mut client = Client::connect(server.socket(), "a").expect("it is offered");
    let path = folder.path().join("images/a.img");
    assert!(
        std::fs::File::options()
            .append(true)
            .open(path)
            .is_ok_and(|it| it.set_len(2 << 20).is_ok())
    );
    assert!(ctl(&folder, "resize a").contains(", 2097152 bytes; 1 client\n"));
    let removed = run(&folder, "remove a --force");
    assert!(removed.status.success() && removed.stdout.is_empty(), "{removed:?}");
    assert!(client.is_closed());
    assert!(error(&folder, "remove a").contains("there is no export \"a\"; there are: \"base\""));
    // The lock of the image is released, so another disk may use it.
    let info = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["bench", "--filename=images/a.img?exclusive=on", "--rw=write", "--size=4k"])
        .current_dir(folder.path())
        .output();
    let info = info.expect("it can be run");
    assert!(info.status.success(), "{}", String::from_utf8_lossy(&info.stderr));
    assert!(ctl(&folder, "policy base nr_requests=9").contains("nr_requests=9\n"));
    assert_eq!(ctl(&folder, "log-level warning"), "warning\n");
    assert_eq!(ctl(&folder, "--json log-level"), "{\"log_level\":\"warning\"}\n");
    assert!(error(&folder, "reload-certificates").contains("this server has no certificates"));
    assert_eq!(ctl(&folder, "drain"), "");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    let error = error(&folder, "list");
    assert!(error.contains("start the server with --control run/control"), "{error}");
}

/// The file is outside of the server's `--allow-path`, and the caller passes it.
#[test]
fn confined_server_uses_open_files_of_the_caller() {
    if !has_landlock("confined_server_uses_open_files_of_the_caller") {
        return;
    }
    let folder = folder();
    std::fs::create_dir(folder.path().join("other")).expect("a folder");
    image(&folder, "other/a.img", 1 << 20);
    let args = "ram:1M --name base --control run/control --allow-path images --threads 2";
    let server = Server::start(&folder, args);
    let refused = error(&folder, "add a other/a.img --by-path");
    assert!(refused.contains("other/a.img") && refused.contains("ermission"), "{refused}");
    for spec in ["other/a.img", "psync:other/a.img", "aio:other/a.img", "other/a.img?exclusive=on"]
    {
        ctl(&folder, &format!("add a {spec}"));
        // Connections are spread over both threads, each of which has a queue of its own.
        let mut clients: Vec<_> =
            (0..4).map(|_| Client::connect(server.socket(), "a").expect("offered")).collect();
        for (byte, client) in (1..).zip(&mut clients) {
            let offset = u64::from(byte) << 12;
            let answer = client.ask((command::WRITE, 0), offset, 4096, &[byte; 4096]);
            assert_eq!(answer.ok(), Some(0), "{spec}");
            let flushed = client.ask((command::FLUSH, 0), 0, 0, &[]);
            assert_eq!(flushed.ok(), Some(0), "{spec}");
        }
        assert_eq!(clients[0].read(4 << 12, 4096).expect("a read"), [4; 4096], "{spec}");
        ctl(&folder, "remove a --force");
    }
    let bytes = std::fs::read(folder.path().join("other/a.img")).expect("readable");
    assert!((1..5).all(|nr| bytes[nr << 12..][..4096] == [nr as u8; 4096]));
    // No open file of the image is left in the server.
    let left = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").flatten();
    let left = left.filter_map(|link| std::fs::read_link(link.path()).ok());
    assert_eq!(left.filter(|path| path.ends_with("other/a.img")).count(), 0);
}

/// The server only warns: a disk may begin like an image.
#[test]
fn image_of_another_format_is_served_raw_with_a_warning() {
    let folder = folder();
    for (path, head) in
        [("a.img", &b"QFI\xfb"[..]), ("c.img", b"KDMV"), ("images/b.img", b"vhdxfile")]
    {
        std::fs::write(folder.path().join(path), head).expect("an image");
        image(&folder, path, 1 << 20);
    }
    let args = "a.img --name a --control run/control --allow-path images";
    let server = Server::start(&folder, args);
    server.await_lines("Z a.img: this is a qcow2 image, and it is served as raw: ", 1);
    // The command passes a descriptor of a file that the server may not open, or the server opens
    // the file.
    for (name, add, warning) in [
        ("c", "add c c.img", "c.img: this is a vmdk image"),
        ("b", "add b images/b.img", "images/b.img: this is a vhdx image"),
        ("d", "add d images/b.img --by-path", "images/b.img: this is a vhdx image"),
    ] {
        let output = run(&folder, add);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let begin = format!("forebay: warning: {warning}, and it is served as raw: ");
        assert!(stderr.starts_with(&begin) && stderr.lines().count() == 1, "{stderr}");
        assert!(output.stdout.starts_with(format!("export \"{name}\"\n").as_bytes()));
        server.await_lines(&format!("Z export \"{name}\": {warning}, and it is served"), 1);
        ctl(&folder, &format!("remove {name}"));
    }
    let json = run(&folder, "--json add b images/b.img");
    let reply: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(reply["warning"].as_str().is_some_and(|it| it.contains("vhdx")), "{reply}");
    assert!(json.stderr.is_empty(), "{json:?}");
    // An export that was not added has no warning.
    let refused = error(&folder, "add a images/b.img");
    assert!(refused.contains("already exists") && refused.lines().count() == 1, "{refused}");
    assert!(run(&folder, "add e ram:1M").stderr.is_empty());
}

/// The disk and the socket are outside of what the confined server may use.
#[test]
fn device_of_a_virtual_machine_is_added_to_a_confined_server_and_removed() {
    let folder = folder();
    image(&folder, "vm.img", 4 << 20);
    let args = "ram:1M --name base --nbd unix:nbd --control run/control --threads 2";
    let server = Server::start(&folder, args);
    let add = "add vm vm.img --vhost-user-blk unix:vm.sock --num-queues 1";
    let added = ctl(&folder, add);
    let line = format!("  device  vhost-user:{}\n", folder.path().join("vm.sock").display());
    assert!(added.contains(&line), "{added}");
    assert!(error(&folder, add).contains("cannot listen: another server listens there"));
    let bench = || {
        Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["bench", "--filename=vhost-user:vm.sock", "--rw=randwrite", "--bs=4k"])
            .args(["--size=1m", "--iodepth=8", "--verify=crc32c", "--name=vm"])
            .current_dir(folder.path())
            .output()
            .expect("it can be run")
    };
    let output = bench();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::read(folder.path().join("vm.img")).expect("readable");
    assert!(written.iter().any(|byte| *byte != 0), "the file has data");
    // NBD clients have it too.
    let mut client = Client::connect(server.socket(), "vm").expect("it is offered");
    assert_eq!(client.read(0, 4096).expect("a read"), written[..4096]);
    drop(client);
    ctl(&folder, "remove vm");
    assert!(!folder.path().join("vm.sock").exists());
    assert!(!bench().status.success(), "no server listens there");
    // A refusal leaves no socket.
    assert!(error(&folder, "add base vm.img --vhost-user-blk unix:vm.sock").contains("exists"));
    assert!(!folder.path().join("vm.sock").exists());
}

/// An export that the server opens by default has a hardware context for each thread.
#[test]
fn refused_weights_and_schedulers_name_the_setting_that_permits_them() {
    let folder = folder();
    let args = "ram:1M --name a --control run/control --threads 2";
    let _server = Server::start(&folder, args);
    for args in ["limits a client_weight=100", "policy a scheduler=mq-deadline"] {
        let refused = error(&folder, args);
        assert!(refused.trim_end().ends_with("nr_hw_queues=1"), "{args}: {refused}");
    }
    ctl(&folder, "add b ram:1M?nr_hw_queues=1");
    assert!(ctl(&folder, "limits b client_weight=100").contains("client_weight=100"));
    let policy = ctl(&folder, "policy b scheduler=mq-deadline");
    assert!(policy.contains("scheduler=mq-deadline\n"), "{policy}");
}

#[test]
fn wrong_commands_are_refused_with_the_remedy() {
    let folder = folder();
    let _server = Server::start(&folder, "ram:1M --control run/control");
    for (args, expected) in [
        ("stop", "unknown command 'stop'; expected one of list, limits, policy, resize, add, "),
        ("limits a iops", "iops: a limit is KEY=VALUE, such as iops=500"),
        ("add a 'x?direct=perhaps'", "direct"),
        ("add a ram:1M --num-queues 2", "--num-queues is for virtual machines: add --vhost-user"),
        ("add a ram:1M --vhost-user-blk tcp:h", "through a unix socket: write unix:PATH"),
        ("add a ram:1M --vhost-user-blk unix:no/s", "unix:no/s: cannot listen: No such file"),
    ] {
        let output = run(&folder, args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected), "{args}: {text}");
    }
}
