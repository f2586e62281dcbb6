//! Where the ends of bios wait for those who asked for them.

use crate::buf::Buf;
use forebay_core::BlockStatus;
use std::collections::VecDeque;

/// The end of one I/O.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The number that was given with it.
    pub user_data: u64,
    /// The bytes that were moved, fewer than asked for only at the end of a file; or why not.
    pub result: Result<u64, BlockStatus>,
    /// The buffer of an [`Io`](crate::Io) that had one.
    pub buf: Option<Buf>,
}

/// Who is told of the end of a bio: one for each completion queue. It holds at most `capacity`
/// bios, ended or not, so that it never grows.
#[derive(Debug)]
pub(crate) struct Mailbox {
    is_open: bool,
    capacity: usize,
    nr_in_layer: usize,
    ready: VecDeque<Completion>,
}

impl Mailbox {
    fn new(capacity: usize) -> Mailbox {
        let ready = VecDeque::with_capacity(capacity);
        Mailbox { is_open: false, capacity, nr_in_layer: 0, ready }
    }

    /// Bios that have not ended.
    pub(crate) fn nr_in_layer(&self) -> usize {
        self.nr_in_layer
    }

    /// Bios that have not ended, and those that have and were not reaped.
    pub(crate) fn len(&self) -> usize {
        self.nr_in_layer + self.ready.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// A bio was taken in.
    pub(crate) fn expect(&mut self) {
        self.nr_in_layer += 1;
    }

    /// A bio has ended.
    pub(crate) fn deliver(&mut self, completion: Completion) {
        assert!(self.is_open && self.nr_in_layer > 0, "a mailbox outlives its bios");
        self.nr_in_layer -= 1;
        self.ready.push_back(completion);
    }

    /// Moves at most `max` completions to `out`, oldest first. Says how many.
    pub(crate) fn take(&mut self, max: usize, out: &mut Vec<Completion>) -> usize {
        let nr = self.ready.len().min(max);
        out.extend(self.ready.drain(..nr));
        nr
    }
}

/// The mailboxes of a disk, by number: the owner of a bio in the core's terms.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    list: Vec<Mailbox>,
    capacity: usize,
}

impl Mailboxes {
    /// None yet; each will hold `capacity` bios.
    pub(crate) fn new(capacity: usize) -> Mailboxes {
        Mailboxes { list: Vec::new(), capacity }
    }

    /// Opens one. Its number may have been another's that was closed.
    pub(crate) fn open(&mut self) -> u32 {
        let free = self.list.iter().position(|mailbox| !mailbox.is_open);
        let number = free.unwrap_or_else(|| {
            self.list.push(Mailbox::new(self.capacity));
            self.list.len() - 1
        });
        self.list[number].is_open = true;
        number as u32
    }

    /// Closes one whose bios have all ended.
    pub(crate) fn close(&mut self, number: u32) {
        let mailbox = self.of(number);
        assert!(mailbox.nr_in_layer == 0, "a mailbox outlives its bios");
        mailbox.ready.clear();
        mailbox.is_open = false;
    }

    #[inline]
    pub(crate) fn of(&mut self, number: u32) -> &mut Mailbox {
        &mut self.list[number as usize]
    }
}
