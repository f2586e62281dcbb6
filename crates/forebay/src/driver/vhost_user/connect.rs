//! Connection setup: handshake, shared memory and rings.
//!
//! Source: QEMU's "Vhost-user Protocol" (docs/interop/vhost-user.rst). The crate `vhost` has the
//! messages. All rings are set up here, before the first request. So no message follows, and the
//! memory table never changes while the server uses it.
//!
//! The crate's calls block, and repeat a call that a time limit has ended. So a watchdog ends the
//! handshake with a server that does not answer: it shuts the stream down.
// It passes descriptors of its own to the crate's type.
#![allow(unsafe_code)]

use super::config::{self, Config, Features};
use super::geometry::{Area, Geometry};
use super::link::Link;
use super::region::{BASE, Region};
use super::requests::Queue;
use crate::driver::deadline::Deadline;
use crate::driver::refusal::Refusal;
use crate::driver::socket::Socket;
use crate::sys::event::Event;
use forebay_nbd::uri::Address;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserVirtioFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// The time limit of the connection and its handshake.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol features that this driver uses.
const PROTOCOL: Protocol = Protocol::MQ.union(Protocol::CONFIG).union(Protocol::REPLY_ACK);

/// A connection whose device is known, and whose rings are not set up.
#[allow(missing_debug_implementations, reason = "the crate's type has no `Debug`")]
pub(super) struct Greeted {
    frontend: Frontend,
    stream: UnixStream,
    watchdog: Watchdog,
    pub(super) features: Features,
    pub(super) config: Config,
}

/// A queue of an open device, ready for use.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) queue: Queue,
    /// Signalled by the device for interrupts.
    pub(super) call: Arc<Event>,
    /// Signalled by the driver for kicks.
    pub(super) kick: Arc<Event>,
}

/// An open device.
#[allow(missing_debug_implementations, reason = "the crate's type has no `Debug`")]
pub(super) struct Connected {
    pub(super) link: Link,
    pub(super) queues: Vec<Ready>,
}

/// Connects to the server at a path and reads the properties of its device.
///
/// # Errors
/// Returns what failed, and what to do.
pub(super) fn greet(path: &str, timeout: Duration) -> Result<Greeted, Refusal> {
    let address = Address::Unix(path.as_bytes().to_vec());
    let socket = Socket::connect(&address, Deadline::after(Some(timeout)))
        .and_then(|socket| socket.set_timeout(None).map(|()| socket))
        .map_err(|error| {
            let why = cannot_connect(&error, timeout);
            Refusal::by(error, why)
        })?;
    let stream = UnixStream::from(OwnedFd::from(socket));
    let watchdog = Watchdog::start(&stream, timeout).map_err(|error| {
        let why = format!("cannot start a thread: {error}");
        Refusal::by(error, why)
    })?;
    let kept = stream.try_clone()?;
    let mut frontend = Frontend::from_stream(stream, 1);
    let found = shake_hands(&mut frontend).map_err(|why| watchdog.explain(why))?;
    let (features, config) = found;
    Ok(Greeted { frontend, stream: kept, watchdog, features, config })
}

