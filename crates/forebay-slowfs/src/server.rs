//! The threads that answer the kernel's requests.
//!
//! Workers answer all requests but flushes. One thread executes the flushes, in the order of their
//! arrival. So any number of waiting flushes leaves the workers free.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, Sender};

use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;

use crate::NAME;
use crate::device::{Device, Flush};
use crate::protocol::{MAX_REQUEST, Reply, Request, opcode};

/// The root directory, and the file in it.
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// The number of a flush's request, and the flush.
type Queued = (u64, Flush);

/// Answers requests until the file system is unmounted.
pub(crate) fn run(mut fuse: &File, device: &Device, flushes: &Sender<Queued>) {
    let mut bytes = vec![0; MAX_REQUEST];
    let mut reply = Reply::new();
    loop {
        let len = match fuse.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if has_ended(&error) => return,
            // An interrupted read, or a request that was interrupted before it was read.
            Err(_) => continue,
        };
        let request = Request::new(&bytes[..len]);
        match request.opcode() {
            // Without a reply.
            opcode::FORGET | opcode::BATCH_FORGET => {}
            opcode::FSYNC => {
                let flush = device.accept_flush();
                if flushes.send((request.unique(), flush)).is_err() {
                    return;
                }
            }
            _ => {
                reply.start(request.unique());
                if let Err(errno) = answer(request, &mut reply, device) {
                    reply.fail(errno.raw_os_error());
                }
                send(fuse, &mut reply);
            }
        }
    }
}

/// Executes flushes until the workers have ended.
pub(crate) fn flush_each(fuse: &File, device: &Device, queue: &Receiver<Queued>) {
    // The default of 50 us would make a flush of 200 us a quarter longer. Without it, they are
    // longer but still equal.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let mut reply = Reply::new();
    let mut idle_at = None;
    while let Ok((unique, flush)) = queue.recv() {
        reply.start(unique);
        if let Err(errno) = device.execute(&flush, &mut idle_at) {
            reply.fail(errno.raw_os_error());
        }
        send(fuse, &mut reply);
    }
}

fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn send(mut fuse: &File, reply: &mut Reply) {
    // It fails if the request's process was killed, or the file system unmounted.
    let _ = fuse.write(reply.finish());
}

/// Appends the result of a request to its reply.
fn answer(request: Request<'_>, reply: &mut Reply, device: &Device) -> Result<(), Errno> {
    let node = request.node();
    match request.opcode() {
        opcode::INIT if reply.init(request) => {}
        opcode::INIT => return Err(Errno::PROTO),
        opcode::LOOKUP if node == ROOT && request.name() == NAME.as_bytes() => {
            reply.entry(FILE, |reply| attributes(reply, FILE, device));
        }
        opcode::LOOKUP => return Err(Errno::NOENT),
        // The size is fixed, and no time is kept.
        opcode::SETATTR if request.new_size().is_some_and(|size| size != device.size()) => {
            return Err(Errno::PERM);
        }
        opcode::GETATTR | opcode::SETATTR => {
            reply.attr_out(|reply| attributes(reply, node, device));
        }
        opcode::OPEN => reply.open(),
        opcode::RELEASE => {}
        opcode::READ => {
            let (offset, len) = request.range();
            reply.data(len, |memory| device.read(memory, offset))?;
        }
        opcode::WRITE => {
            let (offset, len) = request.range();
            device.write(request.data(), offset)?;
            reply.written(len);
        }
        // Linux does without the others.
        _ => return Err(Errno::NOSYS),
    }
    Ok(())
}

fn attributes(reply: &mut Reply, node: u64, device: &Device) {
    match node {
        FILE => reply.attr(FILE, 0o100_600, device.size()),
        _ => reply.attr(ROOT, 0o040_700, 0),
    }
}
