//! A worker: one thread that serves its share of the connections, on all exports.
//!
//! It works in rounds. A round takes everything that is readable, from all of its connections, and
//! submits it within one plug, so that what came together is merged and goes to the disk together;
//! then it collects what has completed, and each connection's replies leave in one vectored write.
//! Nothing in a round waits for a client, and what a client has yet to take is memory, not a tag.
//!
//! - `input`: bytes become requests; `negotiate`: the handshake;
//! - `disks`: requests become bios; `payload`: those of writes, `waves`: large reads, in pieces;
//!   `cache`: reads ahead of their use, below all others;
//! - `ends`: completions become replies;
//! - `output`: replies become bytes; `flush`: they are sent, and what is over is closed;
//! - `gather`: how long to let requests gather;
//! - `status`: what a range consists of is asked elsewhere;
//! - `door`: where new connections come in; `life`: how they begin and end; `timer`: when to look
//!   at deadlines.

mod cache;
mod conn;
mod disks;
pub(crate) mod door;
#[cfg(test)]
mod driven;
mod ending;
mod ends;
mod flush;
mod gather;
mod input;
mod life;
mod negotiate;
mod output;
mod payload;
mod slots;
pub(crate) mod status;
mod timer;
mod waves;

use self::conn::Conn;
use self::disks::Disks;
use self::door::Door;
use self::gather::Gather;
use self::slots::{Key, MARK_SHIFT, Slots};
use self::status::Asker;
use self::timer::Timer;
use crate::metrics::WorkerCounters;
use crate::server::Shared;
use forebay::{Completion, now_ns};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What the events of other descriptors than connections carry.
const OF_DOOR: u64 = u64::MAX;
const OF_TIMER: u64 = u64::MAX - 1;
const OF_QUEUE: u64 = 1 << MARK_SHIFT;

/// How often one round collects, answers and goes on with what had to wait. Where there is more to
/// be done, everybody's sockets are looked at in between: a client that has sent thousands of
/// requests at once keeps no other waiting until the last of them.
const TURNS_IN_A_ROUND: u32 = 4;

/// After so many looks of the timer without a request, memory that nobody uses is given up.
const IDLE_TICKS: u32 = 4;

/// One thread of the server.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    door: Arc<Door>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    conns: Slots<Box<Conn>>,
    disks: Disks,
    counters: Arc<WorkerCounters>,
    /// Where connections' bytes are received.
    scratch: Vec<u8>,
    /// Bytes that were received and have to wait, of all connections.
    rest_bytes: usize,
    /// Completions on their way to become replies.
    done: Vec<Completion>,
    /// Connections that something has happened to in this round.
    dirty: Vec<Key>,
    /// Connections that wait for memory, the disk, or their client; who waits longest first.
    waiting: VecDeque<Key>,
    /// Connections that have decrypted bytes left, of which no descriptor tells.
    again: Vec<Key>,
    /// The round has ended before everything that could be done was.
    is_unfinished: bool,
    /// Those in their handshake, oldest first; some may be further meanwhile, or gone.
    in_handshake: VecDeque<Key>,
    /// How many connections have a deadline, at least.
    nr_deadlines: usize,
    /// For deadlines, and for memory: a wait for events itself has no end.
    timer: Timer,
    nr_idle_ticks: u32,
    gather: Gather,
    /// When completions were last collected, ns.
    ended_ns: u64,
    is_stopping: bool,
}

