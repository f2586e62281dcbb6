//! A small HTTP server for metrics: `GET /metrics`, `GET /diskstats` and nothing else, with one
//! request for each connection.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use super::registry::Counters;
use super::text::{CONTENT_TYPE, Exposition};
use crate::listen::{Address, AddressError, ListenError, Listener};
use forebay_insight::small::{Answer, Service, SmallServer};

/// Port for metrics if none is given.
pub(super) const METRICS_PORT: u16 = 9809;
/// Longest request. Prometheus sends less than 1 KiB.
const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Deadline of a request with its reply: a scraper gives up after 10 s by default.
const DEADLINE: Duration = Duration::from_secs(10);

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
    pub(crate) fn start(self) -> Result<SmallServer, EndpointError> {
        let Endpoint { listener, exposition } = self;
        Ok(SmallServer::start(listener, exposition)?)
    }
}

/// A client sends one request, receives the reply, and is disconnected.
impl Service for Exposition {
    const NAME: &'static str = "metrics";
    const DEADLINE: Duration = DEADLINE;
    /// The request so far.
    type Client = Vec<u8>;

    fn accept(&self, _socket: BorrowedFd<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn receive(&self, request: &mut Vec<u8>, bytes: &[u8]) -> Answer {
        request.extend_from_slice(bytes);
        let text = |page| match page {
            Page::Metrics => self.text().ok(),
            Page::Diskstats => Some(self.diskstats()),
        };
        answer(request, text).map_or(Answer::More, Answer::Last)
    }
}

/// A page of the server.
#[derive(Clone, Copy, Debug)]
enum Page {
    /// All metrics, as OpenMetrics.
    Metrics,
    /// The disks, as lines of `/proc/diskstats`.
    Diskstats,
}

impl Page {
    /// Returns the page at this path.
    fn at(path: &str) -> Option<Page> {
        match path {
            "/metrics" => Some(Page::Metrics),
            "/diskstats" => Some(Page::Diskstats),
            _ => None,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Page::Metrics => CONTENT_TYPE,
            Page::Diskstats => PLAIN_TEXT,
        }
    }
}

/// Content type of a text without a format of its own.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Returns the reply to the bytes received so far; `None` if the request is incomplete. `text`
/// returns the text of a page, or `None` if it cannot be made.
fn answer(request: &[u8], text: impl FnOnce(Page) -> Option<String>) -> Option<Vec<u8>> {
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
    let mut body = match (parsed.method, Page::at(path)) {
        (Some("GET" | "HEAD"), Some(page)) => match text(page) {
            Some(text) => Body { kind: page.content_type(), bytes: text.into_bytes() },
            None => {
                let body = Body::text("cannot format the metrics\n");
                return Some(reply("500 Internal Server Error", "", body));
            }
        },
        (Some("GET" | "HEAD"), None) => {
            let body = Body::text("not found: only /metrics and /diskstats exist\n");
            return Some(reply("404 Not Found", "", body));
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
        Body { kind: PLAIN_TEXT, bytes: text.into() }
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
