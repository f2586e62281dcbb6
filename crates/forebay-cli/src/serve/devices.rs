//! Options of devices for virtual machines: vhost-user-blk.
//!
//! Each device has a socket of its own. Options of single devices are repeated in the order of the
//! disks, as `--name` is. The options of QEMU's conventions for such programs exist too
//! (`docs/interop/vhost-user.rst`): `--socket-path`, `--fd`, `--print-capabilities`, `--blk-file`.

use super::activation;
use crate::failure::Failure;
use crate::number;
use clap::Args;
use forebay_serve::{Address, DeviceOptions, DeviceSocket};
use std::path::PathBuf;

const MAX_QUEUES: u64 = DeviceOptions::MAX_QUEUES as u64;
const MIN_QUEUE_SIZE: u64 = DeviceOptions::MIN_QUEUE_SIZE as u64;
const MAX_QUEUE_SIZE: u64 = DeviceOptions::MAX_QUEUE_SIZE as u64;
const MAX_BLOCK: u64 = DeviceOptions::MAX_BLOCK as u64;

/// Capabilities of this program in QEMU's format, for programs that start it.
pub(super) const CAPABILITIES: &str = r#"{
  "type": "block",
  "features": ["read-only", "blk-file"]
}
"#;

/// Options that name the socket of a device.
const SOCKET_OPTIONS: [&str; 3] = ["--vhost-user-blk", "--socket-path", "--fd"];

/// Returns the message for a command line with a socket of a device and no disk.
pub(crate) fn missing_disk(has_option: impl Fn(&str) -> bool) -> Option<String> {
    let option = SOCKET_OPTIONS.into_iter().find(|option| has_option(option))?;
    Some(format!(
        "{option} has no disk to serve: name its image with --blk-file, or as an argument (SPEC)"
    ))
}

/// Parses the value of --vhost-user-blk.
pub(crate) fn socket_path(text: &str) -> Result<PathBuf, String> {
    match text.parse::<Address>() {
        Ok(Address::Unix(path)) => Ok(path),
        Err(error) if text.starts_with("unix:") => Err(error.to_string()),
        _ if text.starts_with("tcp:") => {
            Err("a virtual machine shares its memory through a unix socket: write unix:PATH"
                .to_owned())
        }
        _ => Err(format!("expected unix:PATH, such as unix:{text}")),
    }
}

/// Parses the value of --queue-size.
fn queue_size(text: &str) -> Result<u64, String> {
    number::power_of_two::<MIN_QUEUE_SIZE, MAX_QUEUE_SIZE>(text)
}

/// Options of devices.
#[derive(Args, Debug)]
#[command(next_help_heading = "Virtual machines")]
pub(super) struct DeviceArgs {
    /// Serve a disk as vhost-user-blk at this socket, unix:PATH, to one virtual machine at a time;
    /// repeat it for several disks, in their order. Without --nbd, NBD is then off
    #[arg(long, value_name = "ADDRESS", value_parser = socket_path)]
    vhost_user_blk: Vec<PathBuf>,
    /// Same as --vhost-user-blk unix:PATH, for programs that follow QEMU's conventions
    #[arg(long, value_name = "PATH", conflicts_with_all = ["vhost_user_blk", "fd"])]
    socket_path: Option<PathBuf>,
    /// Serve a disk as vhost-user-blk at a unix socket that already listens: the number of its
    /// descriptor; repeat it for several disks, in their order
    #[arg(long, value_name = "N", conflicts_with = "vhost_user_blk")]
    #[arg(value_parser = number::parse::<0, { i32::MAX as u64 }>)]
    fd: Vec<u64>,
    /// The disk, in place of SPEC, for programs that follow QEMU's conventions
    #[arg(long, value_name = "SPEC", conflicts_with = "specs")]
    pub(super) blk_file: Option<String>,
    #[command(flatten)]
    shape: DeviceShape,
    /// Serial number of a device, at most 20 bytes; repeat it for several devices, in their order
    /// [default: the --name of the disk]
    #[arg(long, value_name = "TEXT")]
    serial: Vec<String>,
    /// Register the memory of virtual machines with io_uring, which then pins it once and not for
    /// each request. All of the memory is allocated and locked: do not use this option with a
    /// balloon, virtio-mem or free page reporting. For files and block devices with engine=io_uring
    #[arg(long)]
    pub(super) register_memory: bool,
    /// Print the capabilities of this program as JSON, and exit
    #[arg(long)]
    pub(super) print_capabilities: bool,
}

