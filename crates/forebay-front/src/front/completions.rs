//! Completion path: passes completions of the disks to the sessions of their requests.

use super::Front;
use crate::flight::{Answered, Ended};
use crate::host::Host;
use crate::kinds::Stage;
use crate::plant::plants;
use crate::session::{Session, Settled};
use crate::slots::{Key, MARK_SHIFT};

impl<S: Session> Front<S> {
    /// Reaps completions, and answers requests that are over. Returns whether there were any.
    pub(crate) fn reap(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        let desk = &mut self.desk;
        desk.host.reap(&mut done, desk.now_ns);
        let any = !done.is_empty() || !desk.to_settle.is_empty();
        // Also without completions: a session compares its oldest answer with this time.
        desk.ended_ns = desk.host.now_ns();
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
        for key in std::mem::take(&mut self.desk.to_settle) {
            self.settle(key);
        }
        self.count_all();
        if self.has_panicked {
            self.drop_lost();
        }
        any
    }

    /// Drops the requests of closed clients that count I/O which the disk does not have.
    ///
    /// A panic during a submission leaves open whether the disk has the I/O. So such a request
    /// counts as in flight until the host has no I/O of its export. Then no completion can follow.
    #[cold]
    fn drop_lost(&mut self) {
        let (mut at, mut has_more) = (0, false);
        while let Some(key) = self.desk.flights.next_key(&mut at) {
            let flight = self.desk.flights.get_mut(key).expect("just found");
            let (client, export) = (flight.client, flight.export);
            if self.clients.get_mut(client).is_some() {
                continue;
            }
            if self.desk.host.is_busy_with(export) {
                has_more = true;
            } else if let Some(flight) = self.desk.flights.remove(key) {
                (0..flight.in_disk).for_each(|_| self.desk.host.ended_after_close(client));
                S::drop_request(&mut self.desk, flight);
            }
        }
        self.has_panicked = has_more;
    }

    /// Handles one completion.
    #[inline]
    fn complete(&mut self, completion: <S::Host as Host>::Completion) {
        let (user_data, result, memory) = S::Host::parts(completion);
        let (key, mark) = (Key::of_u64(user_data), (user_data >> MARK_SHIFT) as usize);
        let ended = Ended { key, mark, result, memory };
        let flight = self.desk.flights.get_mut(key);
        let flight = flight.expect("an I/O ends once, before its request");
        flight.in_disk -= 1;
        let client = flight.client;
        let Some(session) = self.clients.get_mut(client) else {
            // The client is gone, so its I/O ends here.
            self.desk.host.ended_after_close(client);
            S::complete_gone(&mut self.desk, ended);
            return self.settle(key);
        };
        match session.complete(&mut self.desk, ended) {
            Some(answered) => {
                self.count(&answered);
                self.mark_dirty(client);
            }
            None => self.settle(key),
        }
    }

    /// Answers a request if none of its I/O is in flight, or continues it.
    pub(crate) fn settle(&mut self, key: Key) {
        let Some(flight) = self.desk.flights.get_mut(key) else { return };
        if flight.in_disk > 0 && !plants!(EarlySettle) {
            return;
        }
        let client = flight.client;
        let Some(session) = self.clients.get_mut(client) else {
            if let Some(flight) = self.desk.flights.remove(key) {
                S::drop_request(&mut self.desk, flight);
            }
            return;
        };
        match session.settle(&mut self.desk, key) {
            Settled::NotYet => {}
            Settled::Continues => {
                self.wait_if_due(client);
                self.mark_dirty(client);
            }
            Settled::Answered(answered, others) => {
                self.count(&answered);
                self.mark_dirty(client);
                for key in others {
                    self.settle(key);
                }
            }
        }
    }

    /// Adds the times of a request to the statistics, at the end of the reap. Requests that arrived
    /// in one round and end in one reap have equal times, and are added together.
    #[inline]
    fn count(&mut self, answered: &Answered) {
        match &mut self.uncounted {
            Some((equal, nr)) if equal == answered => *nr += 1,
            _ => {
                self.count_all();
                self.uncounted = Some((*answered, 1));
            }
        }
    }

    /// Adds the times of the requests that were answered last to the statistics.
    pub(crate) fn count_all(&mut self) {
        let Some((answered, nr)) = self.uncounted.take() else { return };
        let Answered { export, begun_ns, issued_ns } = answered;
        let ended_ns = self.desk.ended_ns;
        let host = &mut self.desk.host;
        host.record(export, Stage::Receive, issued_ns.saturating_sub(begun_ns), nr);
        host.record(export, Stage::Disk, ended_ns.saturating_sub(issued_ns), nr);
    }
}
