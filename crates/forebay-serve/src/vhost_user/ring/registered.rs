//! Registration of the guest's memory with the disk of a ring (`--register-memory`).
//!
//! The regions of a table are registered when the ring gets the table. A region that is not in a
//! later table stays registered until the last request with a former table has ended: until then a
//! driver may use its registration. Each request holds its table, so the references count them.
//! Regions of the same place in two tables have one mapping, which the older table keeps.

use forebay::{RegisterError, RegisteredMemory};
use forebay_vhost_user::GuestMemory;
use std::rc::Rc;

/// A region of the guest's memory.
#[derive(Debug)]
struct Region {
    addr: usize,
    len: usize,
    /// `None`: the kernel refuses it, and its I/O continues without registration.
    registered: Option<RegisteredMemory>,
}

/// A table with its regions.
#[derive(Debug)]
struct Held {
    // Dropped first: the table keeps the regions mapped.
    regions: Vec<Rc<Region>>,
    table: Rc<GuestMemory>,
}

/// The registered memory of one ring.
#[derive(Debug, Default)]
pub(super) struct Registered {
    tables: Vec<Held>,
}

impl Registered {
    /// Registers the regions of a table that are not registered, by `register`. Returns why the
    /// kernel refuses one, if it does.
    pub(super) fn add(
        &mut self,
        table: &Rc<GuestMemory>,
        register: impl Fn(usize, usize) -> Result<RegisteredMemory, RegisterError>,
    ) -> Option<String> {
        // The ring keeps its table if it refuses another one.
        if self.tables.iter().any(|held| Rc::ptr_eq(&held.table, table)) {
            return None;
        }
        let mut why = None;
        let mut region = |(addr, len): (usize, usize)| {
            let mut held = self.tables.iter().flat_map(|held| &held.regions);
            if let Some(region) = held.find(|region| (region.addr, region.len) == (addr, len)) {
                return Rc::clone(region);
            }
            let registered =
                register(addr, len).map_err(|error| why = Some(error.to_string())).ok();
            Rc::new(Region { addr, len, registered })
        };
        let regions = table.mappings().map(&mut region).collect();
        self.tables.push(Held { regions, table: Rc::clone(table) });
        why
    }

    /// Ends the registration of regions that neither the ring nor a request uses any more.
    #[inline]
    pub(super) fn release_unused(&mut self) {
        self.tables.retain(|held| Rc::strong_count(&held.table) > 1);
    }

    /// Returns how many requests of the ring's hardware context have used registered memory.
    /// `None`: no memory is registered.
    #[inline]
    pub(super) fn nr_requests(&self) -> Option<u64> {
        let mut regions = self.tables.iter().flat_map(|held| &held.regions);
        regions.find_map(|region| Some(region.registered.as_ref()?.nr_hctx_requests()))
    }
}
