//! Builder of a disk: settings by method or by key, then a spec, a path or a descriptor.
//!
//! A method has the name of its key in the table of settings ([`SETTINGS`]), and its value becomes
//! the text that a spec would have. So keys, values and defaults are defined in that table only.
//!
//! [`SETTINGS`]: crate::SETTINGS

mod descriptor;

use super::Disk;
use crate::error::{OpenError, SpecError};
use crate::info::ImageLock;
use crate::settings::table::Setting;
use crate::spec::Spec;
use forebay_core::{
    FlushPolicy, KickPolicy, MergePolicy, PlugPolicy, SchedulerPolicy, TagNeed, WeightBy,
};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Options for opening a disk: its driver and its settings. Created by [`Disk::options`].
///
/// The methods of the group "Settings" have the names, values and defaults of the keys in
/// [`SETTINGS`](crate::SETTINGS); `docs/specs.md` describes their effect. [`set`](DiskOptions::set)
/// accepts every key by name, including the keys of a single driver. An option replaces the same
/// key of the spec that is opened. A value that is not valid, or a key that the driver does not
/// have, is an error that names the key.
///
/// Options can be cloned, sent to another thread, and used for several disks.
///
/// ```
/// use forebay::Disk;
///
/// let options = Disk::options().queue_depth(64).io_timeout_ms(500).set("wake", "fair")?;
/// let disk = options.open("ram:1M")?; // or a path, "/dev/vdb", "nbd://host/export", ...
/// assert_eq!(disk.info().spec, "ram:1M?queue_depth=64&io_timeout_ms=500&wake=fair");
/// let error = options.nr_requests(65).open("ram:1M").unwrap_err().to_string();
/// assert_eq!(error, "nr_requests=65: expected a number from 1 to queue_depth, which is 64");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options open nothing by themselves: call `open`, `open_path` or `open_fd`"]
pub struct DiskOptions {
    driver: Option<String>,
    keys: Vec<(String, String)>,
}

/// A value of an option, as a spec takes it.
trait OptionValue {
    fn text(self) -> String;
}

impl OptionValue for bool {
    fn text(self) -> String {
        String::from(if self { "on" } else { "off" })
    }
}

impl OptionValue for &str {
    fn text(self) -> String {
        self.to_owned()
    }
}

/// Implements [`OptionValue`] with an expression.
macro_rules! values {
    ($($type:ty => |$value:ident| $text:expr,)*) => {
        $(impl OptionValue for $type {
            fn text(self) -> String {
                let $value = self;
                $text.to_string()
            }
        })*
    };
}

values! {
    u32 => |number| number,
    u64 => |number| number,
    PlugPolicy => |policy| policy.name(),
    MergePolicy => |policy| policy.name(),
    KickPolicy => |policy| policy.name(),
    SchedulerPolicy => |policy| policy.name(),
    TagNeed => |policy| policy.name(),
    FlushPolicy => |policy| policy.name(),
    WeightBy => |measure| measure.name(),
    ImageLock => |lock| lock.name(),
}

/// Defines a method for each key, with the type of its values.
macro_rules! settings {
    ($($key:ident: $type:ty,)*) => {
        /// Settings. Each sets the key of its name; [`SETTINGS`](crate::SETTINGS) has its values,
        /// its default and its effect.
        impl DiskOptions {
            $(
                #[doc = concat!("Sets `", stringify!($key), "`.")]
                pub fn $key(self, $key: $type) -> DiskOptions {
                    self.with(stringify!($key), $key.text())
                }
            )*
        }

        /// The keys that have a method.
        #[cfg(test)]
        const WITH_METHODS: &[&str] = &[$(stringify!($key),)*];
    };
}

// `wake` and `run_queue` select behaviour of earlier systems, for comparisons: only `set` accepts
// them. `direct` is a key of files.
settings! {
    direct: bool,
    plug: PlugPolicy,
    nomerges: MergePolicy,
    kick: KickPolicy,
    tag_need: TagNeed,
    queue_depth: u32,
    nr_requests: u32,
    reserved_tags: u32,
    async_depth: u32,
    nr_hw_queues: u32,
    scheduler: SchedulerPolicy,
    device_depth: u32,
    fifo_batch: u32,
    read_expire: u64,
    write_expire: u64,
    writes_starved: u32,
    front_merges: bool,
    prio_aging_expire: u64,
    read_lat_nsec: u64,
    write_lat_nsec: u64,
    slice_idle_us: u64,
    max_budget: u32,
    timeout_sync: u64,
    fifo_expire_sync: u64,
    fifo_expire_async: u64,
    weight_by: WeightBy,
    cost_read_io_ns: u64,
    cost_read_byte_ps: u64,
    cost_write_io_ns: u64,
    cost_write_byte_ps: u64,
    nr_bios: u32,
    flush: FlushPolicy,
    flush_pending_ms: u64,
    io_timeout_ms: u64,
    io_timeout_grace_ms: u64,
    elide: bool,
    iostats: bool,
    max_sectors_kb: u32,
    exclusive: bool,
    lock: ImageLock,
    takeover_wait_ms: u64,
    read_only: bool,
    fua: bool,
    service: bool,
    tag_set: &str,
}

