//! Host of a ring's front: the disk's queue, epoll, the log and the metrics.

use super::RingPlace;
use super::peer::RingPeer;
use super::queue::GuestQueue;
use crate::export::Export;
use crate::host::HostBase;
use crate::metrics::StageTimes;
use crate::shared::Shared;
use forebay::{PlugGuard, SubmitErrorKind};
use forebay_front::blk::BlkHost;
use forebay_front::{Closed, Failed, Host, Interest, Io, Key, Parts, Stage};
use forebay_vhost_user::{GuestData, GuestMemory, RingError, signal};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Event data of descriptors. That of a kick is the key of its client.
pub(super) const OF_INBOX: u64 = u64::MAX;
pub(super) const OF_QUEUE: u64 = u64::MAX - 1;

/// The host of a ring's front.
pub(super) struct RingHost {
    queue: GuestQueue,
    /// Index of the next available entry when the ring stopped.
    base: u16,
    place: Arc<RingPlace>,
    export: Arc<Export>,
    times: Arc<StageTimes>,
    common: HostBase,
}

impl fmt::Debug for RingHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingHost").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl RingHost {
    pub(super) fn new(shared: Arc<Shared>, place: Arc<RingPlace>, epoll: OwnedFd) -> RingHost {
        let export = shared.exports.get(place.export);
        RingHost {
            queue: GuestQueue::new(
                &export.disk,
                shared.register_memory,
                Arc::clone(&place.counters),
            ),
            base: 0,
            times: shared.counters.times(place.export),
            export,
            place,
            common: HostBase::new(shared, epoll),
        }
    }

    /// Returns the parts that do not depend on the protocol.
    pub(super) fn common(&self) -> &HostBase {
        &self.common
    }

    /// Records that the descriptor of the queue was reported.
    pub(super) fn note_readable(&mut self) {
        self.queue.note_readable();
    }

    /// Registers the descriptor of the queue at epoll, unless it is registered. Returns whether it
    /// is registered now.
    pub(super) fn watch_queue(&mut self) -> bool {
        self.queue.watch(&self.common, OF_QUEUE)
    }

    /// Returns the index of the next available entry of the ring that was closed last.
    pub(super) fn base(&self) -> u16 {
        self.base
    }

    pub(super) fn set_base(&mut self, base: u16) {
        self.base = base;
    }

    /// Registers the memory of the guest, with `--register-memory`. Logs the first refusal of a
    /// connection.
    pub(super) fn register(&mut self, memory: &Rc<GuestMemory>) {
        let Some(why) = self.queue.register(memory) else { return };
        if !self.place.refusal.swap(true, Ordering::Relaxed) {
            let export = &self.export.name;
            let ring = self.place.ring;
            let line = format_args!(
                "export {export:?}: ring {ring}: memory of the guest is not registered, and its \
                 I/O continues without registration: {why}"
            );
            self.common.warn(forebay::now_ns(), line);
        }
    }

    /// Ends the registration of memory that is not used any more.
    #[inline]
    pub(super) fn release_unused(&mut self) {
        self.queue.release_unused();
    }

    /// Forgets requests whose submission has panicked, unless I/O is in flight.
    pub(super) fn forget_lost(&mut self) {
        self.queue.forget_lost();
    }

    /// Reports a ring that could not be started.
    pub(super) fn refused(&self, error: &RingError, err: Option<OwnedFd>) {
        if let Some(err) = err {
            signal(err);
        }
        self.log_stop(&error.to_string(), forebay::now_ns());
    }

    fn log_stop(&self, why: &str, now_ns: u64) {
        let (ring, export) = (self.place.ring, &self.export.name);
        let line = format_args!(
            "export {export:?}: ring {ring} stops: {why}: restart the guest, or reset its driver"
        );
        self.common.warn(now_ns, line);
    }
}

impl Host for RingHost {
    type Memory = GuestData;
    type Peer = RingPeer;
    type Completion = Parts<GuestData>;
    type Plug = PlugGuard;

    #[inline]
    fn plug(&mut self) -> PlugGuard {
        forebay::plug()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        forebay::now_ns()
    }

    #[inline(always)]
    fn submit(
        &mut self,
        _peer: &RingPeer,
        _export: usize,
        io: Io<GuestData>,
        now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<GuestData>)> {
        let origin = self.export.tenant.origin_of(&self.place.submitter);
        self.queue.submit(io, origin, now_ns)
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Parts<GuestData>>, _now_ns: u64) {
        self.queue.reap(done);
    }

    #[inline]
    fn parts(completion: Parts<GuestData>) -> Parts<GuestData> {
        completion
    }

    #[inline]
    fn wants_reap(&self) -> bool {
        self.queue.wants_reap()
    }

    fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    fn is_busy_with(&self, _export: usize) -> bool {
        !self.queue.is_empty()
    }

    fn has_room(&self, _export: usize, nr: usize) -> bool {
        self.queue.has_room(nr)
    }

    /// Registers the ring's eventfd. Edge-triggered, so it need not be read: each signal is an
    /// event, and the counter stays as it is.
    fn watch(&mut self, peer: &mut RingPeer, key: Key, _interest: Interest) -> io::Result<()> {
        if !peer.is_watched {
            let data = EventData::new_u64(key.to_u64());
            epoll::add(
                self.common.epoll(),
                peer.ring.kick(),
                data,
                EventFlags::IN | EventFlags::ET,
            )?;
            peer.is_watched = true;
        }
        Ok(())
    }

    #[inline]
    fn record(&mut self, _export: usize, stage: Stage, ns: u64, nr: u64) {
        self.times.record(stage, ns, nr);
    }

    fn panicked(&mut self, _panic: Box<dyn Any + Send>) {
        self.common.count_panic();
    }

    fn failed(&mut self, _peer: &RingPeer, failed: &Failed<'_>, now_ns: u64) {
        let &Failed { kind, offset, len, why, .. } = failed;
        let (ring, export) = (self.place.ring, &self.export.name);
        let line = format_args!(
            "export {export:?}: ring {ring}: {kind:?} at {offset}, {len} bytes, failed: {why}"
        );
        self.common.warn(now_ns, line);
    }

    fn closed(&mut self, peer: &mut RingPeer, closed: &Closed<'_>, now_ns: u64) {
        // After a panic, answers may be left that were not published, or not notified.
        peer.ring.notify();
        self.base = peer.ring.next_available();
        if peer.is_watched {
            // Other processes keep the eventfd open, so closing it here would not unregister it.
            let _ = epoll::delete(self.common.epoll(), peer.ring.kick());
        }
        if let Some(ending) = closed.ending.filter(|ending| ending.is_at_once()) {
            peer.ring.report_error();
            self.log_stop(ending.why(), now_ns);
        }
    }
}

impl BlkHost for RingHost {
    fn broken(&mut self, peer: &mut RingPeer, why: &str, now_ns: u64) {
        peer.ring.report_error();
        self.log_stop(why, now_ns);
    }
}
