//! The host of a worker's front: the simulated disk, virtual time, and the transport of a protocol.

use super::context::Context;
use super::disk::Disk;
use super::memory::Memory;
use forebay_core::SubmitErrorKind;
use forebay_front::{Closed, Failed, Host, Interest, Io, Key, Parts, Peer, Stage};
use std::any::Any;
use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::panic::resume_unwind;
use std::rc::Rc;

/// The transport of a protocol: everything between its clients and the server.
pub(crate) trait Transport: Debug {
    /// Memory of a read or a write.
    type Memory: Memory;
    /// The server's end of a connection.
    type Peer: Peer;

    /// Returns whether an event reports something of a client of this worker.
    fn has_event(&self, worker: usize) -> bool;

    /// Records the events for which the front watches a client.
    fn watch(&mut self, peer: &Self::Peer, key: Key, interest: Interest, cx: &mut Context);

    /// Records an I/O that the front submits.
    fn submits(&mut self, worker: usize, io: &Io<Self::Memory>, cx: &mut Context);

    /// Records that a worker is about to reap completions.
    fn reaps(&mut self, worker: usize, cx: &mut Context);

    /// Records that a request has failed.
    fn failed(&mut self, peer: &Self::Peer, failed: &Failed<'_>);

    /// Records that a client is closed.
    fn closed(&mut self, peer: &Self::Peer, closed: &Closed<'_>, cx: &mut Context);
}

/// State behind the hosts of all fronts, which the world shares.
#[derive(Debug)]
pub(crate) struct Outside<T: Transport> {
    pub(crate) cx: Context,
    pub(crate) disk: Disk<T::Memory>,
    pub(crate) transport: T,
}

/// An [`Outside`], as the fronts' hosts and the world share it.
pub(crate) type SharedOutside<T> = Rc<RefCell<Outside<T>>>;

/// The host of one worker.
#[derive(Debug)]
pub(crate) struct SimHost<T: Transport> {
    pub(crate) outside: SharedOutside<T>,
    pub(crate) worker: usize,
}

impl<T: Transport> SimHost<T> {
    pub(crate) fn new(outside: &SharedOutside<T>, worker: usize) -> SimHost<T> {
        SimHost { outside: Rc::clone(outside), worker }
    }

    fn disk<R>(&self, look: impl FnOnce(&Disk<T::Memory>) -> R) -> R {
        look(&self.outside.borrow().disk)
    }
}

/// An open plug of a worker.
pub(crate) struct SimPlug<T: Transport> {
    outside: SharedOutside<T>,
    worker: usize,
}

impl<T: Transport> Drop for SimPlug<T> {
    fn drop(&mut self) {
        // A panic may have left the core in the middle of a step.
        if !std::thread::panicking() {
            let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
            disk.unplug(self.worker, cx);
        }
    }
}

impl<T: Transport> Host for SimHost<T> {
    type Memory = T::Memory;
    type Peer = T::Peer;
    type Completion = Parts<T::Memory>;
    type Plug = SimPlug<T>;

    fn plug(&mut self) -> SimPlug<T> {
        self.outside.borrow_mut().disk.plug(self.worker);
        SimPlug { outside: Rc::clone(&self.outside), worker: self.worker }
    }

    fn now_ns(&self) -> u64 {
        self.outside.borrow().cx.server_ns()
    }

    fn submit(
        &mut self,
        _peer: &T::Peer,
        export: usize,
        io: Io<T::Memory>,
        _now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<T::Memory>)> {
        assert_eq!(export, 0, "clients use the first export only");
        let Outside { cx, disk, transport } = &mut *self.outside.borrow_mut();
        transport.submits(self.worker, &io, cx);
        disk.submit(self.worker, io, cx)
    }

    fn reap(&mut self, done: &mut Vec<Parts<T::Memory>>, _now_ns: u64) {
        let Outside { cx, disk, transport } = &mut *self.outside.borrow_mut();
        transport.reaps(self.worker, cx);
        // While the server works, time passes for the device too.
        while let Some(tag) = cx.take_done(self.worker) {
            disk.done(self.worker, tag, cx);
        }
        disk.reap(self.worker, cx, done);
    }

    fn parts(completion: Parts<T::Memory>) -> Parts<T::Memory> {
        completion
    }

    fn wants_reap(&self) -> bool {
        let Outside { cx, disk, .. } = &*self.outside.borrow();
        disk.has_ended(self.worker) || cx.peek_done(self.worker).is_some()
    }

    fn is_busy(&self) -> bool {
        self.disk(|disk| disk.len(self.worker) > 0)
    }

    fn is_busy_with(&self, export: usize) -> bool {
        export == 0 && self.is_busy()
    }

    fn has_room(&self, _export: usize, nr: usize) -> bool {
        self.disk(|disk| disk.has_room(self.worker, nr))
    }

    fn watch(&mut self, peer: &mut T::Peer, key: Key, interest: Interest) -> io::Result<()> {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        transport.watch(peer, key, interest, cx);
        Ok(())
    }

    fn record(&mut self, _export: usize, _stage: Stage, _ns: u64, _nr: u64) {}

    /// Passes the panic on: the core's assertions, and the front's, are checkers.
    fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        resume_unwind(panic);
    }

    fn failed(&mut self, peer: &T::Peer, failed: &Failed<'_>, _now_ns: u64) {
        self.outside.borrow_mut().transport.failed(peer, failed);
    }

    fn closed(&mut self, peer: &mut T::Peer, closed: &Closed<'_>, _now_ns: u64) {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        transport.closed(peer, closed, cx);
    }
}
