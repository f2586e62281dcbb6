//! Test of a wait for a queue of the shared context, by a thread that owns a context as well.

use super::QueueReaper;
use crate::queue::BioQueue;
use crate::runtime::gates::Hold;
use crate::runtime::plug::plug;
use crate::runtime::thread::shared_ctx_of;
use crate::{Buf, Disk, Io};
use forebay_core::wait::Reaper;
use forebay_core::{Commit, Gate};
use std::sync::Arc;

/// A freeze begins between the turn that issues the read of the shared queue and the wait. The read
/// is of cached data, so its commit completes it, and the wait is over at once. If the commit or
/// the test of the goal is missing, the thread waits for the other read first.
#[test]
fn wait_beside_a_freeze_commits_and_ends_before_the_requests_of_the_owned_context() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![1; 1 << 20]).expect("room for a scratch file");
    let rule = "rule=read:delay=3s:range=524288+4096";
    let spec = format!("fault:{}?nr_hw_queues=2&{rule}", path.display());
    let disk = Disk::open(&spec).expect("a good spec");
    let shared = &disk.shared;
    let mut owned = BioQueue::new(Arc::clone(shared));
    let mut queue = BioQueue::on(Arc::clone(shared), shared_ctx_of(shared));
    owned.submit(Io::read(Buf::new(4096), 524_288)).expect("a good read");
    let plugged = plug();
    queue.submit(Io::read(Buf::new(4096), 0)).expect("a good read");
    let mut reaper = QueueReaper(&queue);
    assert!(reaper.is_shared() && !QueueReaper(&owned).is_shared());
    reaper.unplug();
    reaper.turn(Commit::Later).expect("no other thread has the token");
    reaper.take_mail();
    assert_eq!(reaper.nr_ready(), 0, "the read is issued and not committed");
    let hold = Hold::new(shared, Gate::Frozen);
    reaper.wait(1);
    reaper.take_mail();
    assert_eq!(reaper.nr_ready(), 1);
    assert_eq!(owned.reap(0, 9, &mut Vec::new()), 0, "the wait included the other read");
    drop(hold);
    drop(plugged);
    assert_eq!(queue.reap(1, 9, &mut Vec::new()), 1);
    assert_eq!(owned.reap(1, 9, &mut Vec::new()), 1);
}
