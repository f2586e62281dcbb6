//! Worker: one thread that serves its share of the connections, on all exports.
//!
//! It works in rounds. A round reads all readable connections and submits their requests within one
//! plug, so that requests that arrive together are merged and reach the disk together. Then it
//! reaps completions, and sends the replies of each connection in one vectored write. A round never
//! waits for a client; replies that a client has not read yet hold memory, but no tag.
//!
//! - `input`: parses bytes to requests; `negotiate`: the handshake;
//! - `disks`: turns requests into bios, large ones in pieces; read-ahead, with the lowest priority;
//!   threads that answer BLOCK_STATUS;
//! - `payload`: progress of a write whose data are being received;
//! - `completions`: turns completions into replies;
//! - `output`: queues replies; `flush`: sends them, and closes connections that are over;
//! - `coalesce`: coalesces requests of deep clients;
//! - `inbox`: new connections and answers; `lifecycle`: accepts, evicts and closes them; `timer`:
//!   deadlines.

mod coalesce;
mod completions;
mod conn;
pub(crate) mod disks;
#[cfg(test)]
mod driven;
mod ending;
mod flush;
pub(crate) mod inbox;
mod input;
mod lifecycle;
mod negotiate;
mod output;
mod payload;
mod slots;
mod timer;

use self::coalesce::Coalesce;
use self::conn::Conn;
use self::disks::Disks;
use self::disks::status::BlockStatusThreads;
use self::inbox::Inbox;
use self::slots::{Key, MARK_SHIFT, Slots};
use self::timer::Timer;
use crate::metrics::WorkerCounters;
use crate::shared::Shared;
use forebay::{Completion, now_ns};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Event data of descriptors other than those of connections.
const OF_INBOX: u64 = u64::MAX;
const OF_TIMER: u64 = u64::MAX - 1;
const OF_QUEUE: u64 = 1 << MARK_SHIFT;

/// Number of times that one round reaps, replies, and resumes waiting requests. If more is left,
/// the worker polls all sockets before it continues: a client with thousands of requests must not
/// delay the others.
const TURNS_IN_A_ROUND: u32 = 4;

/// After this many ticks without a request, the worker frees unused memory.
const IDLE_TICKS: u32 = 4;

/// Capacity of the list of completions, before it grows.
const NR_DONE_USUAL: usize = 256;

/// Worker thread of the server.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    conns: Slots<Box<Conn>>,
    disks: Disks,
    counters: Arc<WorkerCounters>,
    /// Receive buffer of all connections.
    scratch: Vec<u8>,
    /// Sum of the bytes in the `rest` of all connections.
    rest_bytes: usize,
    /// Completions that are not turned into replies yet.
    done: Vec<Completion>,
    /// Connections that have to be flushed in this round.
    dirty: Vec<Key>,
    /// Connections that wait for memory, for the disk, or for their client, the oldest first.
    waiting: VecDeque<Key>,
    /// Connections with decrypted bytes left, which no descriptor reports.
    again: Vec<Key>,
    /// The round has ended although more could be done.
    is_unfinished: bool,
    /// Connections in their handshake, the oldest first; some may have left it, or be closed.
    in_handshake: VecDeque<Key>,
    /// Upper bound of the number of connections with a deadline.
    nr_deadlines: usize,
    /// Timer for deadlines and for freeing memory: waits for events have no timeout.
    timer: Timer,
    nr_idle_ticks: u32,
    coalesce: Coalesce,
    /// Time of the last reap, ns.
    ended_ns: u64,
    is_stopping: bool,
}

impl Worker {
    /// Creates the epoll descriptor and the timer of a worker. They are created before its thread,
    /// so that the caller gets the error.
    ///
    /// # Errors
    /// Returns the error of the system call, such as a lack of descriptors.
    pub(crate) fn epoll(inbox: &Inbox) -> std::io::Result<(OwnedFd, Timer)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, inbox.fd(), EventData::new_u64(OF_INBOX), EventFlags::IN)?;
        let timer = Timer::new()?;
        epoll::add(&epoll, timer.fd(), EventData::new_u64(OF_TIMER), EventFlags::IN)?;
        Ok((epoll, timer))
    }

    /// Creates a worker. It must stay on this thread.
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        block_status: Arc<BlockStatusThreads>,
        (epoll, timer): (OwnedFd, Timer),
    ) -> Worker {
        let asks = (block_status, Arc::clone(&inbox));
        Worker {
            disks: Disks::new(Arc::clone(&shared.exports), asks, shared.budget),
            counters: shared.counters.worker(),
            shared,
            inbox,
            epoll,
            events: Vec::with_capacity(256),
            conns: Slots::new(),
            scratch: vec![0; input::SCRATCH_LEN],
            rest_bytes: 0,
            done: Vec::with_capacity(NR_DONE_USUAL),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            again: Vec::new(),
            is_unfinished: false,
            in_handshake: VecDeque::new(),
            nr_deadlines: 0,
            timer,
            nr_idle_ticks: 0,
            coalesce: Coalesce::new(),
            ended_ns: 0,
            is_stopping: false,
        }
    }

    /// Runs until the worker must stop and all connections are closed.
    pub(crate) fn run(mut self) {
        // With the default timer slack, a sleep of a few microseconds takes more than fifty.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !(self.is_stopping && self.conns.len() == 0) {
            self.wait();
            self.round();
        }
    }

    /// Waits for events.
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

    /// Sleeps for a moment, so that clients can send more requests, unless there is work to do.
    #[inline]
    fn let_gather(&mut self) {
        let nr = self.disks.take_nr_begun();
        let is_quiet = self.again.is_empty()
            && self.waiting.is_empty()
            && !self.is_stopping
            && !self.disks.is_busy();
        let pause_ns = if is_quiet && nr > 0 { self.coalesce.pause_ns(nr) } else { 0 };
        if pause_ns > 0 {
            // A signal ends the sleep early, which does no harm.
            let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns as i64 };
            let _ = rustix::thread::nanosleep(&pause);
        }
    }

    /// Handles all events.
    fn round(&mut self) {
        {
            let _plug = forebay::plug();
            let events = std::mem::take(&mut self.events);
            for event in &events {
                match event.data.u64() {
                    OF_INBOX => self.open_door(),
                    OF_TIMER => self.tick(),
                    queue if queue >> MARK_SHIFT != 0 => {
                        self.disks.note_readable((queue & !OF_QUEUE) as usize);
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

    /// Calls `look` for a connection and catches a panic, which would be a bug in the server. The
    /// panic is counted and ends this connection; the others go on. (Pool memory that the call held
    /// is lost.)
    #[inline]
    fn guard<R: Default>(&mut self, key: Key, look: impl FnOnce(&mut Worker) -> R) -> R {
        catch_unwind(AssertUnwindSafe(|| look(self))).unwrap_or_else(|_| {
            self.shared.counters.server().panics.count();
            if let Some(conn) = self.conns.get_mut(key) {
                conn.break_off("internal error while serving this client".to_owned());
            }
            // Close at once: its counters may be wrong, so nothing more of it may be counted.
            self.close(key);
            R::default()
        })
    }

    /// Handles an event of a connection: its socket is readable or writable, or has an error.
    fn look_at(&mut self, key: Key, flags: EventFlags) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            let Some(conn) = self.conns.get_mut(key) else { return };
            if conn.may_read() {
                return self.receive(key);
            }
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                conn.break_off("the client has gone".to_owned());
            }
        }
        self.mark_dirty(key);
    }

    /// Adds a connection to the `dirty` list, which is flushed before the round ends.
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
