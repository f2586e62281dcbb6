//! Thread of one request queue (ring) of a device.
//!
//! A ring has a thread, a front and a hardware context of the disk of its own, so rings share no
//! lock. The thread sleeps in epoll until the driver kicks the ring, the disk completes I/O, or the
//! message channel sends a command. Then it runs a round of its front ([`forebay_front::blk`]).
//!
//! - `host`: the host of the front: the disk's queue, epoll, the log; `peer`: the ring with its
//!   counters; `command`: the commands of other threads;
//! - `queue`: submits requests to the disk straight from the memory of the guest; `bounce`: copies
//!   of memory that the disk does not accept; `registered`: memory that the disk has registered.

mod bounce;
mod command;
mod host;
mod peer;
mod queue;
mod registered;

pub(crate) use self::command::ThreadCommand;
use self::host::{OF_INBOX, OF_QUEUE, RingHost};
use self::peer::RingPeer;
use crate::clients::SharedOwner;
use crate::host::{HostBase, thread_cpu_ns};
use crate::inbox::Inbox;
use crate::metrics::RingCounters;
use crate::shared::Shared;
use crate::sizes::NewSize;
use forebay::QueueLimits;
use forebay_front::blk::{BlkDisk, BlkFront, ID_LEN, SECTOR};
use forebay_front::{Host, Polling};
use forebay_vhost_user::{MAX_RANGE_SECTORS, Ring, RingCommand, RingSetup, WriteCache};
use rustix::event::epoll;
use rustix::time::Timespec;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;

/// Interval of a tick. Ticks are needed only while the server ends, or if the process had no
/// descriptor left for the queue.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Time after which a thread that has work, or polls, makes a system call, which reports commands
/// and kicks, ns.
/// A check of the ring's memory costs less.
const CALL_NS: u64 = 20_000;
/// Time after which a poll yields the processor between two checks of the ring, ns. Without the
/// yield, the client that this thread waits for could not run if there are more polling threads
/// than processors. If a processor is idle, a yield takes a fraction of a microsecond, during which
/// more requests gather.
const YIELD_AFTER_NS: u64 = 500;

/// Place of a ring: its export, its number, and what it shares with its device.
#[derive(Debug)]
pub(crate) struct RingPlace {
    /// Index of the export.
    pub(crate) export: usize,
    /// Index of the ring in its device.
    pub(crate) ring: u16,
    /// Serial number of the device, padded with zeroes.
    pub(crate) serial: [u8; ID_LEN],
    /// The write cache of the device.
    pub(crate) write_cache: Arc<WriteCache>,
    /// Whether a refusal to register memory was logged, for all rings of the device.
    pub(crate) refusal: Arc<AtomicBool>,
    /// The owner of the I/O of all rings of the device.
    pub(crate) submitter: Arc<SharedOwner>,
    /// Counters of this ring.
    pub(crate) counters: Arc<RingCounters>,
}

/// The thread of a ring.
pub(crate) struct RingWorker {
    inbox: Arc<Inbox<ThreadCommand>>,
    place: Arc<RingPlace>,
    events: Vec<epoll::Event>,
    front: BlkFront<RingHost>,
    /// Decides whether a wait polls before it sleeps.
    polling: Polling,
    /// Time of the last system call of a poll, ns.
    called_ns: u64,
    /// Whether other threads ran during the last yield. Then the next poll yields at once.
    others_run: bool,
    /// Receiver of the base of a ring that stops, until its last request is answered.
    stopping: Option<SyncSender<u16>>,
    is_closing: bool,
}

impl RingWorker {
    /// Creates the epoll descriptor of a ring, before its thread.
    ///
    /// # Errors
    /// Returns the error of the system call, such as a lack of descriptors.
    pub(crate) fn epoll(inbox: &Inbox<ThreadCommand>) -> std::io::Result<OwnedFd> {
        HostBase::epoll_of(inbox.fd(), OF_INBOX)
    }

