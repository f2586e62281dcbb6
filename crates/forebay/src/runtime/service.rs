//! A thread that makes progress on a disk when nobody else is inside (`service=on`).
//!
//! It is the leader of the shared context, for ever: it waits in the driver, and everybody else
//! follows. Submitters still turn the context themselves.

use crate::driver::Waiter;
use crate::runtime::hctx::now_ns;
use crate::runtime::shared::{SHARED, Shared};
use crate::runtime::wait::RESOURCE_DELAY;
use forebay_core::Commit;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Starts the thread. It ends when the disk is closed: whoever closes it kicks.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    // The first leader: nobody else knows of the disk yet.
    let leads = shared.hctx(SHARED).run.try_lead();
    assert!(leads, "a new disk has no leader");
    let (weak, waiter) = (Arc::downgrade(shared), shared.waiter_handle());
    let builder = std::thread::Builder::new().name(String::from("forebay-service"));
    builder.stack_size(256 * 1024).spawn(move || serve(&weak, &*waiter))
}

fn serve(weak: &Weak<Shared>, waiter: &dyn Waiter) {
    loop {
        let timeout = {
            let Some(shared) = weak.upgrade() else { return };
            let iostats = shared.info().policy.iostats;
            let hctx = shared.hctx(SHARED);
            let mut timeout = None;
            match hctx.run() {
                Some(mut token) => loop {
                    let turned = token.turn(now_ns(iostats), Commit::Now, None, None);
                    let is_stuck = turned.work_left && turned.nr_in_flight == 0;
                    timeout = is_stuck.then_some(RESOURCE_DELAY);
                    match token.release_to_wait() {
                        Some(kept) => token = kept,
                        None => break,
                    }
                },
                None => {
                    std::thread::yield_now();
                    hctx.run.block();
                }
            }
            timeout
        };
        waiter.wait(timeout);
        // Where the disk is being closed, nobody looks at its run state any more.
        let Some(shared) = weak.upgrade() else { return };
        shared.hctx(SHARED).run.unblock();
    }
}
