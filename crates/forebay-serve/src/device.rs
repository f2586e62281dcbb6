//! Device for virtual machines: its configuration and its socket.

use crate::clients::SharedOwner;
use crate::config::{DeviceOptions, DeviceSocket};
use crate::error::{ServeError, passed_socket};
use crate::export::Export;
use crate::listen::{Address, Listener};
use forebay::QueueLimits;
use forebay_front::blk::SECTOR;
use forebay_vhost_user::{Capabilities, Config, MAX_RANGES, Shape, WriteCache};
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of the next device of this process.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A device of an export.
#[derive(Debug)]
pub(crate) struct Device {
    /// A number that no other device of this server has had.
    pub(crate) number: usize,
    /// Whether it was added while the server runs.
    pub(crate) was_added: bool,
    /// The socket where its front ends connect.
    pub(crate) listener: Listener,
    /// Index of the export.
    pub(crate) export: usize,
    pub(crate) config: Config,
    /// Size of its blocks, bytes. The size of the export is a multiple of it.
    pub(crate) block_bytes: u32,
    pub(crate) cache: Arc<WriteCache>,
    pub(crate) serial: [u8; DeviceOptions::MAX_SERIAL],
    /// Whether a refusal to register the memory of the front end was logged.
    pub(crate) refusal: Arc<AtomicBool>,
    /// The owner of the I/O of its rings.
    pub(crate) submitter: Arc<SharedOwner>,
}

impl Device {
    /// Opens the socket of a device of an export, which has this size. `register_memory`: the disk
    /// must be able to register memory.
    ///
    /// # Errors
    /// Returns an error if the options are out of range, or if the socket cannot listen.
    pub(crate) fn open(
        options: DeviceOptions,
        (export, size_bytes): (&Export, u64),
        register_memory: bool,
    ) -> Result<Device, ServeError> {
        let refused = |why: String| ServeError::Device { spec: export.spec.clone(), why };
        let shape = shape(&options).map_err(refused)?;
        let nr_bios = export.disk.info().policy.nr_bios;
        if nr_bios < MAX_RANGES {
            return Err(refused(format!(
                "nr_bios={nr_bios}: a discard has up to {MAX_RANGES} ranges, an I/O each: set \
                 nr_bios={MAX_RANGES} or more, or leave it out"
            )));
        }
        if register_memory && !export.disk.can_register_memory() {
            return Err(refused(
                "it cannot register memory (--register-memory): that needs a file or block device \
                 with engine=io_uring and without fixed_buffers, on Linux 5.19 or later: leave the \
                 option out"
                    .to_owned(),
            ));
        }
        let serial = serial(&options.serial).map_err(refused)?;
        let capabilities = Capabilities {
            read_only: export.can.read_only,
            discard: export.can.trim,
            write_zeroes: export.can.write_zeroes,
            unmap: export.facts.discards_to_zeroes,
        };
        let limits = limits(export.disk.limits(), size_bytes, options.block_size);
        let limits = limits.map_err(refused)?;
        let config = Config::new(&limits, size_bytes, capabilities, shape);
        let block_bytes = limits.logical_block_size;
        let listener = listener(options.socket)?;
        Ok(Device {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            was_added: false,
            listener,
            export: options.export,
            config,
            block_bytes,
            cache: Arc::default(),
            serial,
            refusal: Arc::default(),
            submitter: Arc::default(),
        })
    }

    /// Returns the spec by which programs on this machine open the disk.
    pub(crate) fn spec(&self) -> String {
        format!("vhost-user:{}", self.path())
    }

