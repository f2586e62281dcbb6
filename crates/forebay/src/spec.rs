//! Device specs: names of disks, with the same syntax everywhere.

use crate::claim::SpareFiles;
use crate::driver_names;
use crate::error::SpecError;
use forebay_core::parse_switch;
use forebay_nbd::uri::Uri;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The name of a disk: `[driver:]target[?key=value&...]`.
///
/// `docs/specs.md` in the repository describes every key with its effect. In short:
///
/// | driver | target | own keys |
/// |---|---|---|
/// | `file`, or nothing | a path | those of `psync`, `engine`, and of rings |
/// | `aio` | a path | `direct`, `capacity` |
/// | `psync` | a path | `direct`, `capacity`, `nr_threads` |
/// | `ram` | a size | `req_ns`, `io_ns`, `kick_ns`, `logical_block_size` |
/// | `model` | a device or file | `size`, `data`, `seed`, `logical_block_size`, its constants |
/// | `null` | a size | `kick_ns`, `logical_block_size` |
/// | `nbd` | an NBD URI, which names the driver itself | `socket`, `tls-hostname`, and others |
/// | `vhost-user` | the path of a server's socket | `queue_size`, `poll_us` |
/// | `rbd` | `pool[/namespace]/image[@snapshot]` | `conf`, `id`, `keyring` |
/// | `fault` | another spec, without keys | `rule` (repeatable), `seed`, the keys of the other |
///
/// A path names a file or a block device. `capacity` is `fixed` or `growing`. `engine` chooses how
/// its I/O is done: `io_uring`, `aio`, `psync`, or `auto`, the first of these that is available. If
/// that is not io_uring, [`DiskInfo::notice`](crate::DiskInfo::notice) says so. `nr_threads` limits
/// the threads for blocking calls: 1 to 1024; default 32. The keys of rings are `fixed_buffers`,
/// `sqpoll` and `sqpoll_idle_ms`.
///
/// An NBD URI is `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`. With `nbds` in
/// place of `nbd` it requires TLS (cargo feature `tls`, off by default). Keys of the URI (`socket`,
/// `tls-type`, `tls-hostname`, `tls-verify-peer`, `tls-certificates`) and keys of the layer may be
/// mixed; only the URI's own are percent-encoded. QEMU's older forms
/// `nbd:HOST:PORT:exportname=EXPORT` and `nbd:unix:PATH:exportname=EXPORT` work as well.
///
/// A modelled device takes as long as the device of a published experiment, by the constants of its
/// model in `forebay-model`. A target with a slash or the ending `.model` is a file with such
/// constants, as `forebay calibrate` prints it. The devices are:
///
/// | device | size; requests in flight | constants |
/// |---|---|---|
/// | `hdd` | 4 TB; 256 | `seek_ns`, `bytes_per_s`, `nr_sorted`, `stroke_ns`, `turn_ns` |
/// | `ssd-sas` | 1.8 TB; 1024 | `bytes_per_s`, `commands_per_s`, `latency_ns`, `nr_channels` |
/// | `nvme` | 1.5 TB; 1023 | `bytes_per_s`, `latency_ns`, `nr_channels` |
/// | `virtio-ram` | 64 GiB; 1024 | `req_ns`, `page_ns`, `latency_ns` |
/// | `sata` | 500 GB; 32 | `flush_ns`, `position_ns`, `cache_bytes`, and others |
///
/// Its data is in memory, and only written ranges take memory. With `data=off` no data is kept, and
/// reads leave their buffers unchanged. `seed` seeds the model's random choices. By default a
/// modelled device has a service thread (`service=on`) in place of interrupts, requests of up to
/// 256 KiB, and the number of requests in flight from the table. `sata` accepts a flush only by
/// itself, and has one hardware context.
///
/// Every disk has these keys ([`SETTINGS`](crate::SETTINGS)):
///
#[doc = include_str!("settings/table.md")]
///
/// Numbers take `k`, `m`, `g` and `t`, powers of 1024. In a path, `?` is written `%3F`, and `%` is
/// written `%25` if `3F` or `25` follows it. [`Io::reserved`] takes the tags of `reserved_tags`,
/// and `async_depth` limits [`Io::background`].
///
/// A disk on a file or block device takes QEMU's byte locks (`lock=on`; `shared` lets other
/// programs write, `off` takes none), so that a virtual machine and the disk do not write at once.
/// While another program holds them, [`Disk::open`](crate::Disk::open) waits for up to 3 s, and
/// then fails.
///
/// `elide=on` is correct only without other writers: on a disk in memory, and on a file or block
/// device with `exclusive=on`. Elsewhere it is refused. `exclusive=on` opens a block device with
/// `O_EXCL`, which keeps out mounts and others that ask for the same. It locks a file (an OFD lock
/// of `fcntl` over all of it), which keeps out programs that lock it too. In this process no other
/// disk may then be on the same file or device. Without `exclusive=on`, disks on one file share
/// their durable points, so a flush by one is not skipped for writes of another.
///
/// Without `nr_hw_queues` there is one context more than processors. With `service=on` or
/// `run_queue=always` there is one, because both concern the shared context. The wake policies
/// other than `fair` do too: use `nr_hw_queues=1` to see their effect. Disks of a `tag_set` have
/// one context, a service thread, `wake=fair`, and all the same `queue_depth`.
///
/// ```
/// let spec: forebay::Spec = "ram:2G?req_ns=10100&io_ns=4000".parse()?;
/// assert_eq!((spec.driver(), spec.target()), ("ram", "2G"));
/// # Ok::<(), forebay::SpecError>(())
/// ```
///
/// [`Io::reserved`]: crate::Io::reserved
/// [`Io::background`]: crate::Io::background
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    driver: &'static str,
    target: String,
    /// The path to open, if the target cannot represent its bytes.
    path: Option<PathBuf>,
    /// Open files of the target, which are used before it is opened by its path.
    spares: Option<Arc<SpareFiles>>,
    keys: Vec<(String, String)>,
}