impl Disk {
    /// Returns options for opening a disk, with nothing set.
    ///
    /// ```
    /// use forebay::Disk;
    ///
    /// # let folder = std::env::temp_dir().join(format!("forebay-options-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("disk.img");
    /// # std::fs::write(&path, [0; 4096])?;
    /// let disk = Disk::options().driver("psync").nr_requests(8).open_path(&path)?;
    /// assert_eq!(disk.info().driver, "psync");
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options() -> DiskOptions {
        DiskOptions::default()
    }
}

impl DiskOptions {
    /// Sets the driver of a path or a descriptor: `file` (the default), `aio` or `psync`. A spec
    /// that names its driver itself must name the same one. Checked when the disk is opened.
    pub fn driver(self, driver: &str) -> DiskOptions {
        DiskOptions { driver: Some(driver.to_owned()), ..self }
    }

    /// Sets a key, as `key=value` in a spec does, and replaces an earlier value. `rule` is added to
    /// earlier ones instead.
    ///
    /// # Errors
    /// [`SpecError::BadValue`] if the key is in [`SETTINGS`](crate::SETTINGS) and does not take
    /// this value. Other keys belong to a driver, and are checked when the disk is opened.
    ///
    /// ```
    /// use forebay::Disk;
    ///
    /// let error = Disk::options().set("plug", "never").unwrap_err();
    /// assert_eq!(error.to_string(), "plug=never: expected outermost, per-level or none");
    /// ```
    pub fn set(self, key: &str, value: &str) -> Result<DiskOptions, SpecError> {
        if let Some(setting) = Setting::named(key) {
            setting.check(value)?;
        }
        Ok(self.with(key, value.to_owned()))
    }

    /// Opens the disk that a spec names, or a path. See [`Spec`] for the syntax.
    ///
    /// # Errors
    /// Fails as [`Disk::open`] does, or if an option is not valid for this disk.
    pub fn open(&self, spec: &str) -> Result<Disk, OpenError> {
        let mut parsed = Spec::parse(spec)?;
        if let Some(driver) = self.driver.as_deref().filter(|driver| *driver != parsed.driver()) {
            if spec.starts_with("file:") || parsed.driver() != "file" {
                let expected = format!("{}, which the spec {spec} names", parsed.driver());
                return Err(bad_driver(driver, expected));
            }
            choose(&mut parsed, driver)?;
        }
        self.open_spec(parsed)
    }

