//! Worker: one thread that serves its share of the connections, on all exports.
//!
//! A [`forebay_front::Front`] makes its rounds, and has its sessions and requests in flight. This
//! module has the host of that front:
//!
//! - `host`: the library's queues, epoll, the log and the metrics; `client`: sockets and TLS;
//! - `inbox`: new connections, sizes and answers; `status`: the threads that answer BLOCK_STATUS;
//! - `timer`: ticks for deadlines.

mod client;
#[cfg(test)]
mod driven;
mod host;
pub(crate) mod inbox;
mod timer;

use self::client::Client;
use self::host::{OF_INBOX, OF_QUEUE, OF_TIMER, WorkerHost};
use self::inbox::{NewExport, WorkerCommand, WorkerInbox};
use self::timer::Timer;
use crate::host::{HostBase, thread_cpu_ns};
use crate::shared::Shared;
use forebay_front::nbd::{MAX_IN_FLIGHT, NbdFront, Settings};
use forebay_front::{Key, MARK_SHIFT, Polling, Readiness};
use forebay_nbd::export::ExportInfo;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most requests between two waits after which a worker polls.
const NR_FEW: u64 = 4;

/// Worker thread of the server.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    inbox: Arc<WorkerInbox>,
    events: Vec<epoll::Event>,
    front: NbdFront<WorkerHost>,
    /// Exports to be left: those that were withdrawn, while this worker has clients or I/O of them.
    withdrawn: Vec<usize>,
    /// Decides whether a wait polls before it sleeps.
    polling: Polling,
}

impl Worker {
    /// Creates the epoll descriptor and the timer of a worker. They are created before its thread,
    /// so that the caller gets the error.
    ///
    /// # Errors
    /// Returns the error of the system call, such as a lack of descriptors.
    pub(crate) fn epoll(inbox: &WorkerInbox) -> std::io::Result<(OwnedFd, Timer)> {
        let epoll = HostBase::epoll_of(inbox.fd(), OF_INBOX)?;
        let timer = Timer::new()?;
        epoll::add(&epoll, timer.fd(), EventData::new_u64(OF_TIMER), EventFlags::IN)?;
        Ok((epoll, timer))
    }

    /// Creates a worker. It must stay on this thread.
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: Arc<WorkerInbox>,
        epoll: (OwnedFd, Timer),
    ) -> Worker {
        // Both at one moment. Changes before it are in the inbox too, and change nothing.
        let (offered, infos) = {
            let _turn = shared.sizes.begin();
            (shared.exports.offered(), shared.sizes.infos())
        };
        let host = WorkerHost::new(Arc::clone(&shared), Arc::clone(&inbox), epoll, offered);
        let settings = Settings {
            facts: host.facts_of(infos.len()),
            infos,
            tls: shared.tls_policy,
            capacity: shared.limits.capacity(),
            budget: shared.budget,
            nr_open: Arc::clone(&shared.nr_open),
            max_in_flight: MAX_IN_FLIGHT,
        };
        let front = NbdFront::nbd(host, settings);
        let polling = Polling::new(shared.poll).after_few(NR_FEW);
        let (events, withdrawn) = (Vec::with_capacity(256), Vec::new());
        Worker { shared, inbox, events, front, withdrawn, polling }
    }

    /// Runs until the worker must stop and all connections are closed.
    pub(crate) fn run(mut self) {
        // With the default timer slack, a sleep of a few microseconds takes more than fifty.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !self.front.is_over() {
            self.wait(self.front.is_unfinished());
            self.round();
        }
    }

    /// Waits for events. `at_once`: takes those that are there and does not wait.
    fn wait(&mut self, at_once: bool) {
        let wants_tick = self.front.wants_tick();
        let host = self.front.host_mut();
        host.watch_queues();
        if wants_tick {
            host.timer().arm();
        }
        let pause_ns = self.front.pause_ns();
        if pause_ns > 0 {
            // A signal ends the sleep early, which does no harm.
            let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns as i64 };
            let _ = rustix::thread::nanosleep(&pause);
        }
        // A round that must follow at once waits for nothing. After a pause, requests are there.
        if at_once || pause_ns > 0 || self.polling.is_off() {
            return self.take_events(at_once);
        }
        let is_polled = self.polling.begin(forebay::now_ns(), self.front.nr_begun(), thread_cpu_ns);
        if !is_polled || !self.poll() {
            self.take_events(false);
            self.polling.woke(forebay::now_ns());
        }
        if is_polled {
            self.front.host().common().record_polling(self.polling.sums());
        }
    }

    /// Polls for events until there are some, or polling ends. Returns whether there are some.
    fn poll(&mut self) -> bool {
        loop {
            self.take_events(true);
            let now_ns = forebay::now_ns();
            if !self.events.is_empty() {
                self.polling.found(now_ns);
                return true;
            }
            if !self.polling.goes_on(now_ns) {
                return false;
            }
        }
    }

    /// Takes the events at hand; without `at_once`, it waits for the first.
    fn take_events(&mut self, at_once: bool) {
        let no_time = Timespec::default();
        let timeout = at_once.then_some(&no_time);
        self.front.host().common().take_events(&mut self.events, timeout);
    }

    /// Handles all events.
    fn round(&mut self) {
        let Worker { shared, inbox, events, front, withdrawn, .. } = self;
        front.round(|front| {
            for event in events.iter() {
                match event.data.u64() {
                    OF_INBOX => take_inbox(front, shared, inbox, withdrawn),
                    OF_TIMER => {
                        front.host_mut().timer().disarm();
                        front.tick();
                    }
                    queue if queue >> MARK_SHIFT != 0 => {
                        front.host_mut().note_readable((queue & !OF_QUEUE) as usize);
                    }
                    conn => front.look_at(Key::of_u64(conn), readiness(event.flags)),
                }
            }
        });
        if !withdrawn.is_empty() {
            withdrawn.retain(|export| !leave(front, *export));
        }
    }
}

