//! A virtqueue between a driver and the server, and the server's end of it.
//!
//! The driver prepares requests and publishes them later: between its steps, or in the middle of a
//! round of the server, between any two calls of the session.

use super::memory::GuestMemory;
use super::met::Met;
use super::queue::{Fault, Queue, Used};
use super::rings::{Rings, SimRing};
use super::rules::X1;
use crate::check::{Verdict, broken};
use crate::server::{Context, Outside};
use forebay_front::blk::{Chain, Ring};
use forebay_front::{Peer, RequestKind};

impl SimRing {
    fn read<R>(&self, look: impl FnOnce(&Rings, &Queue) -> R) -> R {
        let outside = self.outside.borrow();
        look(&outside.transport, &outside.transport.queues[self.queue])
    }

    /// Calls `change` with the queue. A rule that it finds broken ends the run.
    fn change<R>(&self, change: impl FnOnce(&mut Queue, &mut Context) -> (Verdict, R)) -> R {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        let (verdict, result) = change(&mut transport.queues[self.queue], cx);
        transport.note(verdict);
        result
    }
}

impl Peer for SimRing {
    fn begin(&mut self, _kind: RequestKind) {
        self.nr_open += 1;
    }

    fn end(&mut self, _kind: RequestKind, _bytes: u64) {
        self.nr_open -= 1;
    }

    fn fail(&mut self) {
        self.nr_open -= 1;
    }

    fn set_export(&mut self, _export: usize) {}

    fn say_goodbye(&mut self) {}
}

impl Ring for SimRing {
    type Memory = GuestMemory;
    type Error = String;

    fn features(&self) -> u64 {
        self.read(|_, queue| queue.features)
    }

    fn write_cache(&self) -> bool {
        self.read(|rings, _| rings.write_cache)
    }

    fn is_enabled(&self) -> bool {
        self.read(|_, queue| queue.is_enabled)
    }

    fn take(&mut self) -> Result<Option<Chain<GuestMemory>>, String> {
        self.change(|queue, cx| {
            queue.publish_in_round(cx);
            let verdict = queue.checks.uses("take");
            match queue.fault {
                Some(Fault::Jump) => return (verdict, queue.fail("the index jumps")),
                Some(Fault::Gone) => return (verdict, queue.fail("the memory is gone")),
                None => {}
            }
            let rq = queue.next();
            let is_notified = !queue.has_event_index && queue.is_kick_wanted;
            let verdict = verdict.and(queue.checks.takes(is_notified, rq.is_some()));
            let Some(rq) = rq else { return (verdict, Ok(None)) };
            if !rq.has_status {
                queue.checks.fails();
            }
            let (readable, writable) = (rq.readable.clone(), rq.writable.clone());
            let chain = Chain::new(rq.head, readable, writable, rq.has_status);
            queue.taken.push(rq);
            (verdict, Ok(Some(chain)))
        })
    }

    fn put(&mut self, head: u16, status: u8, written: u32) {
        self.change(|queue, cx| {
            if !queue.is_open(head) {
                let what = format!("no request with head {head} waits for an answer");
                return (broken(X1, what), ());
            }
            // `take` reports lost memory.
            match queue.fault {
                Some(Fault::Gone) => queue.drop_taken(head),
                _ => queue.add_used(Used { head, status, written }, cx.server_ns()),
            }
            (Ok(()), ())
        });
    }

    fn publish(&mut self) {
        self.outside.borrow_mut().transport.queues[self.queue].publish_used();
    }

    fn recycle(&mut self, _memory: GuestMemory) {}

    fn has_available(&self) -> bool {
        self.change(|queue, _| {
            let found = queue.has_available();
            queue.checks.looks(found);
            (Ok(()), found)
        })
    }

    fn disable_notifications(&mut self) {
        self.change(|queue, cx| {
            queue.publish_in_round(cx);
            queue.disable_kicks();
            (queue.checks.uses("disable_notifications"), ())
        });
    }

    fn enable_notifications(&mut self) -> Result<bool, String> {
        self.change(|queue, cx| {
            let verdict = queue.checks.uses("enable_notifications");
            let verdict = verdict.and_then(|()| queue.checks.enables());
            queue.publish_in_round(cx);
            if queue.fault == Some(Fault::Gone) {
                return (verdict, queue.fail("the memory is gone"));
            }
            queue.enable_kicks();
            let has_more = queue.has_available();
            if has_more {
                cx.note(Met::SecondLook, queue.id as u64, 0);
            }
            queue.publish_in_round(cx);
            (verdict, Ok(has_more))
        })
    }

    fn notify(&mut self) {
        self.publish();
        self.change(|queue, cx| {
            if queue.fault == Some(Fault::Gone) {
                queue.checks.loses_driver();
                return (Ok(()), ());
            }
            let verdict = queue.checks.notifies(cx.server_ns()).map(|is_in_round| {
                if is_in_round {
                    cx.note(Met::NotifyInRound, queue.id as u64, 0);
                }
            });
            queue.interrupt(cx);
            (verdict, ())
        });
    }
}
