//! A small server: one thread, a few clients, and requests that fit in memory. A deadline for each
//! request keeps a client from blocking others. A request that may take long has a thread of its
//! own. The socket of [`Insight`](crate::Insight) uses it, and the metrics and the control socket
//! of `forebay serve`.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

/// Most clients at a time. Others wait until one has gone.
pub const MAX_CLIENTS: usize = 8;
/// Pause after the system has run out of a resource.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for the threads of requests when the server ends.
pub const WORK_END: Duration = Duration::from_secs(15);
/// Most descriptors that one message of a client may have. The kernel closes the others.
const MAX_DESCRIPTORS: usize = 64;

/// A listening socket.
pub trait Accept: AsFd + Send + 'static {
    /// Accepts the next connection, which does not block. Returns `None` if none is waiting.
    ///
    /// # Errors
    /// Returns an error if a resource has run out. The server then pauses.
    fn accept(&self) -> io::Result<Option<OwnedFd>>;
}

/// The protocol of a small server.
pub trait Service: Send + 'static {
    /// Name of the thread.
    const NAME: &'static str;
    /// Deadline of a request with its reply, from the connection or the last reply on.
    const DEADLINE: Duration;
    /// The state of a client.
    type Client: Send;

    /// Returns the state of a new client.
    fn accept(&self, socket: BorrowedFd<'_>) -> Self::Client;

    /// Takes bytes of a client. Returns the reply to its next request, if that is complete. Called
    /// again without bytes when the reply was sent, because another request may have come with it.
    fn receive(&self, client: &mut Self::Client, bytes: &[u8]) -> Answer;

    /// Takes descriptors that a client has sent with its next bytes.
    fn take_descriptors(&self, _client: &mut Self::Client, _descriptors: Vec<OwnedFd>) {}
}

/// Work that returns a reply.
pub type Work = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// The answer to the bytes that a client has sent.
pub enum Answer {
    /// The request is incomplete.
    More,
    /// A reply, after which the client may send another request.
    Reply(Vec<u8>),
    /// A reply, after which the connection is closed.
    Last(Vec<u8>),
    /// Work for a thread of its own, which returns the reply. The client may send another request
    /// after that.
    Work(Work),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::More => f.write_str("More"),
            Answer::Reply(bytes) => f.debug_tuple("Reply").field(bytes).finish(),
            Answer::Last(bytes) => f.debug_tuple("Last").field(bytes).finish(),
            Answer::Work(_) => f.write_str("Work"),
        }
    }
}

/// The thread of a small server. Dropping this ends it.
#[derive(Debug)]
pub struct SmallServer {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl SmallServer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start<S: Service>(listener: impl Accept, service: S) -> io::Result<SmallServer> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let (stopped, workers) = (Arc::clone(&stop), Workers::new()?);
        let thread = std::thread::Builder::new()
            .name(S::NAME.to_owned())
            .spawn(move || serve(&listener, &service, &stopped, workers))?;
        Ok(SmallServer { stop, thread: Some(thread) })
    }
}

impl Drop for SmallServer {
    fn drop(&mut self) {
        signal(&self.stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already, and no caller can handle it.
            let _ = thread.join();
        }
    }
}

/// Threads of requests that take long.
struct Workers {
    /// Sends a reply, with the number of its request.
    sender: Sender<(u64, Vec<u8>)>,
    replies: Receiver<(u64, Vec<u8>)>,
    /// Readable when there is a reply.
    event: Arc<OwnedFd>,
    nr_started: u64,
    nr_running: usize,
}

impl Workers {
    fn new() -> io::Result<Workers> {
        let (sender, replies) = channel();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Workers { sender, replies, event: Arc::new(event), nr_started: 0, nr_running: 0 })
    }

    /// Starts the thread of a request, and returns the number of the request.
    fn start(&mut self, name: &str, work: Work) -> io::Result<u64> {
        let nr = self.nr_started;
        let (sender, event) = (self.sender.clone(), Arc::clone(&self.event));
        let end = WorkEnd { nr, reply: None, sender, event };
        std::thread::Builder::new().name(format!("{name}-work")).spawn(move || {
            let mut end = end;
            end.reply = Some(work());
        })?;
        self.nr_started += 1;
        self.nr_running += 1;
        Ok(nr)
    }

    /// Returns the replies that are there.
    fn take(&mut self) -> Vec<(u64, Vec<u8>)> {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let replies: Vec<_> = self.replies.try_iter().collect();
        self.nr_running -= replies.len();
        replies
    }

    /// Waits until the threads have ended, but not for one that waits for a disk too long.
    fn end(mut self) {
        let until = Instant::now() + WORK_END;
        while self.nr_running > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if self.replies.recv_timeout(left).is_err() {
                return;
            }
            self.nr_running -= 1;
        }
    }
}

/// Sends the reply of a request when its thread ends, even by a panic.
struct WorkEnd {
    nr: u64,
    reply: Option<Vec<u8>>,
    sender: Sender<(u64, Vec<u8>)>,
    event: Arc<OwnedFd>,
}

impl Drop for WorkEnd {
    fn drop(&mut self) {
        // An empty reply closes the connection. The send fails if the server has ended.
        let _ = self.sender.send((self.nr, self.reply.take().unwrap_or_default()));
        signal(&self.event);
    }
}

/// A connection.
struct Client<S: Service> {
    socket: OwnedFd,
    /// `None` while a thread works on its request.
    deadline: Option<Instant>,
    state: S::Client,
    next: Next,
}