/// Options of a device that are also those of `forebay ctl add`.
#[derive(Args, Debug, Default)]
pub(crate) struct DeviceShape {
    /// Request queues (rings) of each device, 1 to 64, with a thread and a hardware context each
    /// [default: one per processor]
    #[arg(long, value_name = "N", value_parser = number::parse::<1, MAX_QUEUES>)]
    num_queues: Option<u64>,
    /// Largest ring that a virtual machine may set up, in descriptors: a power of two, 4 to 1024
    /// [default: 1024]
    #[arg(long, value_name = "N", value_parser = queue_size)]
    queue_size: Option<u64>,
    /// Block size that virtual machines see, bytes: 512, 1024, 2048 or 4096 [default: that of the
    /// disk]
    #[arg(long, value_name = "BYTES", value_parser = number::power_of_two::<512, MAX_BLOCK>)]
    block_size: Option<u64>,
}

impl DeviceShape {
    /// Returns the values, with their names in a request at the control socket.
    pub(crate) fn numbers(&self) -> [(&'static str, Option<u64>); 3] {
        [
            ("num_queues", self.num_queues),
            ("queue_size", self.queue_size),
            ("block_size", self.block_size),
        ]
    }

    /// Returns the name of an option that was given.
    pub(crate) fn option(&self) -> Option<&'static str> {
        let options = ["--num-queues", "--queue-size", "--block-size"];
        let given = options.into_iter().zip(self.numbers());
        given.into_iter().find(|(_, (_, value))| value.is_some()).map(|(option, _)| option)
    }
}

/// Socket of a device, before it is opened.
enum Socket {
    Path(PathBuf),
    Fd(i32),
}

impl DeviceArgs {
    /// Returns the descriptors of `--fd`.
    pub(super) fn fds(&self) -> Vec<i32> {
        self.fd.iter().map(|fd| *fd as i32).collect()
    }

    fn sockets(&self) -> Vec<Socket> {
        let paths = self.vhost_user_blk.iter().chain(&self.socket_path).cloned();
        paths.map(Socket::Path).chain(self.fds().into_iter().map(Socket::Fd)).collect()
    }

    /// Returns whether the socket of a device was given.
    pub(super) fn has_socket(&self) -> bool {
        !self.sockets().is_empty()
    }

    /// Returns the name of an option that was given and affects only devices.
    fn option_of_devices(&self) -> Option<&'static str> {
        let given =
            [("--serial", !self.serial.is_empty()), ("--register-memory", self.register_memory)];
        let others = given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name);
        self.shape.option().or(others)
    }

    /// Returns the devices for `nr_disks` disks with these `--name` options.
    ///
    /// # Errors
    /// Returns an error if an option is wrong or has no effect, or if a descriptor is not a socket.
    pub(super) fn devices(
        &self,
        nr_disks: usize,
        names: &[String],
    ) -> Result<Vec<DeviceOptions>, Failure> {
        let sockets = self.sockets();
        if let (true, Some(image)) = (sockets.is_empty(), &self.blk_file) {
            return Err(Failure::Usage(format!(
                "--blk-file {image} needs the socket of a virtual machine: add --socket-path PATH \
                 or --fd N, or write the disk as SPEC to serve it over NBD"
            )));
        }
        for (option, nr, most, of) in [
            ("--vhost-user-blk or --fd", sockets.len(), nr_disks, "disk"),
            ("--serial", self.serial.len(), sockets.len(), "device"),
        ] {
            if nr > most && (most > 0 || of == "disk") {
                let s = if most == 1 { "" } else { "s" };
                let why = format!("{option} is given {nr} times, for {most} {of}{s}");
                return Err(Failure::Usage(format!("{why}: give it at most once per {of}")));
            }
        }
        if let (true, Some(option)) = (sockets.is_empty(), self.option_of_devices()) {
            let why = "is for virtual machines: add --vhost-user-blk unix:PATH, or leave it out";
            return Err(Failure::Usage(format!("{option} {why}")));
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let nr_queues = self.shape.num_queues.unwrap_or_else(|| processors.min(MAX_QUEUES));
        let queue_size = self.shape.queue_size.unwrap_or(MAX_QUEUE_SIZE);
        let mut devices = Vec::new();
        for (export, socket) in sockets.into_iter().enumerate() {
            let name = names.get(export).map(|name| shortened(name));
            let socket = match socket {
                Socket::Path(path) => DeviceSocket::Path(path),
                Socket::Fd(fd) => DeviceSocket::Passed(activation::socket(fd)?),
            };
            devices.push(DeviceOptions {
                export,
                socket,
                nr_queues: nr_queues as u16,
                queue_size: queue_size as u16,
                block_size: self.shape.block_size.map(|size| size as u32),
                serial: self.serial.get(export).cloned().or(name).unwrap_or_default(),
            });
        }
        self.serial.iter().try_for_each(|serial| check_serial(serial))?;
        Ok(devices)
    }
}