    /// Opens the file or block device at a path. The path may have any bytes: a `?`, a `:`, or a
    /// name that is not UTF-8. It is never parsed as a spec.
    ///
    /// # Errors
    /// Fails if the file cannot be opened as the options demand, or if an option is not valid for
    /// this disk.
    pub fn open_path(&self, path: impl AsRef<Path>) -> Result<Disk, OpenError> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Err(SpecError::Empty.into());
        }
        self.open_spec(self.spec_of(path, path)?)
    }

    /// Opens a disk on an open file or block device. Same as [`open_fd`](DiskOptions::open_fd).
    ///
    /// # Errors
    /// Same as `open_fd`.
    pub fn open_file(&self, file: File) -> Result<Disk, OpenError> {
        self.open_fd(file.into())
    }

    /// Opens a disk on the file or block device of a descriptor. The file may have been unlinked.
    ///
    /// The disk opens the file again, because each hardware context needs an open file of its own
    /// to get write-back errors. So the process needs permission to open the file, and `/proc`.
    /// Locks work as for a path. The descriptor is closed before this returns.
    ///
    /// It must be open for reading and writing, or for reading with `read_only=on`. `direct` is set
    /// if the descriptor has `O_DIRECT`. A descriptor with `O_APPEND`, `O_SYNC`, `O_DSYNC`,
    /// `O_NOATIME` or `O_PATH` is refused.
    ///
    /// # Errors
    /// [`OpenError::Descriptor`] if a disk cannot use the descriptor. Otherwise as
    /// [`open_path`](DiskOptions::open_path).
    ///
    /// ```
    /// use forebay::Disk;
    ///
    /// # let path = std::env::temp_dir().join(format!("forebay-fd-{}", std::process::id()));
    /// let mut options = std::fs::OpenOptions::new();
    /// let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
    /// file.set_len(1 << 20)?;
    /// std::fs::remove_file(&path)?; // its last name
    /// let disk = Disk::options().open_file(file)?;
    /// disk.write_all_at(&[7; 4096], 8192)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_fd(&self, fd: OwnedFd) -> Result<Disk, OpenError> {
        let named = descriptor::Named::of(&fd)?;
        let mut spec = self.spec_of(&named.path, &named.shown)?;
        self.add_keys(&mut spec)?;
        named.check(&mut spec)?;
        Disk::open_spec(&spec)
    }

    /// Opens a disk on several open files of one file or block device. The disk uses them instead
    /// of opening the file again, so the process needs no permission to open it: a sandbox may
    /// forbid that, and a manager may have passed the descriptors.
    ///
    /// The disk needs one for its locks, one for its shared queue, and one for each further queue
    /// that a thread owns. Once there are no more, it opens the file again as
    /// [`open_fd`](DiskOptions::open_fd) does. If that fails, the thread uses the shared queue.
    /// `exclusive=on` always opens a block device again.
    ///
    /// Each descriptor must come from an `open` of its own, with the same flags, which `open_fd`
    /// lists. Nothing else may use these open files, in any process: a sync through a duplicate
    /// would take an error away from the disk, and a lock would not end with the disk. Locks work
    /// as for a path. All descriptors are closed with the disk, at the latest.
    ///
    /// # Errors
    /// [`OpenError::Descriptor`] if the descriptors are of different files, have different flags,
    /// or are duplicates of each other. Otherwise as `open_fd`.
    ///
    /// # Panics
    /// Panics if there is no descriptor.
    ///
    /// ```
    /// use forebay::Disk;
    /// use std::fs::File;
    ///
    /// # let path = std::env::temp_dir().join(format!("forebay-fds-{}", std::process::id()));
    /// # std::fs::write(&path, [0; 8192])?;
    /// let open = || File::options().read(true).write(true).open(&path).map(Into::into);
    /// let fds = (0..3).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    /// let disk = Disk::options().open_fds(fds)?;
    /// disk.write_all_at(&[7; 4096], 4096)?;
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_fds(&self, fds: Vec<OwnedFd>) -> Result<Disk, OpenError> {
        let named = descriptor::Named::of(fds.first().expect("at least one descriptor"))?;
        let mut spec = self.spec_of(&named.path, &named.shown)?;
        self.add_keys(&mut spec)?;
        named.check(&mut spec)?;
        spec.set_spares(named.stock(fds)?);
        Disk::open_spec(&spec)
    }

    fn with(mut self, key: &str, value: String) -> DiskOptions {
        self.keys.push((key.to_owned(), value));
        self
    }

    /// Returns the spec of the file at `path` with the driver of these options.
    fn spec_of(&self, path: &Path, shown: &Path) -> Result<Spec, SpecError> {
        let mut spec = Spec::shown_as(path, shown);
        choose(&mut spec, self.driver.as_deref().unwrap_or("file"))?;
        Ok(spec)
    }

    fn open_spec(&self, mut spec: Spec) -> Result<Disk, OpenError> {
        self.add_keys(&mut spec)?;
        Disk::open_spec(&spec)
    }

    /// Returns the driver that was set for a path or a descriptor.
    pub(super) fn chosen_driver(&self) -> Option<&str> {
        self.driver.as_deref()
    }

    /// Adds the keys to a spec. Refuses a key or value that would change the meaning of the spec as
    /// text.
    pub(super) fn add_keys(&self, spec: &mut Spec) -> Result<(), SpecError> {
        for (key, value) in &self.keys {
            if key.is_empty() || key.contains(['=', '&', '?']) || value.contains('&') {
                return Err(SpecError::BadValue {
                    key: key.clone(),
                    value: value.clone(),
                    expected: "a key without `=`, `&` and `?`, and a value without `&`".into(),
                });
            }
            spec.set(key, value);
        }
        Ok(())
    }
}

/// Changes the driver of the spec of a file.
fn choose(spec: &mut Spec, driver: &str) -> Result<(), SpecError> {
    match spec.set_driver_of_files(driver) {
        true => Ok(()),
        false => Err(bad_driver(driver, "file, aio or psync for a path or a descriptor".into())),
    }
}

fn bad_driver<E: From<SpecError>>(driver: &str, expected: String) -> E {
    let (key, value) = (String::from("driver"), driver.to_owned());
    SpecError::BadValue { key, value, expected: expected.into() }.into()
}

#[cfg(test)]
mod tests;
