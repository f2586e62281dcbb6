//! Open image of a cluster.
// It calls librbd.
#![allow(unsafe_code)]

use super::api::{Api, ConfigOption, DiffCallback, Handle, ImageInfo, LOCK_EXCLUSIVE};
use super::cache::CacheOptions;
use super::cluster::{Cluster, Refused, text_of};
use super::gone::Gone;
use super::handles::Handles;
use super::option::OptionValue;
use super::pool::PoolCheck;
use super::status;
use super::target::Target;
use crate::sys::fork::Origin;
use forebay_core::{BlockStatus, Op};
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(super) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;

/// `RBD_FEATURE_JOURNALING`.
pub(super) const FEATURE_JOURNALING: u64 = 1 << 6;

/// Opens an image, or one of its snapshots. Returns librbd's result if it fails.
fn open_handle(
    api: &Api,
    cluster: &Cluster,
    image: &CStr,
    snapshot: Option<&CStr>,
    read_only: bool,
) -> Result<Handle, c_int> {
    let snapshot = snapshot.map_or(ptr::null(), CStr::as_ptr);
    let open = if read_only { api.rbd_open_read_only } else { api.rbd_open };
    let mut handle = ptr::null_mut();
    // SAFETY: the pool is open, and the names end with a null byte.
    let result = unsafe { open(cluster.pool(), image.as_ptr(), &raw mut handle, snapshot) };
    if result < 0 { Err(result) } else { Ok(handle) }
}

/// An open image. Dropping it closes it, and ends the connection.
pub(super) struct Image {
    pub(super) api: &'static Api,
    handles: Handles,
    /// The name of the image.
    name: CString,
    /// Dropped after the image is closed.
    cluster: ManuallyDrop<Arc<Cluster>>,
    origin: Origin,
    /// The disk needs the exclusive lock, and has acquired it.
    is_locked: bool,
    gone: Arc<Gone>,
    pool_check: PoolCheck,
    /// Held while the size is read by a new handle.
    rereading: Mutex<()>,
}

