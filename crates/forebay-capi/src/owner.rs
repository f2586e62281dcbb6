//! Owners of I/O: tenants of a disk with limits, weights and latency goals.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{forebay_option, pairs_of, place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle::{self, Kind, Mark};
use forebay::{IoError, LimitKey, Limits, OWNER_COUNTERS, Owner, OwnerCounter, SubmitErrorKind};
use std::ffi::{CString, c_char, c_int};
use std::process;
use std::sync::LazyLock;

/// An owner of I/O on a disk: a tenant, a connection, a job. Any number of threads may use it at
/// once.
pub struct forebay_owner {
    _private: [u8; 0],
}

/// The value of a `forebay_owner`.
struct OpenOwner {
    owner: Owner,
    /// The process that opened the handle.
    process: u32,
}

impl OpenOwner {
    /// Returns the owner, for calls that lock the list of owners: a thread of the parent may hold
    /// this lock forever in a child of a fork.
    fn unforked(&self) -> Result<&Owner, Failure> {
        match process::id() == self.process {
            true => Ok(&self.owner),
            false => Err(Failure::from(IoError::from(SubmitErrorKind::Forked))),
        }
    }
}

impl Kind for OpenOwner {
    const MARK: Mark = handle::OWNER;
    type Pointee = forebay_owner;
}

/// Runs a call on an owner.
///
/// # Safety
/// As for [`handle::get`].
unsafe fn on_owner<T: From<c_int>>(
    owner: *mut forebay_owner,
    call: impl FnOnce(&OpenOwner) -> Result<T, Failure>,
) -> T {
    guard(|| {
        // SAFETY: the caller keeps the conditions.
        call(&*unsafe { handle::get::<OpenOwner>(owner) }?)
    })
}

/// Stores a handle of an owner.
///
/// # Safety
/// `place` is null, or the place of a pointer.
unsafe fn store(
    place: *mut *mut forebay_owner,
    open: impl FnOnce() -> Result<Owner, Failure>,
) -> Result<c_int, Failure> {
    let place = place_of(place)?;
    let handle = handle::open(OpenOwner { owner: open()?, process: process::id() });
    // SAFETY: the caller passes a pointer to a pointer; null was refused.
    unsafe { place.write(handle) };
    Ok(0)
}

/// Opens a handle of the owner of I/O with this name. Adds the owner if the disk has none: without
/// limits, and with a weight of 100. Stores a handle in *owner, which keeps the disk open.
///
/// Returns 0, or a negative errno: -EEXIST if an owner below another one has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_open(
    disk: *mut forebay_disk,
    name: *const c_char,
    owner: *mut *mut forebay_owner,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, a C string or null, and the place of a handle.
        unsafe {
            let (disk, name) = (handle::get::<OpenDisk>(disk)?, text_of(name, "name")?);
            disk.check_not_forked()?;
            store(owner, || Ok(disk.disk.owner(name)?))
        }
    })
}

/// Opens a handle of the owner with this name below another one, as forebay_owner_open() does. Its
/// I/O counts against the limits of both, and the children of an owner divide its share. There may
/// be 8 levels.
///
/// Returns 0, or a negative errno: -EEXIST if another owner has this name, -ENOENT if the parent
/// was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_child(
    parent: *mut forebay_owner,
    name: *const c_char,
    owner: *mut *mut forebay_owner,
) -> c_int {
    let open = |parent: &OpenOwner| {
        // SAFETY: the caller passes a C string or null, and the place of a handle.
        unsafe {
            let name = text_of(name, "name")?;
            store(owner, || Ok(parent.unforked()?.child(name)?))
        }
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(parent, open) }
}

/// Closes a handle of an owner. The owner stays, with its limits, until forebay_owner_remove(), or
/// until the disk is closed.
///
/// Returns 0, or a negative errno: -EBADF if the handle is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_close(owner: *mut forebay_owner) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe { handle::close::<OpenOwner>(owner) }.map(|()| 0))
}

/// Removes an owner from its disk. I/O that waits for its limits goes on without any. Its number
/// may become that of another owner. The handle stays open: close it.
///
/// Returns 0, or a negative errno: -EBUSY if the owner has children, -ENOENT if it was removed
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_remove(owner: *mut forebay_owner) -> c_int {
    let remove = |open: &OpenOwner| {
        open.unforked()?.clone().remove()?;
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, remove) }
}

/// Returns the number of an owner, at least 1, for the field owner of struct forebay_io, or a
/// negative errno. It is valid on the disk of the owner, until the owner is removed. On other disks
/// I/O with this number counts against another owner, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_number(owner: *mut forebay_owner) -> c_int {
    let number = |open: &OpenOwner| Ok(open.owner.origin().owner() as c_int);
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, number) }
}

