//! Owned buffers, aligned for every disk.
// Memory of a chosen alignment is allocated by hand.
#![allow(unsafe_code)]

use crate::arena::{Arena, BUF_ALIGN};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// A zeroed, page-aligned buffer that moves into an I/O and returns with its completion.
///
/// Its memory is from the heap, or from memory that a disk has registered with its device
/// ([`Disk::buf`](crate::Disk::buf)).
///
/// The layer owns it in between, so no other code can touch the memory while the device does.
// In this order a buffer is moved in the same two parts in which it was written: 16 bytes, and the
// pointer, whose null is the `None` of an option. Otherwise the move has to wait for the writes.
#[repr(C)]
pub struct Buf {
    len: usize,
    /// The origin of the memory: a share of an `Arc`, or null for the heap. A plain pointer keeps
    /// moves of buffers cheap.
    home: *const Arena,
    ptr: NonNull<u8>,
}

// SAFETY: a `Buf` owns its memory, like a `Box<[u8]>`, and its part in an arena, like an `Arc`.
unsafe impl Send for Buf {}
// SAFETY: shared access to a `Buf` gives out `&[u8]` only.
unsafe impl Sync for Buf {}

impl Buf {
    /// Creates a buffer of `len` zero bytes.
    ///
    /// # Panics
    /// Panics if `len` is 0 or exceeds `isize::MAX`. Aborts when memory runs out, as `Vec` does.
    pub fn new(len: usize) -> Buf {
        let layout = layout(len);
        // SAFETY: the layout has a size above 0.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        Buf { ptr, len, home: std::ptr::null() }
    }

    /// Creates a buffer of `len` zero bytes in an arena. Returns `None` if the arena has no room.
    ///
    /// # Panics
    /// Panics if `len` is 0.
    pub(crate) fn new_in(arena: &Arc<Arena>, len: usize) -> Option<Buf> {
        assert!(len > 0, "a Buf has at least one byte");
        let ptr = arena.take(len)?;
        // SAFETY: the part is `len` bytes long, and ours.
        unsafe { ptr.write_bytes(0, len) };
        Some(Buf { ptr, len, home: Arc::into_raw(Arc::clone(arena)) })
    }

    /// Returns whether a disk has registered this memory with its device
    /// ([`Disk::buf`](crate::Disk::buf)).
    pub fn is_registered(&self) -> bool {
        !self.home.is_null()
    }

    /// Returns the address of the first byte. It stays the same while the buffer lives, even if it
    /// moves.
    pub(crate) fn addr(&self) -> usize {
        self.ptr.as_ptr().expose_provenance()
    }
}

/// Frees the memory of a buffer, which is given by its parts.
///
/// # Safety
/// The parts are those of a `Buf` that is not used again.
#[inline(never)]
unsafe fn free(ptr: NonNull<u8>, len: usize, home: *const Arena) {
    if home.is_null() {
        // SAFETY: allocated in `new` with the same layout, and freed here only.
        return unsafe { dealloc(ptr.as_ptr(), layout(len)) };
    }
    // SAFETY: `new_in` made this pointer of the share of an `Arc`, and took the part from it.
    let arena = unsafe { Arc::from_raw(home) };
    arena.give_back(ptr, len);
}

fn layout(len: usize) -> Layout {
    assert!(len > 0, "a Buf has at least one byte");
    Layout::from_size_align(len, BUF_ALIGN).expect("a Buf is at most isize::MAX bytes")
}

impl Drop for Buf {
    // Passes the parts, not the address. So a function that has a buffer while it may panic keeps
    // the parts in registers.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the parts are this buffer's, which ends here.
        unsafe { free(self.ptr, self.len, self.home) };
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `len` initialised bytes while `self` lives, and borrowed.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl From<&[u8]> for Buf {
    /// Copies `bytes`.
    ///
    /// # Panics
    /// Panics if `bytes` is empty.
    fn from(bytes: &[u8]) -> Buf {
        let mut buf = Buf::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl From<Vec<u8>> for Buf {
    /// Copies `bytes`. The memory of the `Vec<u8>` cannot be reused, because it has the alignment
    /// of a byte, and a `Buf` has that of a page.
    ///
    /// # Panics
    /// Panics if `bytes` is empty.
    ///
    /// ```
    /// use forebay::{Disk, Io};
    ///
    /// let disk = Disk::open("ram:1M")?;
    /// disk.queue().submit(Io::write(vec![7; 4096].into(), 0))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn from(bytes: Vec<u8>) -> Buf {
        Buf::from(&bytes[..])
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf").field("len", &self.len).finish_non_exhaustive()
    }
}