/// Names of future drivers, so that they are not taken for paths.
const RESERVED: [&str; 2] = ["nvme", "trace"];

/// Drivers with a path to a file or block device as their target.
const OF_FILES: [&str; 3] = ["file", "aio", "psync"];

/// Drivers with a path as their target.
const OF_PATHS: [&str; 4] = ["file", "aio", "psync", "vhost-user"];

/// The only key that may be given more than once.
const REPEATED: &str = "rule";

impl Spec {
    /// Parses a spec. Keys and values are checked when the disk is opened.
    ///
    /// # Errors
    /// Fails on an empty spec, a driver of a later version, or a part that is not `key=value`.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        if place.is_empty() {
            return Err(SpecError::Empty);
        }
        let (driver, target) = match place.split_once(':') {
            // The scheme is part of a URI.
            Some(_) if Uri::is_meant(place) => ("nbd", place),
            Some((name, _)) if RESERVED.contains(&name) => {
                return Err(SpecError::NotYet(name.to_owned()));
            }
            Some((name, rest)) => match driver_names::find(name) {
                Some(driver) => (driver, rest),
                None => ("file", place),
            },
            None => ("file", place),
        };
        let target = match OF_PATHS.contains(&driver) {
            true => target.replace("%3F", "?").replace("%25", "%"),
            false => target.to_owned(),
        };
        let mut spec = Spec { driver, target, path: None, spares: None, keys: Vec::new() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| SpecError::NotKeyValue(pair.to_owned()))?;
            spec.set(key, value);
        }
        Ok(spec)
    }

    /// Returns the spec of the file or block device at `path`, which may have any bytes: `?`, a
    /// colon, or a name that is not UTF-8. Such a name is shown with replacement characters
    /// (U+FFFD), so the shown spec does not open it.
    ///
    /// ```
    /// use forebay::Spec;
    ///
    /// let spec = Spec::from_path("/images/a?b".as_ref());
    /// assert_eq!((spec.target(), spec.to_string().as_str()), ("/images/a?b", "/images/a%3Fb"));
    /// ```
    pub fn from_path(path: &Path) -> Spec {
        Spec::shown_as(path, path)
    }

    /// Returns the spec of the file at `path`, which is shown with the name `shown`.
    pub(crate) fn shown_as(path: &Path, shown: &Path) -> Spec {
        let target = shown.to_string_lossy().into_owned();
        let path = (Path::new(&target) != path).then(|| path.to_owned());
        Spec { driver: "file", target, path, spares: None, keys: Vec::new() }
    }

    /// Returns the spec of a device of the caller's own: its kind and its name. No call opens it.
    pub(crate) fn of_device(kind: &'static str, name: &str) -> Spec {
        Spec { driver: kind, target: name.to_owned(), path: None, spares: None, keys: Vec::new() }
    }

    /// Changes the driver to another one of files. Returns whether both drivers are of files; if
    /// not, the spec is unchanged.
    pub(crate) fn set_driver_of_files(&mut self, driver: &str) -> bool {
        let found = OF_FILES.into_iter().find(|known| *known == driver);
        let found = found.filter(|_| OF_FILES.contains(&self.driver));
        self.driver = found.unwrap_or(self.driver);
        found.is_some()
    }

    /// Sets open files of the target, which are used before it is opened by its path.
    pub(crate) fn set_spares(&mut self, spares: Arc<SpareFiles>) {
        self.spares = Some(spares);
    }

    /// Returns the open files of the target.
    pub(crate) fn spares(&self) -> Option<&Arc<SpareFiles>> {
        self.spares.as_ref()
    }

    /// Returns the target as a path.
    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(&self.target))
    }

    /// Returns the name of the driver.
    pub fn driver(&self) -> &'static str {
        self.driver
    }

    /// Returns the target: a path, a size, or another spec.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the value of `key` if it is set.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Sets a key and replaces an earlier value. `rule` is added to earlier ones instead.
    pub fn set(&mut self, key: &str, value: &str) {
        match self.keys.iter_mut().find(|(name, _)| name == key && key != REPEATED) {
            Some(pair) => pair.1 = value.to_owned(),
            None => self.keys.push((key.to_owned(), value.to_owned())),
        }
    }

    /// Returns the value of a key that is `on` or `off`. `None` if it is not set, or is neither.
    pub fn switch(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(parse_switch)
    }

    /// Returns the path of the file or block device of the disk. With `fault:` this is the path of
    /// the wrapped disk. `None` if the disk has no file.
    pub fn file(&self) -> Option<PathBuf> {
        match self.driver {
            "fault" => Spec::parse(&self.target).ok()?.file(),
            driver => OF_FILES.contains(&driver).then(|| self.path().to_owned()),
        }
    }

    /// Returns the keys with their values, in order.
    pub fn keys(&self) -> &[(String, String)] {
        &self.keys
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        Spec::parse(text)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = match OF_PATHS.contains(&self.driver) {
            true if self.target.contains("%3F") || self.target.contains("%25") => {
                self.target.replace('%', "%25").replace('?', "%3F")
            }
            true => self.target.replace('?', "%3F"),
            false => self.target.clone(),
        };
        let is_driver = |name: &str| driver_names::find(name).is_some() || RESERVED.contains(&name);
        let ambiguous = self.target.split_once(':').is_some_and(|(name, _)| is_driver(name))
            || Uri::is_meant(&self.target);
        match self.driver {
            "nbd" => f.write_str(&escaped)?,
            "file" if !ambiguous => f.write_str(&escaped)?,
            driver => write!(f, "{driver}:{escaped}")?,
        }
        for (nth, (key, value)) in self.keys.iter().enumerate() {
            write!(f, "{}{key}={value}", if nth == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, driver: &str, target: &str, shown: &str) {
        let spec = Spec::parse(text).unwrap();
        assert_eq!((spec.driver(), spec.target()), (driver, target), "{text}");
        assert_eq!(spec.to_string(), shown);
        assert_eq!(Spec::parse(shown).unwrap(), spec, "what is shown names the same disk");
    }

    #[test]
    fn specs_name_driver_target_and_keys() {
        check("disk.img", "file", "disk.img", "disk.img");
        check("file:/dev/vdb?direct=on", "file", "/dev/vdb", "/dev/vdb?direct=on");
        check("ram:2G?req_ns=1&io_ns=2", "ram", "2G", "ram:2G?req_ns=1&io_ns=2");
        check("model:hdd?size=4T", "model", "hdd", "model:hdd?size=4T");
        check("fault:ram:1M?rule=a&rule=b", "fault", "ram:1M", "fault:ram:1M?rule=a&rule=b");
        let uri = "nbd+unix:///a%20b?socket=/s&queue_depth=8";
        check(uri, "nbd", "nbd+unix:///a%20b", uri);
        check(
            "nbd:unix:/s:exportname=x",
            "nbd",
            "nbd:unix:/s:exportname=x",
            "nbd:unix:/s:exportname=x",
        );
        check("file:nbd://x", "file", "nbd://x", "file:nbd://x");
        check("fault:nbd://x/y?rule=a", "fault", "nbd://x/y", "fault:nbd://x/y?rule=a");
        check("odd:name", "file", "odd:name", "odd:name");
        check("file:ram:x", "file", "ram:x", "file:ram:x");
        check("what%3Fnow", "file", "what?now", "what%3Fnow");
        check("a%253F", "file", "a%3F", "a%253F");
        check("aio:x?direct=on", "aio", "x", "aio:x?direct=on");
        check("psync:what%3Fnow", "psync", "what?now", "psync:what%3Fnow");
        check("file:aio:x", "file", "aio:x", "file:aio:x");
        check(
            "vhost-user:/a%3Fb?queue_size=8",
            "vhost-user",
            "/a?b",
            "vhost-user:/a%3Fb?queue_size=8",
        );
        check(
            "rbd:pool/ns/image@snap?id=a",
            "rbd",
            "pool/ns/image@snap",
            "rbd:pool/ns/image@snap?id=a",
        );
        check("file:rbd:x", "file", "rbd:x", "file:rbd:x");
        check("file:vhost-user:x", "file", "vhost-user:x", "file:vhost-user:x");
        check("100%", "file", "100%", "100%");
        check("ram:1M?plug=none&plug=outermost", "ram", "1M", "ram:1M?plug=outermost");
    }

    #[test]
    fn files_are_found_below_other_drivers() {
        for (text, expected) in [
            ("disk.img?direct=on", Some("disk.img")),
            ("aio:/dev/vdb", Some("/dev/vdb")),
            ("fault:psync:what%3Fnow?rule=a", Some("what?now")),
            ("fault:fault:disk.img", Some("disk.img")),
            ("ram:1M", None),
            ("fault:ram:1M", None),
            ("fault:nvme:x", None),
            ("rbd:pool/image", None),
            ("nbd://host/disk.img", None),
            ("vhost-user:disk.sock", None),
        ] {
            let file = Spec::parse(text).unwrap().file();
            assert_eq!(file, expected.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn switches_are_on_or_off() {
        let spec = Spec::parse("x?a=on&b=no&c=maybe&d=off&d=1").unwrap();
        let values = ["a", "b", "c", "d", "e"].map(|key| spec.switch(key));
        assert_eq!(values, [Some(true), Some(false), None, Some(true), None]);
    }

    #[test]
    fn bad_specs_are_refused_with_the_reason() {
        assert_eq!(Spec::parse(""), Err(SpecError::Empty));
        assert_eq!(Spec::parse("?a=b"), Err(SpecError::Empty));
        assert_eq!(Spec::parse("nvme:x"), Err(SpecError::NotYet("nvme".into())));
        assert_eq!(Spec::parse("x?direct"), Err(SpecError::NotKeyValue("direct".into())));
    }
}
