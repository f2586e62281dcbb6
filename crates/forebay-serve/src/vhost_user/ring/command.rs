//! Commands of other threads to the thread of a ring.

use crate::inbox::Inbox;
use crate::sizes::{NewSize, ResizeInbox};
use forebay_vhost_user::RingCommand;

/// Command of another thread to the thread of a ring.
#[derive(Debug)]
pub(crate) enum ThreadCommand {
    /// Execute a command of the message channel.
    Channel(RingCommand),
    /// Accept requests up to this size of the disk, and answer.
    Resize(NewSize),
}

impl ResizeInbox<NewSize> for Inbox<ThreadCommand> {
    fn resize(&self, size: NewSize) {
        // A thread that has ended drops the size, which its sender sees.
        self.push(ThreadCommand::Resize(size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn new_size_is_taken_once_and_answered_or_dropped() {
        let panicked = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let inbox = Inbox::new(Arc::new(panicked)).expect("a descriptor");
        let (sender, answer) = sync_channel(1);
        let resize = || inbox.resize(NewSize { size_bytes: 512, answer: sender.clone() });
        resize();
        let (commands, _) = inbox.take();
        let [ThreadCommand::Resize(size)] = &commands[..] else { panic!("{commands:?}") };
        assert_eq!(size.size_bytes, 512);
        assert!(inbox.take().0.is_empty());
        size.answer.send(()).expect("the receiver is here");
        answer.recv().expect("the answer");
        resize();
        inbox.end();
        resize();
        drop((commands, sender));
        assert!(answer.recv().is_err());
    }
}
