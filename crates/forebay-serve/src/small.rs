//! A small server: one thread, a few clients, and requests that fit in memory. A deadline for each
//! request keeps a client from blocking others. Metrics and control use it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_vhost_user::signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::listen::{Listener, is_exhausted};

/// Most clients at a time. Others wait until one has gone.
pub(crate) const MAX_CLIENTS: usize = 8;
/// Pause after the system has run out of a resource.
const PAUSE: Duration = Duration::from_millis(200);

/// The protocol of a small server.
pub(crate) trait Service: Send + 'static {
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
}

/// The answer to the bytes that a client has sent.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The request is incomplete.
    More,
    /// A reply, after which the client may send another request.
    Reply(Vec<u8>),
    /// A reply, after which the connection is closed.
    Last(Vec<u8>),
}

/// The thread of a small server. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct SmallServer {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl SmallServer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start<S: Service>(listener: Listener, service: S) -> io::Result<SmallServer> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(S::NAME.to_owned())
            .spawn(move || serve(&listener, &service, &stopped))?;
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

/// A connection.
struct Client<S: Service> {
    socket: OwnedFd,
    deadline: Instant,
    state: S::Client,
    reply: Option<Reply>,
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

fn serve<S: Service>(listener: &Listener, service: &S, stop: &OwnedFd) {
    let mut clients: Vec<Client<S>> = Vec::new();
    let mut paused_until: Option<Instant> = None;
    loop {
        let now = Instant::now();
        paused_until = paused_until.filter(|until| *until > now);
        let accepts = clients.len() < MAX_CLIENTS && paused_until.is_none();
        let deadline = clients.iter().map(|client| client.deadline).chain(paused_until).min();
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        let listens = if accepts { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(listener, listens));
        fds.extend(clients.iter().map(|client| PollFd::new(&client.socket, client.events())));
        if poll(&mut fds, deadline.map(|until| timespec(until, now)).as_ref()).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        let now = Instant::now();
        let mut was_ready = ready[2..].iter();
        clients.retain_mut(|client| {
            let is_ready = was_ready.next().copied().unwrap_or(false);
            let goes_on = !is_ready || matches!(client.step(service, now), Ok(Progress::Waits));
            goes_on && client.deadline > now
        });
        if ready[1] && accepts {
            match listener.accept() {
                Ok(Some((socket, _))) => clients.push(Client::new(socket, service, now)),
                Ok(None) => {}
                Err(error) => {
                    debug_assert!(is_exhausted(&error), "{error}");
                    paused_until = Some(now + PAUSE);
                }
            }
        }
    }
}

fn timespec(until: Instant, now: Instant) -> Timespec {
    // One millisecond more, so that the deadline has passed when poll returns.
    let left = until.saturating_duration_since(now) + Duration::from_millis(1);
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}

impl<S: Service> Client<S> {
    fn new(socket: OwnedFd, service: &S, now: Instant) -> Client<S> {
        let state = service.accept(socket.as_fd());
        Client { socket, deadline: now + S::DEADLINE, state, reply: None }
    }

    fn events(&self) -> PollFlags {
        if self.reply.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    fn step(&mut self, service: &S, now: Instant) -> io::Result<Progress> {
        if self.reply.is_none() {
            let mut bytes = [0; 2048];
            let len = match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Progress::Done),
                Ok((len, _)) => len,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(Progress::Waits),
                Err(errno) => return Err(errno.into()),
            };
            self.take(service, &bytes[..len]);
        }
        while let Some(reply) = &mut self.reply {
            if matches!(reply.send(&self.socket)?, Progress::Waits) {
                return Ok(Progress::Waits);
            }
            if reply.is_last {
                return Ok(Progress::Done);
            }
            self.deadline = now + S::DEADLINE;
            self.take(service, &[]);
        }
        Ok(Progress::Waits)
    }

    fn take(&mut self, service: &S, bytes: &[u8]) {
        let (bytes, is_last) = match service.receive(&mut self.state, bytes) {
            Answer::More => return self.reply = None,
            Answer::Reply(bytes) => (bytes, false),
            Answer::Last(bytes) => (bytes, true),
        };
        self.reply = Some(Reply { bytes, sent: 0, is_last });
    }
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