/// Sets all limits of an owner. They apply together, beside those of the owners above. Keys are
/// iops, bps, read_iops, read_bps, write_iops, write_bps (I/Os or bytes per second), each of these
/// with _burst (I/Os or bytes that may start at once after a pause), and latency_target_us (a
/// latency goal: while it is missed, siblings have fewer I/Os in flight). Values are numbers, such
/// as "500" or "10m"; 0 is no limit. Limits that are not given are removed, so nr = 0 removes all.
///
/// Returns 0, or a negative errno: -EINVAL for an unknown key, a wrong value, or a burst without
/// its rate. After a failure the limits are unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_set_limits(
    owner: *mut forebay_owner,
    limits: *const forebay_option,
    nr: u32,
) -> c_int {
    let set = |open: &OpenOwner| {
        let mut all = Limits::default();
        // SAFETY: the caller passes an array of `nr` options.
        for (key, value) in unsafe { pairs_of(limits, nr) }? {
            all.set_key(key, value)?;
        }
        open.unforked()?.set_limits(&all)?;
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, set) }
}

/// Stores the limit with a key in *value: see forebay_owner_set_limits(). 0: no limit. The default
/// of a burst is stored as a number.
///
/// Returns 0, or a negative errno: -EINVAL if there is no such key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_limit(
    owner: *mut forebay_owner,
    key: *const c_char,
    value: *mut u64,
) -> c_int {
    let limit = |open: &OpenOwner| {
        // SAFETY: the caller passes a C string or null.
        let key = unsafe { text_of(key, "key") }?;
        let place = place_of(value)?;
        let Some(limit) = LimitKey::named(key) else {
            // Names all keys.
            Limits::default().set_key(key, "0")?;
            return Ok(0);
        };
        let number = limit.number(&open.owner.limits());
        // SAFETY: the caller passes the place of a number; null was refused.
        unsafe { place.write(number.unwrap_or(0)) };
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, limit) }
}

/// Sets the weight of an owner, 1 to 10000: its share among its siblings, while each has I/O that
/// waits for a tag. The disk needs one hardware context (nr_hw_queues=1).
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_set_weight(owner: *mut forebay_owner, weight: u32) -> c_int {
    let set = |open: &OpenOwner| {
        open.unforked()?.set_weight(weight)?;
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, set) }
}

/// Returns the weight of an owner, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_weight(owner: *mut forebay_owner) -> c_int {
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, |open| Ok(open.owner.weight() as c_int)) }
}

/// The texts of a counter for C.
struct Texts {
    name: CString,
    help: CString,
}

/// The texts of the library's counters of owners, in their order.
static TEXTS: LazyLock<Vec<Texts>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).expect("names have no zero bytes");
    let texts = |it: &OwnerCounter| Texts { name: text(it.name), help: text(it.help) };
    OWNER_COUNTERS.iter().map(texts).collect()
});

/// Returns the number of counters that each owner has. They are numbered from 0.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_owner_stats_count() -> u32 {
    OWNER_COUNTERS.len() as u32
}

fn text_at(index: u32, get: fn(&Texts) -> &CString) -> *const c_char {
    let mut text = std::ptr::null();
    guard(|| {
        let counter = TEXTS.get(index as usize).ok_or_else(|| {
            let nr = TEXTS.len();
            Failure::invalid(format!("there is no counter {index} of owners: there are {nr}"))
        })?;
        text = get(counter).as_ptr();
        Ok(0)
    });
    text
}

/// Returns the name of a counter of owners, such as "limit_wait_ns", or NULL if there is no such
/// number.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_owner_stats_name(index: u32) -> *const c_char {
    text_at(index, |counter| &counter.name)
}

/// Returns the meaning of a counter of owners as a sentence, or NULL if there is no such number.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_owner_stats_help(index: u32) -> *const c_char {
    text_at(index, |counter| &counter.help)
}

/// Stores the counter of an owner with a name in *value, without the I/O of its children.
/// UINT64_MAX: no such value, such as a depth without a limit.
///
/// Returns 0, or a negative errno: -ENOENT if there is no such counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_owner_stats_get(
    owner: *mut forebay_owner,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    let get = |open: &OpenOwner| {
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text_of(name, "name") }?;
        let place = place_of(value)?;
        let counter = OwnerCounter::named(name).ok_or_else(|| {
            let text = format!(
                "no counter of owners is named `{name}`; forebay_owner_stats_name() lists them"
            );
            Failure::new(libc::ENOENT, text)
        })?;
        let number = counter.of(&open.owner.stats()).unwrap_or(u64::MAX);
        // SAFETY: the caller passes the place of a number; null was refused.
        unsafe { place.write(number) };
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    unsafe { on_owner(owner, get) }
}
