//! Memory of the guest, mapped into this process.

use std::sync::Arc;
use vm_memory::GuestMemoryMmap;

/// An immutable table of the regions of a guest. A clone shares the table.
///
/// A region stays mapped until the last table and the last I/O that use it are dropped. So a change
/// of the table waits for no I/O.
#[derive(Clone, Debug)]
pub struct GuestMemory(Arc<GuestMemoryMmap>);

impl GuestMemory {
    /// Returns a table without regions.
    pub fn empty() -> GuestMemory {
        GuestMemory(Arc::new(GuestMemoryMmap::new()))
    }

    /// Returns a table of these regions.
    pub fn new(regions: GuestMemoryMmap) -> GuestMemory {
        GuestMemory(Arc::new(regions))
    }

    /// Returns the regions.
    pub fn regions(&self) -> &GuestMemoryMmap {
        &self.0
    }
}