/// Event for which a client waits.
enum Next {
    /// Its next bytes.
    Bytes,
    /// The thread of the request with this number.
    Work(u64),
    /// Room in the socket for a reply.
    Reply(Reply),
}

#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    sent: usize,
    is_last: bool,
}

enum Progress {
    Waits,
    Done,
}

fn serve<S: Service>(listener: &impl Accept, service: &S, stop: &OwnedFd, mut workers: Workers) {
    let mut clients: Vec<Client<S>> = Vec::new();
    let mut paused_until: Option<Instant> = None;
    loop {
        let now = Instant::now();
        paused_until = paused_until.filter(|until| *until > now);
        let accepts = clients.len() < MAX_CLIENTS && paused_until.is_none();
        let deadlines = clients.iter().filter_map(|client| client.deadline);
        let deadline = deadlines.chain(paused_until).min();
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        let listens = if accepts { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(listener, listens));
        fds.push(PollFd::new(&workers.event, PollFlags::IN));
        fds.extend(clients.iter().map(|client| PollFd::new(&client.socket, client.events())));
        if poll(&mut fds, deadline.map(|until| timespec(until, now)).as_ref()).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            drop(clients);
            workers.end();
            return;
        }
        let now = Instant::now();
        let mut replies = if ready[2] { workers.take() } else { Vec::new() };
        let mut was_ready = ready[3..].iter();
        clients.retain_mut(|client| {
            let mut is_ready = was_ready.next().copied().unwrap_or(false);
            if let Next::Work(nr) = client.next
                && let Some(at) = replies.iter().position(|(of, _)| *of == nr)
            {
                client.reply(replies.swap_remove(at).1, now + S::DEADLINE);
                is_ready = true;
            }
            let goes_on =
                !is_ready || matches!(client.step(service, now, &mut workers), Ok(Progress::Waits));
            goes_on && client.deadline.is_none_or(|deadline| deadline > now)
        });
        if ready[1] && accepts {
            match listener.accept() {
                Ok(Some(socket)) => clients.push(Client::new(socket, service, now)),
                Ok(None) => {}
                Err(_) => paused_until = Some(now + PAUSE),
            }
        }
    }
}

/// Makes an eventfd readable.
fn signal(event: &OwnedFd) {
    // The write fails only if the count is at its maximum, and then the eventfd is readable.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

fn timespec(until: Instant, now: Instant) -> Timespec {
    // One millisecond more, so that the deadline has passed when poll returns.
    let left = until.saturating_duration_since(now) + Duration::from_millis(1);
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}

impl<S: Service> Client<S> {
    fn new(socket: OwnedFd, service: &S, now: Instant) -> Client<S> {
        let state = service.accept(socket.as_fd());
        Client { socket, deadline: Some(now + S::DEADLINE), state, next: Next::Bytes }
    }

    fn events(&self) -> PollFlags {
        match self.next {
            Next::Bytes => PollFlags::IN,
            // The end of the connection is reported all the same.
            Next::Work(_) => PollFlags::empty(),
            Next::Reply(_) => PollFlags::OUT,
        }
    }

    /// Sets the reply of a request that had a thread.
    fn reply(&mut self, bytes: Vec<u8>, deadline: Instant) {
        let is_last = bytes.is_empty();
        self.next = Next::Reply(Reply { bytes, sent: 0, is_last });
        self.deadline = Some(deadline);
    }

    fn step(&mut self, service: &S, now: Instant, workers: &mut Workers) -> io::Result<Progress> {
        match self.next {
            Next::Bytes => {
                let mut bytes = [0; 2048];
                let (len, descriptors) = match receive(&self.socket, &mut bytes) {
                    Ok((0, _)) => return Ok(Progress::Done),
                    Ok(received) => received,
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(Progress::Waits),
                    Err(errno) => return Err(errno.into()),
                };
                if !descriptors.is_empty() {
                    service.take_descriptors(&mut self.state, descriptors);
                }
                self.take(service, &bytes[..len], workers)?;
            }
            // The client has gone.
            Next::Work(_) => return Ok(Progress::Done),
            Next::Reply(_) => {}
        }
        while let Next::Reply(reply) = &mut self.next {
            if matches!(reply.send(&self.socket)?, Progress::Waits) {
                return Ok(Progress::Waits);
            }
            if reply.is_last {
                return Ok(Progress::Done);
            }
            self.deadline = Some(now + S::DEADLINE);
            self.take(service, &[], workers)?;
        }
        Ok(Progress::Waits)
    }

    fn take(&mut self, service: &S, bytes: &[u8], workers: &mut Workers) -> io::Result<()> {
        let (bytes, is_last) = match service.receive(&mut self.state, bytes) {
            Answer::More => {
                self.next = Next::Bytes;
                return Ok(());
            }
            Answer::Work(work) => {
                self.next = Next::Work(workers.start(S::NAME, work)?);
                self.deadline = None;
                return Ok(());
            }
            Answer::Reply(bytes) => (bytes, false),
            Answer::Last(bytes) => (bytes, true),
        };
        self.next = Next::Reply(Reply { bytes, sent: 0, is_last });
        Ok(())
    }
}

/// Receives bytes, and the descriptors that were sent with them.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(bytes)];
    let received = recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

impl Reply {
    fn send(&mut self, socket: impl AsFd) -> io::Result<Progress> {
        while self.sent < self.bytes.len() {
            match send(&socket, &self.bytes[self.sent..], SendFlags::NOSIGNAL) {
                Ok(len) => self.sent += len,
                Err(Errno::AGAIN) => return Ok(Progress::Waits),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Progress::Done)
    }
}