impl Worker {
    /// What a worker waits at: made before its thread is, so that a failure is told to who starts
    /// it.
    ///
    /// # Errors
    /// The system's, where there is no room for a descriptor.
    pub(crate) fn epoll(door: &Door) -> std::io::Result<(OwnedFd, Timer)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, door.fd(), EventData::new_u64(OF_DOOR), EventFlags::IN)?;
        let timer = Timer::new()?;
        epoll::add(&epoll, timer.fd(), EventData::new_u64(OF_TIMER), EventFlags::IN)?;
        Ok((epoll, timer))
    }

    /// A worker that has begun nothing yet. It stays on the thread that makes it.
    pub(crate) fn new(
        shared: Arc<Shared>,
        door: Arc<Door>,
        asker: Arc<Asker>,
        (epoll, timer): (OwnedFd, Timer),
    ) -> Worker {
        let asks = (asker, Arc::clone(&door));
        Worker {
            disks: Disks::new(Arc::clone(&shared.exports), asks, shared.budget),
            counters: shared.counters.worker(),
            shared,
            door,
            epoll,
            events: Vec::with_capacity(256),
            conns: Slots::new(),
            scratch: vec![0; input::SCRATCH_LEN],
            rest_bytes: 0,
            done: Vec::new(),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            again: Vec::new(),
            is_unfinished: false,
            in_handshake: VecDeque::new(),
            nr_deadlines: 0,
            timer,
            nr_idle_ticks: 0,
            gather: Gather::new(),
            ended_ns: 0,
            is_stopping: false,
        }
    }

    /// Serves until it is told to stop and everything has ended.
    pub(crate) fn run(mut self) {
        // With the usual slack a sleep of a few microseconds takes more than fifty.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !(self.is_stopping && self.conns.len() == 0) {
            self.wait();
            self.round();
        }
    }

    /// Waits until something has happened.
    fn wait(&mut self) {
        let pool = &self.disks.pool;
        let is_timed = self.nr_deadlines > 0 || pool.keeps_any() || pool.is_short();
        if is_timed || self.is_stopping {
            self.timer.arm();
        }
        self.let_gather();
        let at_once = Timespec::default();
        let timeout = (self.is_unfinished || !self.again.is_empty()).then_some(&at_once);
        self.events.clear();
        let into = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, into, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => unreachable!("epoll_wait on descriptors of our own: {error}"),
        }
        self.disks.now_ns = now_ns();
    }

    /// Sleeps while the clients are busy with what they have got, unless there is something to do.
    #[inline]
    fn let_gather(&mut self) {
        let nr = self.disks.take_nr_begun();
        let is_quiet = self.again.is_empty()
            && self.waiting.is_empty()
            && !self.is_stopping
            && !self.disks.is_busy();
        let pause_ns = if is_quiet && nr > 0 { self.gather.pause_ns(nr) } else { 0 };
        if pause_ns > 0 {
            // It returns early on a signal, which is as well.
            let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns as i64 };
            let _ = rustix::thread::nanosleep(&pause);
        }
    }

    /// Serves everything that has happened.
    fn round(&mut self) {
        {
            let _plug = forebay::plug();
            let events = std::mem::take(&mut self.events);
            for event in &events {
                match event.data.u64() {
                    OF_DOOR => self.open_door(),
                    OF_TIMER => self.tick(),
                    queue if queue >> MARK_SHIFT != 0 => {
                        self.disks.told((queue & !OF_QUEUE) as usize);
                    }
                    conn => {
                        let key = Key::of_u64(conn);
                        self.guard(key, |worker| worker.look_at(key, event.flags));
                    }
                }
            }
            self.events = events;
            for key in std::mem::take(&mut self.again) {
                self.guard(key, |worker| worker.receive(key));
            }
        }
        self.is_unfinished = true;
        for _ in 0..TURNS_IN_A_ROUND {
            let mut moved = self.reap();
            self.flush();
            if !self.waiting.is_empty() {
                let _plug = forebay::plug();
                moved |= self.resume();
            }
            let may_go_on = moved && !self.waiting.is_empty();
            if !may_go_on && self.dirty.is_empty() && !self.disks.has_ended() {
                self.is_unfinished = false;
                break;
            }
        }
        self.read_ahead();
    }

    /// Looks at what a client has sent. A panic meanwhile would be a fault of ours that it has
    /// found: it ends this connection, and is counted, and the others go on. (Memory of the pool
    /// that the call had in its hands is lost to it.)
    #[inline]
    fn guard<R: Default>(&mut self, key: Key, look: impl FnOnce(&mut Worker) -> R) -> R {
        catch_unwind(AssertUnwindSafe(|| look(self))).unwrap_or_else(|_| {
            self.shared.counters.server().panics.count();
            if let Some(conn) = self.conns.get_mut(key) {
                conn.break_off("the server has a fault, which this client has found".to_owned());
            }
            // At once: what it has counted may be wrong, so nothing more may end for it.
            self.close(key);
            R::default()
        })
    }

    /// A connection's socket is readable, or takes more.
    fn look_at(&mut self, key: Key, flags: EventFlags) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            let Some(conn) = self.conns.get_mut(key) else { return };
            if conn.may_read() {
                return self.receive(key);
            }
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                conn.break_off("the client is gone".to_owned());
            }
        }
        self.mark_dirty(key);
    }

    /// Puts a connection on the list of those to be looked at before the round ends.
    #[inline]
    fn mark_dirty(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.is_dirty, true)
        {
            self.dirty.push(key);
        }
    }
}

#[cfg(test)]
mod tests;
