//! End of a round: sends replies, closes connections that are over, and updates epoll.

use super::ending::Ending;
use super::lifecycle::DRAIN_NS;
use super::{OF_QUEUE, Worker};
use rustix::event::epoll::{self, EventData, EventFlags};

impl Worker {
    /// Sends queued output, and closes connections that are over.
    pub(super) fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.is_dirty = false;
            if !conn.is_given_up()
                && conn.wants_write()
                && let Err(error) = conn.send(&mut self.disks.pool)
            {
                conn.break_off(error.to_string());
            }
            if conn.is_given_up() || conn.is_over() {
                self.close(key);
                continue;
            }
            // A client that did not end the connection gets its replies however long its disk
            // takes: the time limit of the shutdown bounds it.
            let is_given_time =
                matches!(conn.ending, Some(Ending::ServerEnds)) && conn.waits_for_disk();
            if is_given_time {
                conn.deadline_ns = None;
            } else if conn.ending.is_some() && conn.deadline_ns.is_none() {
                conn.deadline_ns = Some(self.disks.now_ns + DRAIN_NS);
                self.nr_deadlines += 1;
            }
            let mut interest = EventFlags::empty();
            interest.set(EventFlags::IN, conn.may_read());
            interest.set(EventFlags::OUT, conn.wants_write());
            if interest != conn.interest {
                conn.interest = interest;
                let data = EventData::new_u64(key.to_u64());
                epoll::modify(&self.epoll, &conn.fd, data, interest).expect("it is registered");
            }
        }
        if self.dirty.is_empty() {
            self.dirty = dirty; // its memory is used again
        }
        self.watch_queues();
    }

    /// Registers the descriptors of the queues at epoll, so that completions wake this thread. If
    /// the process has no descriptor left, as when clients have used all, ticks replace these
    /// events until there is one again.
    fn watch_queues(&mut self) {
        while let Some((export, queue)) = self.disks.next_unwatched() {
            let data = EventData::new_u64(OF_QUEUE | export as u64);
            // A wait begins only when all completions were reaped.
            let watched = queue.poll_fd_after_reap().and_then(|fd| {
                epoll::add(&self.epoll, fd, data, EventFlags::IN)?;
                Ok(())
            });
            if watched.is_err() {
                self.disks.put_unwatched(export);
                return self.timer.arm();
            }
        }
    }
}
