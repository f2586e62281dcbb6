//! A small HTTP server for metrics: `GET /metrics` and nothing else. It has one thread, a few
//! connections with one request each, and a short deadline, so that no client can block it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_vhost_user::signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::process::Process;
use super::registry::Counters;
use super::text::{CONTENT_TYPE, Exposition};
use crate::listen::{Address, AddressError, ListenError, Listener, is_exhausted};

/// Port for metrics if none is given.
pub(super) const METRICS_PORT: u16 = 9809;
/// Most connections: scrapers are few, and none needs two.
const MAX_CONNECTIONS: usize = 8;
/// Longest request. Prometheus sends less than 1 KiB.
const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Deadline of a request with its reply: a scraper gives up after 10 s by default.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause after the system has run out of a resource.
const PAUSE: Duration = Duration::from_millis(200);

/// Parses the address where metrics are served: an [`Address`] whose host is 127.0.0.1 if the text
/// has none, so that no other machine can connect by accident, and whose port is 9809 if it has
/// none.
///
/// # Errors
/// Returns an error if the text is not an address.
pub fn metrics_address(text: &str) -> Result<Address, AddressError> {
    Address::parse(text, Some("127.0.0.1"), METRICS_PORT)
}

/// A socket for metrics that is open, but not served yet.
#[derive(Debug)]
pub(crate) struct Endpoint {
    listener: Listener,
    exposition: Exposition,
}

/// Error of serving metrics.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The server cannot listen at the address.
    #[error("metrics: {0}")]
    Listen(#[from] ListenError),
    /// Files of `/proc` cannot be opened, or a thread cannot be started.
    #[error("metrics: {0}")]
    System(#[from] io::Error),
}

impl Endpoint {
    /// Opens all that is needed, so that the process may be confined afterwards.
    ///
    /// # Errors
    /// Returns an error if it cannot listen at `address`.
    pub(crate) fn open(
        address: &Address,
        counters: Arc<Counters>,
    ) -> Result<Endpoint, EndpointError> {
        let exposition = Exposition::new(counters, Process::open()?);
        Ok(Endpoint { listener: Listener::open(address)?, exposition })
    }

    /// Returns the URL `http://127.0.0.1:9809/metrics`, or the path of a socket.
    pub(crate) fn place(&self) -> String {
        match self.listener.address() {
            Address::Tcp { host, port } if host.contains(':') => {
                format!("http://[{host}]:{port}/metrics")
            }
            Address::Tcp { host, port } => format!("http://{host}:{port}/metrics"),
            unix => unix.to_string(),
        }
    }

    /// Returns the socket file.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.listener.file()
    }

    /// Starts the thread that serves metrics.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(self) -> Result<MetricsServer, EndpointError> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || serve(&self, &stopped))?;
        Ok(MetricsServer { stop, thread: Some(thread) })
    }
}

/// The thread that serves metrics. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        signal(&self.stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already, and no caller can handle it.
            let _ = thread.join();
        }
    }
}

/// A connection: it sends a request, receives the reply, and is closed.
#[derive(Debug)]
struct Scraper {
    socket: OwnedFd,
    deadline: Instant,
    request: Vec<u8>,
    reply: Option<Reply>,
}

#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    sent: usize,
}

enum Progress {
    Waits,
    Done,
}

fn serve(endpoint: &Endpoint, stop: &OwnedFd) {
    let mut scrapers: Vec<Scraper> = Vec::new();
    let mut paused_until: Option<Instant> = None;
    loop {
        let now = Instant::now();
        paused_until = paused_until.filter(|until| *until > now);
        let accepts = scrapers.len() < MAX_CONNECTIONS && paused_until.is_none();
        let deadline = scrapers.iter().map(|scraper| scraper.deadline).chain(paused_until).min();
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        let listens = if accepts { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(&endpoint.listener, listens));
        fds.extend(scrapers.iter().map(|scraper| PollFd::new(&scraper.socket, scraper.events())));
        if poll(&mut fds, deadline.map(|until| timespec(until, now)).as_ref()).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        let now = Instant::now();
        let mut was_ready = ready[2..].iter();
        scrapers.retain_mut(|scraper| {
            let is_ready = was_ready.next().copied().unwrap_or(false);
            let goes_on = !is_ready || matches!(scraper.step(endpoint), Ok(Progress::Waits));
            goes_on && scraper.deadline > now
        });
        if ready[1] && accepts {
            match endpoint.listener.accept() {
                Ok(Some((socket, _))) => scrapers.push(Scraper::new(socket, now)),
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

impl Scraper {
    fn new(socket: OwnedFd, now: Instant) -> Scraper {
        Scraper { socket, deadline: now + DEADLINE, request: Vec::new(), reply: None }
    }

    fn events(&self) -> PollFlags {
        if self.reply.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    fn step(&mut self, endpoint: &Endpoint) -> io::Result<Progress> {
        if self.reply.is_none() {
            let mut bytes = [0; 2048];
            let len = match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Progress::Done),
                Ok((len, _)) => len,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(Progress::Waits),
                Err(errno) => return Err(errno.into()),
            };
            self.request.extend_from_slice(&bytes[..len]);
            self.reply = answer(&self.request, || endpoint.exposition.text().ok())
                .map(|bytes| Reply { bytes, sent: 0 });
        }
        match &mut self.reply {
            Some(reply) => reply.send(&self.socket),
            None => Ok(Progress::Waits),
        }
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

/// Returns the reply to the bytes received so far; `None` if the request is incomplete.
fn answer(request: &[u8], text: impl FnOnce() -> Option<String>) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < MAX_REQUEST_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(reply(
                "431 Request Header Fields Too Large",
                "",
                Body::text("too large\n"),
            ));
        }
        Err(_) => return Some(reply("400 Bad Request", "", Body::text("not an HTTP request\n"))),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let is_head = parsed.method == Some("HEAD");
    let mut body = match (parsed.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => match text() {
            Some(text) => Body { kind: CONTENT_TYPE, bytes: text.into_bytes() },
            None => {
                let body = Body::text("cannot format the metrics\n");
                return Some(reply("500 Internal Server Error", "", body));
            }
        },
        (Some("GET" | "HEAD"), _) => {
            return Some(reply(
                "404 Not Found",
                "",
                Body::text("not found: only /metrics exists\n"),
            ));
        }
        _ => {
            let allow = "Allow: GET, HEAD\r\n";
            return Some(reply("405 Method Not Allowed", allow, Body::text("GET it\n")));
        }
    };
    let len = body.bytes.len();
    if is_head {
        body.bytes.clear();
    }
    Some(reply_of("200 OK", "", &body, len))
}

struct Body {
    kind: &'static str,
    bytes: Vec<u8>,
}

impl Body {
    fn text(text: &str) -> Body {
        Body { kind: "text/plain; charset=utf-8", bytes: text.into() }
    }
}

fn reply(status: &str, header: &str, body: Body) -> Vec<u8> {
    reply_of(status, header, &body, body.bytes.len())
}

fn reply_of(status: &str, header: &str, body: &Body, len: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{header}Content-Type: {}\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n",
        body.kind
    );
    [head.as_bytes(), &body.bytes].concat()
}

#[cfg(test)]
mod tests;