    /// Creates the worker of a ring. It must stay on this thread.
    pub(crate) fn new(
        shared: Arc<Shared>,
        place: RingPlace,
        inbox: Arc<Inbox<ThreadCommand>>,
        epoll: OwnedFd,
    ) -> RingWorker {
        let export = shared.exports.get(place.export);
        let disk = BlkDisk {
            export: place.export,
            nr_sectors: shared.sizes.infos()[place.export].size_bytes / SECTOR,
            read_only: export.can.read_only,
            discards_to_zeroes: export.facts.discards_to_zeroes,
            serial: place.serial,
            ..ranges_of(export.disk.limits())
        };
        let place = Arc::new(place);
        let polling = Polling::new(shared.poll);
        let host = RingHost::new(shared, Arc::clone(&place), epoll);
        let front = BlkFront::blk(host, disk);
        let events = Vec::with_capacity(8);
        RingWorker {
            inbox,
            place,
            events,
            front,
            polling,
            called_ns: 0,
            others_run: false,
            stopping: None,
            is_closing: false,
        }
    }

    /// Runs until the worker must end and its ring has stopped.
    pub(crate) fn run(mut self) {
        // With the default timer slack, a short sleep of a disk's driver takes too long.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !(self.is_closing && self.front.has_drained()) {
            self.wait();
            self.round();
            self.front.host_mut().release_unused();
            self.answer_stop();
        }
    }

    /// Waits for events or requests.
    fn wait(&mut self) {
        // Ends the round. The pause itself is for socket clients: a ring is polled instead.
        self.front.pause_ns();
        let is_watched = self.front.host_mut().watch_queue();
        if self.front.is_unfinished() {
            return self.take_events(Some(&NO_TIME));
        }
        // Requests that a full batch has left need neither a wait nor a notification.
        if self.front.has_available() {
            return self.take_due_events();
        }
        let timeout = (self.front.wants_tick() || !is_watched).then_some(&TICK);
        if self.polling.is_off() {
            return self.sleep(timeout);
        }
        let (now_ns, nr_begun) = (forebay::now_ns(), self.front.nr_begun());
        let is_polled = self.polling.begin(now_ns, nr_begun, thread_cpu_ns);
        if !(is_polled && self.poll()) {
            self.sleep(timeout);
            self.polling.woke(forebay::now_ns());
        }
        if is_polled {
            self.front.host().common().record_polling(self.polling.sums());
        }
    }

    /// Sleeps until there are events, unless requests are there.
    fn sleep(&mut self, timeout: Option<&Timespec>) {
        let has_more = self.front.prepare_sleep();
        self.take_events(if has_more { Some(&NO_TIME) } else { timeout });
    }

    /// Polls until there are requests or events, or polling ends. Returns whether there are some.
    fn poll(&mut self) -> bool {
        self.events.clear();
        let (mut began_ns, mut has_yielded) = (None, false);
        loop {
            let now_ns = forebay::now_ns();
            let began_ns = *began_ns.get_or_insert(now_ns);
            if has_yielded {
                self.others_run = self.polling.yielded(now_ns);
            }
            if self.front.host().is_busy() || now_ns.saturating_sub(self.called_ns) >= CALL_NS {
                self.called_ns = now_ns;
                self.take_events(Some(&NO_TIME));
            }
            let has_requests = self.front.has_available() || self.front.host().wants_reap();
            if has_requests || !self.events.is_empty() {
                self.polling.found(now_ns);
                return true;
            }
            if !self.polling.goes_on(now_ns) {
                return false;
            }
            has_yielded = self.others_run || now_ns.saturating_sub(began_ns) >= YIELD_AFTER_NS;
            match has_yielded {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }

    /// Takes the pending events if the last system call was long ago, and none otherwise.
    fn take_due_events(&mut self) {
        let now_ns = forebay::now_ns();
        if now_ns.saturating_sub(self.called_ns) >= CALL_NS {
            self.called_ns = now_ns;
            self.take_events(Some(&NO_TIME));
        } else {
            self.events.clear();
        }
    }

    /// Takes the pending events, or waits for the first one until the timeout.
    fn take_events(&mut self, timeout: Option<&Timespec>) {
        self.front.host().common().take_events(&mut self.events, timeout);
    }

    /// Handles all events, and takes the requests that are available.
    fn round(&mut self) {
        let (mut has_commands, mut was_kicked) = (false, false);
        for event in &self.events {
            match event.data.u64() {
                OF_INBOX => has_commands = true,
                OF_QUEUE => self.front.host_mut().note_readable(),
                _ => was_kicked = true,
            }
        }
        if was_kicked {
            self.place.counters.kicked();
        }
        let RingWorker { inbox, place, front, stopping, is_closing, .. } = self;
        front.round(|front| {
            if front.wants_tick() {
                front.tick();
            }
            if has_commands {
                let (commands, must_close) = inbox.take();
                for command in commands {
                    match command {
                        ThreadCommand::Channel(command) => {
                            execute(front, (place, stopping), command);
                        }
                        ThreadCommand::Resize(NewSize { size_bytes, answer }) => {
                            front.resize(size_bytes / SECTOR);
                            // The thread that resizes may have given up.
                            let _ = answer.send(());
                        }
                    }
                }
                if must_close {
                    *is_closing = true;
                    front.stop();
                }
            }
            front.look_at_rings();
        });
    }

    /// Answers the stop command once the last request is answered.
    fn answer_stop(&mut self) {
        if self.stopping.is_some() && self.front.has_drained() {
            let answer = self.stopping.take().expect("just seen");
            self.front.host_mut().forget_lost();
            // The message channel may have given up.
            let _ = answer.send(self.front.host().base());
        }
    }
}

/// Executes a command of the message channel.
fn execute(
    front: &mut BlkFront<RingHost>,
    (place, stopping): (&Arc<RingPlace>, &mut Option<SyncSender<u16>>),
    command: RingCommand,
) {
    let texts = |result: Result<(), forebay_vhost_user::RingError>| {
        result.map_err(|error| error.to_string())
    };
    match command {
        RingCommand::Start(setup) => start(front, place, *setup),
        RingCommand::Enable(is_enabled, answer) => {
            front.change_rings(|peer| {
                peer.ring.set_enabled(is_enabled);
                Ok(())
            });
            // The message channel may have given up.
            let _ = answer.send(());
        }
        RingCommand::Memory(memory, answer) => {
            let mut table = None;
            front.change_rings(|peer| {
                let result = texts(peer.ring.set_memory(memory.clone()));
                table = Some(Rc::clone(peer.ring.memory()));
                result
            });
            if let Some(table) = table {
                front.host_mut().register(&table);
            }
            // The message channel may have given up.
            let _ = answer.send(());
        }
        RingCommand::Call(mut call, answer) => {
            front.change_rings(|peer| {
                peer.ring.set_call(call.take());
                Ok(())
            });
            // The message channel may have given up.
            let _ = answer.send(());
        }
        RingCommand::Err(mut err, answer) => {
            front.change_rings(|peer| {
                peer.ring.set_err(err.take());
                Ok(())
            });
            // The message channel may have given up.
            let _ = answer.send(());
        }
        RingCommand::Stop(answer) => {
            front.stop_rings();
            *stopping = Some(answer);
        }
    }
}

/// Starts the ring.
fn start(front: &mut BlkFront<RingHost>, place: &Arc<RingPlace>, setup: RingSetup) {
    front.host_mut().set_base(setup.base);
    match Ring::start(setup) {
        Ok(ring) => {
            front.host_mut().register(ring.memory());
            front.accept(RingPeer::new(ring, Arc::clone(place)));
        }
        Err((error, err)) => front.host_mut().refused(&error, err),
    }
}

/// Returns a disk with the largest ranges of discards and write-zeroes for these limits.
fn ranges_of(limits: &QueueLimits) -> BlkDisk {
    // The configuration space may announce less. The library splits ranges to the limits.
    let most = |sectors: u32| if sectors > 0 { MAX_RANGE_SECTORS } else { 0 };
    BlkDisk {
        export: 0,
        nr_sectors: 0,
        read_only: false,
        discards_to_zeroes: false,
        max_discard_sectors: most(limits.max_discard_sectors),
        max_write_zeroes_sectors: most(limits.max_write_zeroes_sectors),
        serial: [0; ID_LEN],
    }
}
