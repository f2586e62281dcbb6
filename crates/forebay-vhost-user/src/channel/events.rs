//! Checks of the eventfds of a front end, before a thread waits for them.

use super::refusal::{Refusal, refuse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

/// Returns the descriptor of an eventfd, and makes it non-blocking.
///
/// The front end shares the open file, and can make it blocking again. A write then blocks while
/// the counter is full, until [`empty_if_full`] empties it. A check before each write would cost a
/// system call for each notification, and could not prevent that.
///
/// # Errors
/// Returns an error if it is not an eventfd. A wait for another kind of file may always return at
/// once, and a read of it may block.
pub(super) fn eventfd(file: File) -> Result<OwnedFd, Refusal> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Without /proc the kind of the file is unknown.
    if link.is_ok_and(|link| link.to_str() != Some("anon_inode:[eventfd]")) {
        return Err(refuse("the descriptor is not an eventfd"));
    }
    let set = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    set.map_err(|error| refuse(format_args!("cannot use the eventfd: {error}")))?;
    Ok(OwnedFd::from(file))
}

/// Empties the counter of an eventfd if it is full, so that a write that is blocked goes on. That
/// write signals the eventfd again. Later writes do not block, unless the front end changes that.
/// Does not block. Before Linux 5.8 a write that is blocked stays so.
pub(super) fn empty_if_full(eventfd: &OwnedFd) {
    let mut ready = [PollFd::new(eventfd, PollFlags::OUT)];
    let polled = poll(&mut ready, Some(&Timespec::default()));
    // The kernel itself may raise the counter further than a write can. That is an error here.
    if polled.is_err() || ready[0].revents().contains(PollFlags::OUT) {
        return;
    }
    // Otherwise each later write may block too: the counter of a semaphore stays full.
    let flags = fcntl_getfl(eventfd).unwrap_or(OFlags::empty());
    let _ = fcntl_setfl(eventfd, flags | OFlags::NONBLOCK);
    // A front end may make the eventfd block again, and may read it first.
    let mut count = [0; 8];
    let into = &mut [IoSliceMut::new(&mut count)];
    let _ = preadv2(eventfd, into, u64::MAX, ReadWriteFlags::NOWAIT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{read, write};
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock};

    #[test]
    fn only_a_full_counter_is_emptied() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        empty_if_full(&event);
        write(&event, &5_u64.to_ne_bytes()).expect("there is room");
        empty_if_full(&event);
        let mut count = [0; 8];
        read(&event, &mut count).expect("its count is kept");
        assert_eq!(u64::from_ne_bytes(count), 5);
    }

    #[test]
    fn write_that_a_full_counter_blocks_goes_on() {
        let event = eventfd(u32::MAX, EventfdFlags::CLOEXEC).expect("an eventfd");
        write(&event, &(u64::MAX - 1 - u64::from(u32::MAX)).to_ne_bytes()).expect("it is full now");
        let (sender, answer) = channel();
        let copy = event.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            crate::signal(&copy);
            sender.send(()).expect("the test waits");
        });
        assert!(answer.recv_timeout(Duration::from_millis(50)).is_err(), "it is blocked");
        let mut nr = 0;
        while answer.recv_timeout(Duration::from_millis(50)).is_err() {
            empty_if_full(&event);
            nr += 1;
            assert!(nr < 100, "it is still blocked");
        }
        let mut count = [0; 8];
        read(&event, &mut count).expect("it is signalled");
        assert_eq!(u64::from_ne_bytes(count), 1);
    }

    /// A read of a semaphore takes one from its counter, so it is full again after a write.
    #[test]
    fn semaphore_that_stays_full_blocks_one_write_only() {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
        let event = eventfd(0, flags).expect("an eventfd");
        write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
        let (sender, answer) = channel();
        let copy = event.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            (0..1000).for_each(|_| crate::signal(&copy));
            sender.send(()).expect("the test waits");
        });
        let mut nr = 0;
        while answer.recv_timeout(Duration::from_millis(50)).is_err() {
            empty_if_full(&event);
            nr += 1;
            assert!(nr < 100, "it is blocked by each write");
        }
    }

    /// The kernel raises a counter to a maximum that no write reaches, and reports an error then.
    #[test]
    fn counter_that_the_kernel_has_raised_to_its_maximum_is_emptied() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
        let file = File::open("/proc/self/exe").expect("a file");
        let mut buffer = [0_u8; 16];
        let context = IoContext::new(1).expect("a context");
        let mut read_it = IoControlBlock {
            aio_fildes: file.as_raw_fd() as u32,
            aio_lio_opcode: IOCB_CMD_PREAD as u16,
            aio_buf: buffer.as_mut_ptr().expose_provenance() as u64,
            aio_nbytes: 16,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: event.as_raw_fd() as u32,
            ..IoControlBlock::default()
        };
        assert_eq!(context.submit(&[&mut read_it]).expect("it is accepted"), 1);
        let mut ended = [vmm_sys_util::aio::IoEvent::default()];
        assert_eq!(context.get_events(1, &mut ended, None).expect("it ends"), 1);
        empty_if_full(&event);
        write(&event, &1_u64.to_ne_bytes()).expect("there is room again");
    }
}