// SAFETY: librbd serializes the use of an image by several threads.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens an image of a connected cluster. A snapshot is always opened read-only.
    ///
    /// # Errors
    /// Returns the reason, and what to do.
    pub(super) fn open(
        api: &'static Api,
        cluster: Cluster,
        target: &Target,
        read_only: bool,
    ) -> Result<Image, Refused> {
        let snapshot = target.snapshot.as_deref();
        let handle = open_handle(api, &cluster, &target.image, snapshot, read_only)
            .map_err(|result| not_opened(result, target, read_only))?;
        Ok(Image {
            api,
            handles: Handles::new(handle),
            name: target.image.clone(),
            cluster: ManuallyDrop::new(Arc::new(cluster)),
            origin: Origin::here(),
            is_locked: false,
            gone: Arc::default(),
            pool_check: PoolCheck::default(),
            rereading: Mutex::new(()),
        })
    }

    /// Returns the image for librbd, in its newest size. It is open as long as this value exists.
    #[inline]
    pub(super) fn handle(&self) -> Handle {
        self.handles.present()
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the size of the image and of its objects, in bytes.
    pub(super) fn stat(&self) -> Result<ImageInfo, Refused> {
        self.stat_of(self.handle()).map_err(|result| Refused::of_call("rbd_stat", result))
    }

    fn stat_of(&self, handle: Handle) -> Result<ImageInfo, c_int> {
        let mut info = ImageInfo::EMPTY;
        // SAFETY: the image is open, and the size is that of the structure.
        let result = unsafe { (self.api.rbd_stat)(handle, &raw mut info, size_of::<ImageInfo>()) };
        if result < 0 { Err(result) } else { Ok(info) }
    }

    /// Returns the size of the image in bytes. Waits for the cluster if librbd watches the image,
    /// and it has changed.
    pub(super) fn size_bytes(&self) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the image is open.
        let result = unsafe { (self.api.rbd_get_size)(self.handle(), &raw mut size) };
        if result < 0 { Err(text_of(result)) } else { Ok(size) }
    }

    /// Returns the present size of an image that is open read-only, in bytes. librbd does not watch
    /// such an image, so this opens it again. If it has grown, later commands use the new handle.
    ///
    /// # Errors
    /// Fails if the image cannot be opened, or if another image has its name now.
    pub(super) fn reread_size(&self) -> io::Result<u64> {
        // Otherwise a slower thread could make an older handle the present one.
        let _only_one = self.rereading.lock().unwrap_or_else(PoisonError::into_inner);
        let handle =
            open_handle(self.api, &self.cluster, &self.name, None, true).map_err(text_of)?;
        match self.compare_with(handle) {
            Ok((before, now)) if before < now => {
                self.handles.replace(handle);
                Ok(now)
            }
            compared => {
                // SAFETY: no other code has this handle.
                unsafe { (self.api.rbd_close)(handle) };
                compared.map(|(_, now)| now)
            }
        }
    }

    /// Returns the sizes of the image by the present handle and by a newer one.
    fn compare_with(&self, newer: Handle) -> io::Result<(u64, u64)> {
        let before = self.stat_of(self.handle()).map_err(text_of)?;
        let now = self.stat_of(newer).map_err(text_of)?;
        if !now.has_data_of(&before) {
            let name = self.name.to_string_lossy();
            return Err(io::Error::other(format!(
                "{name} is the name of another image now: this disk keeps its image and its size; \
                 open a new disk for the other one"
            )));
        }
        Ok((before.size, now.size))
    }

    /// Returns the features of the image, as bits.
    pub(super) fn features(&self) -> Result<u64, Refused> {
        let mut features = 0;
        // SAFETY: the image is open.
        let result = unsafe { (self.api.rbd_get_features)(self.handle(), &raw mut features) };
        if result < 0 { Err(Refused::of_call("rbd_get_features", result)) } else { Ok(features) }
    }

    /// Returns the value of an option: that of the image, of its pool, or of the configuration. It
    /// is effective if librbd has listed the overrides.
    pub(super) fn option(&self, name: &CStr) -> OptionValue {
        let (found, is_effective) = match self.listed_option(name) {
            Ok(found) => (found, true),
            Err(_) => (None, false),
        };
        OptionValue::new(found.or_else(|| self.cluster.get(name)), is_effective)
    }

    /// Returns the options for its caches.
    pub(super) fn cache_options(&self) -> CacheOptions {
        CacheOptions {
            cache: self.option(c"rbd_cache"),
            policy: self.option(c"rbd_cache_policy"),
            plugins: self.option(c"rbd_plugins"),
        }
    }

    /// Returns an option of the list of librbd, which has all that the image may override.
    fn listed_option(&self, name: &CStr) -> io::Result<Option<String>> {
        let functions = (self.api.rbd_config_image_list, self.api.rbd_config_image_list_cleanup);
        let (Some(list), Some(cleanup)) = functions else {
            return Err(text_of(-libc::ENOSYS));
        };
        let mut options = vec![ConfigOption::EMPTY; 512];
        let mut nr = options.len() as c_int;
        // SAFETY: the image is open, and the number is that of the places.
        let mut result = unsafe { list(self.handle(), options.as_mut_ptr(), &raw mut nr) };
        if result == -libc::ERANGE {
            options.resize(nr.max(0) as usize, ConfigOption::EMPTY);
            // SAFETY: as above, with the number of places that the call has demanded.
            result = unsafe { list(self.handle(), options.as_mut_ptr(), &raw mut nr) };
        }
        if result < 0 {
            return Err(text_of(result));
        }
        let found = options[..nr as usize].iter().find_map(|option| {
            // SAFETY: a successful call has filled in this many options, and their texts are C
            // strings until the cleanup.
            let (key, value) =
                unsafe { (CStr::from_ptr(option.name), CStr::from_ptr(option.value)) };
            (key == name).then(|| value.to_string_lossy().into_owned())
        });
        // SAFETY: the options are those of the call above, and their texts are not used any more.
        unsafe { cleanup(options.as_mut_ptr(), nr) };
        Ok(found)
    }

    /// Acquires the exclusive lock, and keeps it.
    ///
    /// # Errors
    /// Fails if the image has none, or if another client keeps it.
    pub(super) fn lock(&mut self) -> Result<(), Refused> {
        if self.features()? & FEATURE_EXCLUSIVE_LOCK == 0 {
            let why = "exclusive=on: the image has no exclusive lock: enable it with \
                       `rbd feature enable POOL/IMAGE exclusive-lock`";
            return Err(Refused::new(-libc::EOPNOTSUPP, why));
        }
        // SAFETY: the image is open.
        let result = unsafe { (self.api.rbd_lock_acquire)(self.handle(), LOCK_EXCLUSIVE) };
        if result < 0 {
            let why = match -result {
                libc::EBUSY | libc::EROFS | libc::EAGAIN | libc::EPERM => String::from(
                    "exclusive=on: another client has the exclusive lock and keeps it: close the \
                     image there (`rbd lock ls`, `rbd status`)",
                ),
                _ => format!("exclusive=on: cannot acquire the lock: {}", text_of(result)),
            };
            return Err(Refused::new(result, why));
        }
        self.is_locked = true;
        Ok(())
    }

    /// Returns whether this client has the exclusive lock of the image, or may have it because the
    /// cluster does not answer. Sets the image as gone if the client is fenced. May wait for the
    /// cluster.
    pub(super) fn is_owner(&self) -> bool {
        if self.is_gone() {
            return false;
        }
        let mut is_owner = 0;
        // SAFETY: the image is open.
        let result =
            unsafe { (self.api.rbd_is_exclusive_lock_owner)(self.handle(), &raw mut is_owner) };
        match -result {
            0 => is_owner != 0,
            libc::ESHUTDOWN | libc::ENOENT | libc::EROFS => {
                self.gone.set(status::why_gone(result.into()));
                false
            }
            // The cluster does not answer at the moment.
            _ => true,
        }
    }

    /// Sets the image as gone because its exclusive lock is lost.
    pub(super) fn set_lock_lost(&self) {
        self.gone.set(status::LOCK_LOST);
    }

    /// Returns whether the image is gone.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_set()
    }

    /// Returns why the image is gone, if it is.
    pub(super) fn why_gone(&self) -> Option<&'static str> {
        self.gone.why()
    }

    /// Converts the negative result of an operation to a status. Some errors mean that the image is
    /// gone. After a refusal, a thread looks whether it is. Does not wait.
    pub(super) fn status_of(&self, result: i64, op: Op) -> BlockStatus {
        let is_refused = matches!(i32::try_from(-result), Ok(libc::EPERM | libc::EACCES));
        if is_refused {
            if self.is_gone() {
                return BlockStatus::Offline;
            }
            self.pool_check.start(&self.cluster, &self.gone);
        }
        let status = status::of_error(result, op, self.is_locked);
        if status == BlockStatus::Offline {
            self.gone.set(status::why_gone(result));
        }
        status
    }

    /// Calls `callback` with `arg` for each range that was ever written, or written and discarded,
    /// from byte `offset` on.
    ///
    /// # Errors
    /// Returns librbd's error.
    ///
    /// # Safety
    /// `callback` may be called with `arg`, in this thread or another, until this returns.
    pub(super) unsafe fn diff(
        &self,
        offset: u64,
        len: u64,
        callback: DiffCallback,
        arg: *mut c_void,
    ) -> Result<(), i64> {
        // With the data of the parent, and with exact ranges.
        let (with_parent, whole_objects) = (1, 0);
        // SAFETY: the image is open. A null pointer stands for the beginning of its history. The
        // caller vouches for the rest.
        let result = unsafe {
            (self.api.rbd_diff_iterate2)(
                self.handle(),
                ptr::null(),
                offset,
                len,
                with_parent,
                whole_objects,
                callback,
                arg,
            )
        };
        if result < 0 { Err(result.into()) } else { Ok(()) }
    }
}