/// Returns what an event of a connection reports.
fn readiness(flags: EventFlags) -> Readiness {
    if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
        Readiness::Gone
    } else if flags.contains(EventFlags::IN) {
        Readiness::Received
    } else {
        Readiness::Sendable
    }
}

/// Leaves an export that was withdrawn, unless this worker has clients or I/O of it. Returns
/// whether it was left.
fn leave(front: &mut NbdFront<WorkerHost>, export: usize) -> bool {
    front.is_unused(export) && front.host_mut().close_export(export)
}

/// Handles the inbox: changes of exports, new connections, answers, and the order to stop.
fn take_inbox(
    front: &mut NbdFront<WorkerHost>,
    shared: &Shared,
    inbox: &WorkerInbox,
    withdrawn: &mut Vec<usize>,
) {
    let (commands, is_closing) = inbox.take();
    for command in commands {
        match command {
            WorkerCommand::Accept(fd, peer) => {
                front.accept(Client::new(fd, peer, shared.counters.open_connection()));
            }
            WorkerCommand::Resize(infos) => front.resize(infos),
            WorkerCommand::Add(NewExport { index, export, infos, answer }) => {
                front.host_mut().open_export(index, export);
                change_exports(front, infos);
                // The receiver may have given up.
                let _ = answer.send(());
            }
            WorkerCommand::Withdraw { index, infos } => {
                change_exports(front, infos);
                withdrawn.push(index);
            }
            WorkerCommand::EndClients { index } => front.end_clients_of(index),
            WorkerCommand::Answer(answer) => front.answer(answer),
        }
    }
    front.evict();
    if is_closing {
        front.stop();
    }
}

/// Replaces the descriptions of the exports, and their facts by those of the open ones.
fn change_exports(front: &mut NbdFront<WorkerHost>, infos: Arc<[ExportInfo]>) {
    let nr = infos.len().max(front.nr_exports());
    let facts = front.host().facts_of(nr);
    front.change_exports(infos, facts);
}

/// Signals a panic before the queues are dropped: their drop waits for I/O in flight, and a disk
/// may never complete it.
impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inbox.report_panic();
        }
    }
}

#[cfg(test)]
mod tests;
