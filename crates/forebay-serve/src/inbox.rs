//! Inbox of a thread: commands of other threads, and the request to end.

use forebay_vhost_user::signal;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Contents of an inbox.
#[derive(Debug)]
struct Waiting<C> {
    /// Commands, the oldest first.
    commands: Vec<C>,
    is_closing: bool,
    /// Whether the thread has ended, so that it takes no more commands.
    is_gone: bool,
}

/// Inbox of a thread, with commands of the type `C`.
#[derive(Debug)]
pub(crate) struct Inbox<C> {
    waiting: Mutex<Waiting<C>>,
    event: OwnedFd,
    /// Eventfd shared by all threads of the server; signalled when one panics.
    panicked: Arc<OwnedFd>,
}

impl<C: Send> Inbox<C> {
    /// Creates an empty inbox.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub(crate) fn new(panicked: Arc<OwnedFd>) -> std::io::Result<Inbox<C>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiting = Waiting { commands: Vec::new(), is_closing: false, is_gone: false };
        Ok(Inbox { waiting: Mutex::new(waiting), event, panicked })
    }

    /// Returns an eventfd that is readable when the inbox has something new.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Adds a command, and wakes the thread. Returns whether the thread will take it.
    pub(crate) fn push(&self, command: C) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_gone {
            return false;
        }
        waiting.commands.push(command);
        drop(waiting);
        self.ring();
        true
    }

    /// Makes the thread end, once its work is done. Nothing may be added afterwards.
    pub(crate) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_closing = true;
        self.ring();
    }

    /// Takes all commands, and whether the thread must end. One lock protects both, so that no
    /// command arrives after the request to end was taken.
    pub(crate) fn take(&self) -> (Vec<C>, bool) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        (std::mem::take(&mut waiting.commands), waiting.is_closing)
    }

    /// Records that the thread has ended. Drops the commands that it has not taken, so that no
    /// other thread waits for an answer.
    pub(crate) fn end(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_gone = true;
        let commands = std::mem::take(&mut waiting.commands);
        drop(waiting);
        drop(commands);
    }

    /// Signals the server that the thread has panicked.
    pub(crate) fn report_panic(&self) {
        signal(&self.panicked);
    }

    /// Poisons the lock, so that the thread panics when it next takes from the inbox.
    #[cfg(test)]
    pub(crate) fn poison(&self) {
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _held = self.waiting.lock();
                panic!("a test has this lock poisoned");
            });
            assert!(panics.join().is_err());
        });
        self.ring();
    }

    fn ring(&self) {
        signal(&self.event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    fn inbox<C: Send>() -> Inbox<C> {
        let panicked = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        Inbox::new(Arc::new(panicked)).expect("a descriptor")
    }

    #[test]
    fn commands_arrive_in_order_and_once() {
        let inbox = inbox();
        assert!(inbox.push(1) && inbox.push(2));
        assert_eq!(inbox.take(), (vec![1, 2], false));
        inbox.close();
        assert_eq!(inbox.take(), (vec![], true));
    }

    #[test]
    fn thread_that_has_ended_leaves_no_command_without_an_answer() {
        let inbox = inbox();
        let (sender, answer) = sync_channel::<()>(1);
        assert!(inbox.push(sender));
        inbox.end();
        assert!(answer.recv().is_err());
        let (sender, _answer) = sync_channel(1);
        assert!(!inbox.push(sender));
    }
}
