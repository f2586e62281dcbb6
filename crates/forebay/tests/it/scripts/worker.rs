//! The threads of a script.
//!
//! A thread has one queue on each disk that it has used. While contexts are left, the queue owns a
//! context, which opens the file when the thread first uses the disk.

use crate::scripts::PAGE;
use crate::scripts::oracle::content;
use forebay::{BioQueue, BlockStatus, Completion, Disk, Io};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Command of an I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Write { page: u64, value: u64 },
    WriteFua { page: u64, value: u64 },
    WritePreflush { page: u64, value: u64 },
    Flush,
    Fsync,
    FlushUpTo(u64),
}

impl Kind {
    fn io(self) -> Io {
        let write = |page: u64, value| Io::write(content(value), page * PAGE as u64);
        match self {
            Kind::Write { page, value } => write(page, value),
            Kind::WriteFua { page, value } => write(page, value).fua(),
            Kind::WritePreflush { page, value } => write(page, value).preflush(),
            Kind::Flush => Io::flush(),
            Kind::Fsync => Io::fsync(),
            Kind::FlushUpTo(point) => Io::flush_up_to(point),
        }
    }

    /// Returns the page that this I/O writes, and the value.
    pub(crate) fn written(self) -> Option<(u64, u64)> {
        match self {
            Kind::Write { page, value }
            | Kind::WriteFua { page, value }
            | Kind::WritePreflush { page, value } => Some((page, value)),
            Kind::Flush | Kind::Fsync | Kind::FlushUpTo(_) => None,
        }
    }
}

/// A completed I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) kind: Kind,
    pub(crate) result: Result<u64, BlockStatus>,
    /// Durable point of a write; 0 for other I/Os.
    pub(crate) point: u64,
}

enum Order {
    /// Submits I/Os on the disk with this number.
    Batch { number: usize, disk: Disk, kinds: Vec<Kind>, is_plugged: bool },
    /// Drops the queue on the disk with this number.
    Close(usize),
}

/// A thread of a script.
pub(crate) struct Worker {
    /// Unique in a script.
    pub(crate) number: u64,
    orders: Option<Sender<Order>>,
    ended: Receiver<Vec<Ended>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(number: u64) -> Worker {
        let ((orders, taken), (done, ended)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            let mut queues = HashMap::new();
            for order in taken {
                let answer = match order {
                    Order::Close(number) => {
                        queues.remove(&number);
                        Vec::new()
                    }
                    Order::Batch { number, disk, kinds, is_plugged } => {
                        let queue = queues.entry(number).or_insert_with(|| disk.queue());
                        batch(queue, &kinds, is_plugged)
                    }
                };
                // After a failure the script no longer receives.
                let _ = done.send(answer);
            }
        });
        Worker { number, orders: Some(orders), ended, thread: Some(thread) }
    }

    fn send(&self, order: Order) {
        self.orders.as_ref().expect("it runs").send(order).expect("it runs");
    }

    /// Submits I/Os. The caller then calls [`Worker::ended`].
    pub(crate) fn begin(&self, number: usize, disk: &Disk, kinds: Vec<Kind>, is_plugged: bool) {
        self.send(Order::Batch { number, disk: disk.clone(), kinds, is_plugged });
    }

    /// Waits until the I/Os have completed.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        self.ended.recv().expect("no panic")
    }

    /// Drops the queue on a disk, and waits until it is dropped.
    pub(crate) fn close(&self, number: usize) {
        self.send(Order::Close(number));
        self.ended();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

fn batch(queue: &mut BioQueue, kinds: &[Kind], is_plugged: bool) -> Vec<Ended> {
    let plug = is_plugged.then(forebay::plug);
    for (nth, kind) in (0..).zip(kinds) {
        queue.submit(kind.io().user_data(nth)).expect("room");
    }
    drop(plug);
    let mut done = Vec::new();
    while done.len() < kinds.len() {
        queue.reap(1, usize::MAX, &mut done);
    }
    let ended = |done: Completion| Ended {
        kind: kinds[done.user_data as usize],
        result: done.result,
        point: done.durable_point,
    };
    done.into_iter().map(ended).collect()
}

/// Makes a blocking call on the calling thread. (There is no blocking write with a preflush: it
/// becomes a plain write.)
pub(crate) fn call(disk: &Disk, kind: Kind) -> Ended {
    let offset = |page: u64| page * PAGE as u64;
    let (kind, result, point) = match kind {
        Kind::Write { page, value } | Kind::WritePreflush { page, value } => {
            let result = disk.write_at(&content(value), offset(page));
            (Kind::Write { page, value }, result, disk.durable_point())
        }
        Kind::WriteFua { page, value } => {
            (kind, disk.write_durable_at(&content(value), offset(page)), disk.durable_point())
        }
        Kind::Flush => (kind, disk.flush().map(|()| 0), 0),
        Kind::Fsync => (kind, disk.fsync().map(|()| 0), 0),
        Kind::FlushUpTo(point) => (kind, disk.durable(point).wait().map(|()| 0), 0),
    };
    let status = |error| match error {
        forebay::IoError::Ended(status) => status,
        error => panic!("{kind:?} is refused: {error}"),
    };
    Ended { kind, result: result.map(|moved| moved as u64).map_err(status), point }
}