    /// Makes the socket refuse connections, unless a service manager has passed it: then the
    /// manager uses it again.
    pub(crate) fn refuse_connections(&self) {
        if self.was_added || self.listener.file().is_some() {
            // It listens, so this does not fail.
            let _ = shutdown(&self.listener, Shutdown::Both);
        }
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> String {
        match self.listener.address() {
            Address::Unix(path) => path.display().to_string(),
            address => address.to_string(),
        }
    }
}

/// The devices of a server, which may be added and removed while it runs.
#[derive(Debug)]
pub(crate) struct DeviceList(Mutex<Vec<Arc<Device>>>);

impl DeviceList {
    pub(crate) fn new(devices: Vec<Device>) -> DeviceList {
        DeviceList(Mutex::new(devices.into_iter().map(Arc::new).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Device>>> {
        // Each change under this lock is complete even if a panic follows.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all devices.
    pub(crate) fn all(&self) -> Vec<Arc<Device>> {
        self.lock().clone()
    }

    /// Returns the devices of the export with this index.
    pub(crate) fn of_export(&self, export: usize) -> Vec<Arc<Device>> {
        self.lock().iter().filter(|device| device.export == export).cloned().collect()
    }

    pub(crate) fn add(&self, device: &Arc<Device>) {
        self.lock().push(Arc::clone(device));
    }

    /// Removes the devices of the export with this index.
    pub(crate) fn remove(&self, export: usize) {
        self.lock().retain(|device| device.export != export);
    }
}

/// Returns the line for the log if virtual machines do not see the end of a disk: devices have
/// sectors of 512 bytes, and a file may have any length.
pub(crate) fn unseen_end(size_bytes: u64) -> Option<String> {
    let unseen = size_bytes % SECTOR;
    (unseen > 0).then(|| {
        format!(
            "virtual machines do not see the last {unseen} of its {size_bytes} bytes, which are \
             not a whole sector of {SECTOR} bytes: extend the disk to whole sectors"
        )
    })
}

fn shape(options: &DeviceOptions) -> Result<Shape, String> {
    let &DeviceOptions { nr_queues, queue_size, .. } = options;
    let (min, max) = (DeviceOptions::MIN_QUEUE_SIZE, DeviceOptions::MAX_QUEUE_SIZE);
    if !(1..=DeviceOptions::MAX_QUEUES).contains(&nr_queues) {
        let max = DeviceOptions::MAX_QUEUES;
        return Err(format!("{nr_queues} queues: expected 1 to {max}"));
    }
    if !queue_size.is_power_of_two() || !(min..=max).contains(&queue_size) {
        return Err(format!("queue size {queue_size}: expected a power of two, {min} to {max}"));
    }
    Ok(Shape { nr_queues, queue_size })
}

/// Returns the limits of the disk, with this block size.
fn limits(
    limits: &QueueLimits,
    size_bytes: u64,
    block_size: Option<u32>,
) -> Result<QueueLimits, String> {
    let own = limits.logical_block_size;
    let Some(block) = block_size else { return Ok(*limits) };
    let max = DeviceOptions::MAX_BLOCK;
    if !block.is_power_of_two() || !(512..=max).contains(&block) {
        return Err(format!("block size {block}: expected a power of two, 512 to {max}"));
    }
    if block < own {
        return Err(format!("block size {block} is too small: the disk has blocks of {own} bytes"));
    }
    if !size_bytes.is_multiple_of(block.into()) {
        return Err(format!(
            "block size {block}: the disk's {size_bytes} bytes are not a multiple of it"
        ));
    }
    let physical = limits.physical_block_size.max(block);
    Ok(limits.logical_block_size(block).physical_block_size(physical))
}

/// Returns a serial number, padded with zero bytes.
fn serial(text: &str) -> Result<[u8; DeviceOptions::MAX_SERIAL], String> {
    let mut serial = [0; DeviceOptions::MAX_SERIAL];
    let place = serial.get_mut(..text.len());
    let place = place.ok_or_else(|| {
        let max = DeviceOptions::MAX_SERIAL;
        format!("the serial number `{text}` is longer than {max} bytes")
    })?;
    place.copy_from_slice(text.as_bytes());
    Ok(serial)
}

fn listener(socket: DeviceSocket) -> Result<Listener, ServeError> {
    match socket {
        DeviceSocket::Path(path) => Ok(Listener::open(&Address::Unix(path))?),
        DeviceSocket::Passed(socket) => {
            let failed = passed_socket(socket.as_raw_fd());
            if !socket_acceptconn(&socket).map_err(|errno| failed(errno.into()))? {
                return Err(failed(io::Error::other("the socket does not listen")));
            }
            let listener = Listener::adopt(socket).map_err(&failed)?;
            match listener.address() {
                Address::Unix(_) => Ok(listener),
                Address::Tcp { .. } => {
                    Err(failed(io::Error::other("vhost-user needs a unix socket")))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_that_virtual_machines_do_not_see_is_reported() {
        assert_eq!(unseen_end(0), None);
        assert_eq!(unseen_end(1024), None);
        let line = unseen_end(1000).expect("488 bytes");
        assert!(line.starts_with("virtual machines do not see the last 488 of its 1000"), "{line}");
    }
}
