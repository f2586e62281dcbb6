//! What a service manager is told. In a process of its own, since variables are the process's.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use forebay_serve::notify;

const CHILD: &str = "FOREBAY_TEST_NOTIFIES";

#[test]
fn a_manager_is_told_and_without_one_nothing_happens() {
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(notify::watchdog_interval(), Some(Duration::from_secs(5)));
        notify::ready("2 exports");
        notify::alive();
        notify::status("1 connection");
        return notify::stopping();
    }
    notify::ready("nobody hears it");
    assert_eq!(notify::watchdog_interval(), None);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let status = Command::new("sh")
        .args(["-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["a_manager_is_told_and_without_one_nothing_happens", "--exact"])
        .env(CHILD, "1")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "10000000")
        .status()
        .unwrap();
    assert!(status.success());
    let told: Vec<_> = (0..4)
        .map(|_| {
            let mut bytes = [0; 256];
            let len = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        })
        .collect();
    assert_eq!(
        told.iter().map(|message| message.trim_end()).collect::<Vec<_>>(),
        [
            "READY=1\nSTATUS=2 exports",
            "WATCHDOG=1",
            "STATUS=1 connection",
            "STOPPING=1\nSTATUS=draining"
        ]
    );
}
