//! The contexts of the process, by the program's handle.
//!
//! The child of a fork has none of its parent's contexts: the kernel has not copied them. A thread
//! of the parent may hold any lock at the fork, so the child gets a new table, and leaks the old
//! one.
// Registers a handler of forks, and leaks tables.
#![allow(unsafe_code)]

use crate::context::Context;
use crate::raw::Errno;
use forebay_run::{Settings, area};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock};

/// A tree, because a process has few contexts: a hash of the handle would cost more.
type Table = RwLock<BTreeMap<usize, Arc<Context>>>;

/// The table. Null until it is first used, and again in the child of a fork.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_ID: AtomicU32 = AtomicU32::new(1);
static HANDLER: Once = Once::new();

extern "C" fn after_fork() {
    TABLE.store(std::ptr::null_mut(), Ordering::Relaxed);
    area::after_fork();
}

#[inline]
fn table() -> &'static Table {
    // Acquire pairs with the Release below: the table is seen whole.
    let found = TABLE.load(Ordering::Acquire);
    if !found.is_null() {
        // SAFETY: a table is never freed.
        return unsafe { &*found };
    }
    create_table()
}

#[cold]
fn create_table() -> &'static Table {
    let new = Box::into_raw(Box::<Table>::default());
    let null = std::ptr::null_mut();
    match TABLE.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: as above.
            unsafe { &*other }
        }
    }
}

/// Creates a context. Returns its handle.
pub(crate) fn create(nr: u32) -> Result<usize, Errno> {
    HANDLER.call_once(|| {
        // SAFETY: the handler only stores a pointer.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    });
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let context = Arc::new(Context::new(nr, id, Settings::of_environment())?);
    let address = context.address();
    table().write().unwrap_or_else(PoisonError::into_inner).insert(address, context);
    Ok(address)
}

/// Returns the context with this handle.
pub(crate) fn find(address: usize) -> Result<Arc<Context>, Errno> {
    let table = table().read().unwrap_or_else(PoisonError::into_inner);
    table.get(&address).cloned().ok_or(libc::EINVAL)
}

/// Removes the context with this handle.
pub(crate) fn remove(address: usize) -> Result<Arc<Context>, Errno> {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    table.remove(&address).ok_or(libc::EINVAL)
}
