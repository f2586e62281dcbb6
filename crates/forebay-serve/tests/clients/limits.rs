//! Limits of exports, from a client's point of view.

use crate::client::{Client, READ, request};
use crate::counters::metrics;
use crate::server::Running;
use forebay_serve::{ExportLimits, ExportOptions, Limits, Options};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A time is compared with a lower bound only: a limit never lets I/O go early.
#[test]
fn limit_of_an_export_paces_its_clients_and_can_be_lifted() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("run");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o700)).unwrap();
    let mut limits = forebay::Limits::default();
    limits.read.iops = forebay::Rate { per_s: 100, burst: Some(0) };
    let export = |name: &str, limits| {
        let (spec, name) = ("ram:1M".to_owned(), name.to_owned());
        let limits = ExportLimits::from(limits);
        ExportOptions { spec, name, limits, ..ExportOptions::default() }
    };
    let exports = vec![export("slow", limits), export("free", forebay::Limits::default())];
    let control = own.join("control");
    let options = Options {
        exports,
        control: Some(control.clone()),
        limits: Limits::default(),
        ..Options::default()
    };
    let mut server = Running::with_options(folder.path(), options);
    let mut clients = [0, 1].map(|_| Client::new(&server.socket, "slow", false));
    let began = Instant::now();
    for nth in 0..3 {
        clients.iter_mut().for_each(|client| assert_eq!(client.ask(READ, nth * 4096, 512), 0));
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(50), "{took:?}");
    assert_eq!(Client::new(&server.socket, "free", false).ask(READ, 0, 512), 0);
    let text = metrics(&server);
    for line in [
        "forebay_owner_ios_total{device=\"slow\",owner=\"export:slow\"} 6",
        "forebay_owner_io_bytes_total{device=\"slow\",owner=\"export:slow\"} 3072",
        "forebay_owner_limit{device=\"slow\",owner=\"export:slow\",limit=\"read_iops\"} 100",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(!text.contains("owner=\"export:free\""), "{text}");

    // A limit of one I/O in an hour would hold the client up, and the server at its end.
    let mut socket = UnixStream::connect(control).unwrap();
    let set =
        r#"{"command":"limits","export":"slow","set":{"iops":1,"iops_burst":0,"read_iops":0}}"#;
    writeln!(socket, "{set}").unwrap();
    let mut reply = String::new();
    BufReader::new(&socket).read_line(&mut reply).unwrap();
    assert!(reply.contains(r#""limits":{"iops":1,"iops_burst":0}"#), "{reply}");
    let [first, second] = &mut clients;
    assert_eq!(first.ask(READ, 0, 512), 0);
    second.socket.write_all(&request(READ, 0, 0, 0, 512)).unwrap();
    writeln!(socket, "{}", set.replace(r#""iops":1,"iops_burst":0"#, r#""iops":0"#)).unwrap();
    assert_eq!(second.reply(|_| 512).error, 0);
    server.stop().unwrap();
}