fn not_opened(result: c_int, target: &Target, read_only: bool) -> Refused {
    let (image, pool) = (target.image.to_string_lossy(), target.pool.to_string_lossy());
    let place = match &target.namespace {
        Some(namespace) => format!("{pool}/{}", namespace.to_string_lossy()),
        None => pool.into_owned(),
    };
    let why = match (-result, &target.snapshot) {
        (libc::ENOENT, Some(snapshot)) => format!(
            "{place} has no image {image} with a snapshot {} (`rbd snap ls {place}/{image}`)",
            snapshot.to_string_lossy()
        ),
        (libc::ENOENT, None) => {
            format!("{place} has no image {image} (`rbd ls {place}` lists them)")
        }
        (libc::EPERM | libc::EACCES, _) if !read_only => {
            String::from("the client has no permission to write to the image: add read_only=on")
        }
        (libc::EPERM | libc::EACCES, _) => {
            String::from("the client has no permission to read the image")
        }
        (libc::ETIMEDOUT, _) => {
            String::from("the OSDs do not answer in time, or the cluster is full (`ceph status`)")
        }
        (libc::ESHUTDOWN, _) => status::why_gone(result.into()).to_owned(),
        _ => format!("cannot open the image: {}", text_of(result)),
    };
    Refused::new(result, why)
}

impl Drop for Image {
    fn drop(&mut self) {
        // The threads that would close it are those of the parent, and so is the connection.
        if self.origin.is_elsewhere() {
            self.pool_check.forget();
            return;
        }
        self.pool_check.join();
        for handle in self.handles.take() {
            // SAFETY: no command is in flight, and no other code uses the image any more. An error
            // of the last flush was reported by a flush of the layer, or nothing was to be flushed.
            unsafe { (self.api.rbd_close)(handle) };
        }
        // This ends the connection: no other code has a reference, after the join.
        // SAFETY: it is used no more after this.
        unsafe { ManuallyDrop::drop(&mut self.cluster) };
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("gone", &self.gone).finish_non_exhaustive()
    }
}