/// Checks the length of a serial number.
pub(crate) fn check_serial(serial: &str) -> Result<(), Failure> {
    let max = DeviceOptions::MAX_SERIAL;
    match serial.len() > max {
        true => Err(Failure::Usage(format!("--serial {serial}: expected at most {max} bytes"))),
        false => Ok(()),
    }
}

/// Returns the beginning of a name that fits a serial number.
pub(crate) fn shortened(name: &str) -> String {
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = (0..=name.len().min(DeviceOptions::MAX_SERIAL)).rev().find(fits);
    name[..end.unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        specs: Vec<String>,
        #[command(flatten)]
        devices: DeviceArgs,
    }

    fn devices(line: &str) -> Result<Vec<DeviceOptions>, String> {
        let words = ["serve"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let names = ["vm".to_owned()];
        let devices = line.devices.devices(line.specs.len(), &names);
        devices.map_err(|failure| failure.to_string())
    }

    #[test]
    fn sockets_belong_to_the_disks_in_their_order() {
        let line = "a.img b.img --vhost-user-blk unix:a.sock --vhost-user-blk unix:b.sock \
                    --serial one --num-queues 2 --queue-size 256 --block-size 4096";
        let devices = devices(line).expect("two devices");
        let table: Vec<_> = devices
            .iter()
            .map(|device| {
                let DeviceOptions { export, socket, nr_queues, queue_size, serial, .. } = device;
                let DeviceSocket::Path(path) = socket else { panic!("{socket:?}") };
                (*export, path.to_str().unwrap(), *nr_queues, *queue_size, serial.as_str())
            })
            .collect();
        assert_eq!(table, [(0, "a.sock", 2, 256, "one"), (1, "b.sock", 2, 256, "")]);
        assert!(devices.iter().all(|device| device.block_size == Some(4096)));
    }

    #[test]
    fn name_of_the_disk_is_its_serial_number() {
        let devices = devices("a.img --socket-path s").expect("a device");
        assert_eq!(devices[0].serial, "vm");
        assert_eq!(shortened("a-name-of-more-than-20-bytes"), "a-name-of-more-than-");
        assert_eq!(shortened("nineteen bytes long\u{e9}"), "nineteen bytes long");
    }

    #[test]
    fn options_without_effect_are_refused_by_name() {
        for (line, expected) in [
            ("a.img --num-queues 2", "--num-queues is for virtual machines"),
            ("a.img --queue-size 64", "--queue-size is for virtual machines"),
            ("a.img --serial x", "--serial is for virtual machines"),
            ("a.img --block-size 512", "--block-size is for virtual machines"),
            ("a.img --register-memory", "--register-memory is for virtual machines"),
            ("a --vhost-user-blk unix:s --vhost-user-blk unix:t", "given 2 times, for 1 disk"),
            ("a --vhost-user-blk unix:s --serial x --serial y", "given 2 times, for 1 device"),
            ("a --vhost-user-blk tcp:host", "through a unix socket: write unix:PATH"),
            ("a --vhost-user-blk vm.sock", "expected unix:PATH, such as unix:vm.sock"),
            ("a --vhost-user-blk unix:", "the path of the socket is missing"),
            ("a --vhost-user-blk unix:s --queue-size 100", "a power of two from 4 to 1024"),
            ("a --vhost-user-blk unix:s --queue-size 2", "a power of two from 4 to 1024"),
            ("a --vhost-user-blk unix:s --block-size 1000", "a power of two from 512 to 4096"),
            ("--blk-file b", "add --socket-path PATH or --fd N, or write the disk as SPEC"),
            ("a --vhost-user-blk unix:s --serial 123456789012345678901", "at most 20 bytes"),
            ("a --vhost-user-blk unix:s --socket-path t", "cannot be used with"),
            ("a --blk-file b --socket-path t", "cannot be used with"),
        ] {
            let error = devices(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
