//! Inbox of the thread of a ring: commands of the message channel, a new size of the disk, and the
//! request to end.

use crate::sizes::{NewSize, ResizeInbox};
use forebay_vhost_user::RingCommand;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Contents of an inbox.
#[derive(Debug, Default)]
struct Waiting {
    /// Commands, the oldest first.
    commands: Vec<RingCommand>,
    resized: Option<NewSize>,
    is_closing: bool,
    /// Whether the thread has ended, so that it takes no more commands.
    is_gone: bool,
}

/// Inbox of the thread of a ring.
#[derive(Debug)]
pub(crate) struct RingInbox {
    waiting: Mutex<Waiting>,
    event: OwnedFd,
    /// Eventfd shared by all threads of the server; signalled when one panics.
    panicked: Arc<OwnedFd>,
}

impl RingInbox {
    /// Creates an empty inbox.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptor left.
    pub(crate) fn new(panicked: Arc<OwnedFd>) -> std::io::Result<RingInbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(RingInbox { waiting: Mutex::default(), event, panicked })
    }

    /// Returns an eventfd that is readable when the inbox has something new.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Adds a command, and wakes the thread. Returns whether the thread will take it.
    pub(crate) fn push(&self, command: RingCommand) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_gone {
            return false;
        }
        waiting.commands.push(command);
        drop(waiting);
        self.ring();
        true
    }

    /// Takes the new size. Call it after [`RingInbox::take`], which resets the eventfd.
    pub(crate) fn take_size(&self) -> Option<NewSize> {
        self.waiting.lock().expect("no panic under this lock").resized.take()
    }

    /// Makes the thread end when its ring has stopped.
    pub(crate) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_closing = true;
        self.ring();
    }

    /// Takes all commands, and whether the thread must end.
    pub(crate) fn take(&self) -> (Vec<RingCommand>, bool) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        (std::mem::take(&mut waiting.commands), waiting.is_closing)
    }

    /// Records that the thread has ended. Drops what it has not taken, so that no sender waits for
    /// an answer.
    pub(crate) fn end(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_gone = true;
        let (commands, resized) = (std::mem::take(&mut waiting.commands), waiting.resized.take());
        drop(waiting);
        drop((commands, resized));
    }

    /// Signals the server that the thread has panicked.
    pub(crate) fn report_panic(&self) {
        // The counter of the eventfd is far below its maximum, so the write does not fail.
        let _ = rustix::io::write(&self.panicked, &1_u64.to_ne_bytes());
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
        // The write fails only if the counter is at its maximum: then the eventfd is signalled
        // already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl ResizeInbox<NewSize> for RingInbox {
    fn resize(&self, size: NewSize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.is_gone {
            waiting.resized = Some(size);
            drop(waiting);
            self.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    fn inbox() -> RingInbox {
        let panicked = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        RingInbox::new(Arc::new(panicked)).expect("a descriptor")
    }

    #[test]
    fn commands_arrive_in_order_and_once() {
        let inbox = inbox();
        assert!(inbox.push(RingCommand::Enable(true)) && inbox.push(RingCommand::Call(None)));
        let (commands, is_closing) = inbox.take();
        assert!(!is_closing);
        let [RingCommand::Enable(true), RingCommand::Call(None)] = &commands[..] else {
            panic!("{commands:?}")
        };
        inbox.close();
        let (commands, is_closing) = inbox.take();
        assert!(commands.is_empty() && is_closing);
    }

    #[test]
    fn thread_that_has_ended_leaves_no_stop_without_an_answer() {
        let inbox = inbox();
        let (sender, answer) = sync_channel(1);
        assert!(inbox.push(RingCommand::Stop(sender)));
        inbox.end();
        assert!(answer.recv().is_err());
        assert!(!inbox.push(RingCommand::Enable(true)));
    }

    #[test]
    fn new_size_is_taken_once_and_answered_or_dropped() {
        let inbox = inbox();
        let (sender, answer) = sync_channel(1);
        let resize = || inbox.resize(NewSize { size_bytes: 512, answer: sender.clone() });
        resize();
        let size = inbox.take_size().expect("just added");
        assert_eq!(size.size_bytes, 512);
        assert!(inbox.take_size().is_none());
        size.answer.send(()).expect("the receiver is here");
        answer.recv().expect("the answer");
        resize();
        inbox.end();
        resize();
        drop((size, sender));
        assert!(answer.recv().is_err());
    }
}
