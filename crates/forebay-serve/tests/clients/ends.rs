//! How a server ends.

use crate::child::{Served, is_child, with_server};
use crate::client::{Client, WRITE, request};
use forebay_serve::Limits;
use std::io::Write;
use std::path::Path;

fn failing_flushes(folder: &Path) -> Served {
    let spec = |nr: u32| format!("fault:{}?rule=flush:io", folder.join(nr.to_string()).display());
    Served { specs: (0..3).map(spec).collect(), limits: Limits::default() }
}

/// So every disk is flushed at the end, whatever becomes of the others.
#[test]
fn each_disk_whose_last_flush_fails_is_named() {
    let folder = tempfile::tempdir().unwrap();
    if !is_child() {
        for nr in 0..3 {
            std::fs::write(folder.path().join(nr.to_string()), vec![0; 1 << 20]).unwrap();
        }
    }
    let name = "ends::each_disk_whose_last_flush_fails_is_named";
    with_server(name, folder.path(), failing_flushes, |server| {
        for nr in 0..3 {
            let mut client = Client::new(&server.socket, &nr.to_string(), false);
            let mut write = request(WRITE, 0, 1, 0, 4);
            write.extend(b"data");
            client.socket.write_all(&write).unwrap();
            assert_eq!(client.reply(|_| 0).error, 0);
        }
        let (status, said) = server.stop();
        assert!(!status.success());
        for nr in 0..3 {
            let path = folder.path().join(nr.to_string()).display().to_string();
            let told = said.lines().filter(|line| line.contains("the last flush failed"));
            assert_eq!(told.filter(|line| line.contains(&path)).count(), 1, "{path} in {said}");
        }
    });
}