fn shake_hands(frontend: &mut Frontend) -> Result<(Features, Config), String> {
    frontend.set_owner().map_err(failed("SET_OWNER"))?;
    let offered = frontend.get_features().map_err(failed("GET_FEATURES"))?;
    let features = Features::negotiate(offered)?;
    let has_protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    if offered & has_protocol == 0 {
        return Err(no_config());
    }
    let protocol = frontend.get_protocol_features().map_err(failed("GET_PROTOCOL_FEATURES"))?;
    let protocol = protocol & PROTOCOL;
    if !protocol.contains(Protocol::CONFIG) {
        return Err(no_config());
    }
    frontend.set_protocol_features(protocol).map_err(failed("SET_PROTOCOL_FEATURES"))?;
    if protocol.contains(Protocol::REPLY_ACK) {
        // The server reports each message that it refuses.
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    let mut nr_queues = 1;
    if protocol.contains(Protocol::MQ) {
        nr_queues = frontend.get_queue_num().map_err(failed("GET_QUEUE_NUM"))?;
    }
    frontend.set_features(features.bits() | has_protocol).map_err(failed("SET_FEATURES"))?;
    let (_, space) = frontend
        .get_config(0, config::LEN as u32, VhostUserConfigFlags::empty(), &[0; config::LEN])
        .map_err(failed("GET_CONFIG"))?;
    let space = space.as_slice().try_into();
    let space = space.map_err(|_| "the server's configuration has another length".to_owned())?;
    let mut config = Config::parse(space, features)?;
    config.nr_queues = config.nr_queues.min(u16::try_from(nr_queues).unwrap_or(u16::MAX));
    match config.nr_queues {
        0 => Err(String::from("the server has no queues")),
        _ => Ok((features, config)),
    }
}

impl Greeted {
    /// Sets up `nr` queues of this shape, at most as many as the device has.
    ///
    /// # Errors
    /// Returns what failed.
    pub(super) fn set_up(mut self, geometry: Geometry, nr: u32) -> Result<Connected, String> {
        let error = Event::new()
            .map(Arc::new)
            .map_err(|error| format!("cannot create an eventfd: {error}"))?;
        let queues = self.set_up_rings(geometry, nr, &error);
        let queues = queues.map_err(|why| self.watchdog.explain(why))?;
        self.watchdog.stop();
        if self.watchdog.has_bitten() {
            return Err(self.watchdog.explain(String::new()));
        }
        let link = Link::new(self.stream, error).map_err(|error| error.to_string())?;
        Ok(Connected { link, queues })
    }

    fn set_up_rings(
        &mut self,
        geometry: Geometry,
        nr: u32,
        error: &Event,
    ) -> Result<Vec<Ready>, String> {
        let len = geometry.queue_len();
        let region = len.checked_mul(nr as usize).ok_or(io::ErrorKind::OutOfMemory.into());
        let region = region.and_then(Region::new);
        let (region, file) =
            region.map_err(|error| format!("cannot create memory to share: {error}"))?;
        let table = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: region.len() as u64,
            userspace_addr: BASE,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        self.frontend.set_mem_table(&[table]).map_err(failed("SET_MEM_TABLE"))?;
        let region = Arc::new(region);
        let place = |nth| Area::new(geometry, nth * len);
        (0..nr as usize).map(|nth| self.set_up_ring(nth, &region, place(nth), error)).collect()
    }

    fn set_up_ring(
        &mut self,
        nth: usize,
        region: &Arc<Region>,
        area: Area,
        error: &Event,
    ) -> Result<Ready, String> {
        let queue = Queue::new(Arc::clone(region), area, self.features.has_event_idx());
        let event = || {
            Event::new().map(Arc::new).map_err(|error| format!("cannot create an eventfd: {error}"))
        };
        let (call, kick) = (event()?, event()?);
        let size = area.geometry.queue_size;
        let [descriptors, available, used] = area.layout.addrs();
        let places = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: descriptors,
            used_ring_addr: used,
            avail_ring_addr: available,
            log_addr: None,
        };
        let frontend = &mut self.frontend;
        frontend.set_vring_num(nth, size).map_err(|error| {
            let why = failed("SET_VRING_NUM")(error);
            format!("{why}; the ring has {size} descriptors: try a smaller queue_size")
        })?;
        frontend.set_vring_addr(nth, &places).map_err(failed("SET_VRING_ADDR"))?;
        frontend.set_vring_base(nth, 0).map_err(failed("SET_VRING_BASE"))?;
        frontend.set_vring_call(nth, &shared(&call)?).map_err(failed("SET_VRING_CALL"))?;
        frontend.set_vring_err(nth, &shared(error)?).map_err(failed("SET_VRING_ERR"))?;
        frontend.set_vring_kick(nth, &shared(&kick)?).map_err(failed("SET_VRING_KICK"))?;
        frontend.set_vring_enable(nth, true).map_err(failed("SET_VRING_ENABLE"))?;
        Ok(Ready { queue, call, kick })
    }
}

/// Returns a duplicate of an event in the crate's type.
fn shared(event: &Event) -> Result<EventFd, String> {
    let fd = event
        .fd()
        .try_clone_to_owned()
        .map_err(|error| format!("cannot duplicate an eventfd: {error}"))?;
    // SAFETY: the descriptor is new, and this is its only owner.
    Ok(unsafe { EventFd::from_raw_fd(fd.into_raw_fd()) })
}

fn no_config() -> String {
    String::from(
        "the server does not offer the protocol feature CONFIG, which a disk needs: check that it \
         serves vhost-user-blk",
    )
}

/// Returns the conversion of a failed message to the reason.
fn failed(message: &'static str) -> impl FnOnce(vhost::Error) -> String {
    move |error| format!("{message} failed: {error}")
}

fn cannot_connect(error: &io::Error, timeout: Duration) -> String {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; there is no such socket: start the server, or check the path",
        io::ErrorKind::ConnectionRefused => {
            "; no program listens there: start the server, or check the path"
        }
        io::ErrorKind::PermissionDenied => "; the socket's permissions do not allow it",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            return format!("cannot connect within {timeout:?}");
        }
        _ => "",
    };
    format!("cannot connect: {error}{hint}")
}

/// A thread that shuts a stream down if the handshake takes too long.
#[derive(Debug)]
struct Watchdog {
    /// Dropping it ends the thread.
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    timeout: Duration,
    /// Relaxed: the end of the stream, which it causes, is what counts.
    has_bitten: Arc<AtomicBool>,
}

impl Watchdog {
    fn start(stream: &UnixStream, timeout: Duration) -> io::Result<Watchdog> {
        let stream = stream.try_clone()?;
        let has_bitten = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_bitten);
        let (over, end) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("forebay-connect".into());
        let thread = thread.spawn(move || {
            if end.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                flag.store(true, Ordering::Relaxed);
                let _ = stream.shutdown(Shutdown::Both);
            }
        })?;
        Ok(Watchdog { over: Some(over), thread: Some(thread), timeout, has_bitten })
    }

    fn has_bitten(&self) -> bool {
        self.has_bitten.load(Ordering::Relaxed)
    }

    /// Returns the reason of a failed handshake.
    fn explain(&self, why: String) -> String {
        match self.has_bitten() {
            true => format!(
                "no answer within {:?}: check that it is a vhost-user-blk server without another \
                 client",
                self.timeout
            ),
            false => why,
        }
    }

    /// Ends the thread.
    fn stop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn silent_server_ends_the_handshake_with_the_time_limit() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("s");
        // The kernel accepts the connection, and no program ever answers.
        let _listener = UnixListener::bind(&path).expect("a socket");
        let path = path.to_str().expect("a path in UTF-8");
        let error = greet(path, Duration::from_millis(20)).err().expect("no answer").to_string();
        assert!(error.starts_with("no answer within 20ms: check"), "{error}");
    }
}
