//! Effects of a server on its process: none.

use crate::client::{Client, READ};
use crate::server::Running;
use forebay_serve::Limits;
use rustix::process::{Resource, getrlimit};

/// Returns what the kernel reports of this thread, as far as a server could change it for the whole
/// process: handled and ignored signals, and privileges.
fn of_the_process() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let names = ["SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp:"];
    let told = status.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    told.map(str::to_owned).chain([format!("{:?}", getrlimit(Resource::Nofile))]).collect()
}

#[test]
fn two_servers_of_one_process_serve_end_by_themselves_and_leave_the_process_alone() {
    let before = of_the_process();
    assert_eq!(before.len(), 6, "{before:?}");
    let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start = |folder: &tempfile::TempDir| {
        Running::start(folder.path(), &["ram:1M".to_owned()], Limits::default())
    };
    let [mut one, mut two] = [start(&one), start(&two)];
    assert_eq!(Client::new(&one.socket, "0", false).ask(READ, 0, 4096), 0);
    let mut client = Client::new(&two.socket, "0", false);
    one.stop().unwrap();
    assert_eq!(client.ask(READ, 0, 4096), 0, "the other server goes on");
    two.stop().unwrap();
    assert_eq!(of_the_process(), before);
}
