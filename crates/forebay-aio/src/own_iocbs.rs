//! The iocbs that a context submits from memory of its own.
//!
//! The kernel returns the address of an iocb with its event. An iocb that the layer leaves alone is
//! submitted where the program has it, so its event is the one that the program expects. Requests
//! of the layer, iocbs with an eventfd or whose time is measured, and kicks are submitted from
//! places here, and this library sets their data. The program may choose any data, so the address
//! in an event shows its kind.
//!
//! Each record has a place (`records`), and one more place is for kicks. The kernel copies an iocb
//! when it is submitted. Only a poll is found again at its place, when the program cancels it.
// Memory that the kernel reads by address.
#![allow(unsafe_code)]

use crate::abi::Iocb;
use crate::raw::Errno;
use std::ptr::NonNull;

/// A number of places. Pages that no iocb has used take no memory.
#[derive(Debug)]
pub(crate) struct OwnIocbs {
    first: NonNull<Iocb>,
    nr: usize,
}

// SAFETY: the places are memory of their own. `put` names the only thread that writes one.
unsafe impl Send for OwnIocbs {}
// SAFETY: as above.
unsafe impl Sync for OwnIocbs {}

impl OwnIocbs {
    /// Creates places for `nr_records` records, and one for kicks.
    pub(crate) fn new(nr_records: u32) -> Result<OwnIocbs, Errno> {
        let nr = nr_records as usize + 1;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (null, bytes) = (std::ptr::null_mut(), nr * size_of::<Iocb>());
        // SAFETY: new memory, at an address that the kernel chooses.
        let mapped = unsafe { libc::mmap(null, bytes, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(libc::ENOMEM);
        }
        Ok(OwnIocbs { first: NonNull::new(mapped.cast()).ok_or(libc::ENOMEM)?, nr })
    }

    /// Returns whether an event with this address of an iocb is of an iocb that was submitted from
    /// here.
    pub(crate) fn contain(&self, obj: u64) -> bool {
        let first = self.first.addr().get() as u64;
        obj.wrapping_sub(first) < (self.nr * size_of::<Iocb>()) as u64
    }

    /// Returns the place of a record.
    pub(crate) fn place(&self, record: u32) -> *mut Iocb {
        assert!((record as usize) < self.nr, "a context has fewer records than places");
        // SAFETY: the place is in the mapping.
        unsafe { self.first.add(record as usize) }.as_ptr()
    }

    /// Puts an iocb into the place of a record. The caller submits it then: no other thread does
    /// that with this record.
    pub(crate) fn put(&self, record: u32, iocb: Iocb) -> *mut Iocb {
        let place = self.place(record);
        // SAFETY: the place is writable, and no other thread uses it.
        unsafe { place.write(iocb) };
        place
    }

    /// Puts a kick into its place. The caller has the lock of the context until it is submitted.
    pub(crate) fn put_kick(&self, iocb: Iocb) -> *mut Iocb {
        self.put(self.nr as u32 - 1, iocb)
    }
}

impl Drop for OwnIocbs {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and the kernel has copied its iocbs.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.nr * size_of::<Iocb>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_iocbs_contain_the_addresses_of_their_places_only() {
        let own = OwnIocbs::new(2).expect("memory");
        let iocb = |data| Iocb { data, ..Iocb::default() };
        let places = [own.put(0, iocb(5)), own.put(1, iocb(6)), own.put_kick(iocb(7))];
        // SAFETY: the places were written.
        assert_eq!(places.map(|place| unsafe { place.read() }.data), [5, 6, 7]);
        let address = |place: *mut Iocb| place.addr() as u64;
        assert!(places.iter().all(|place| own.contain(address(*place))));
        let outside = [address(places[0]) - 1, address(places[2]) + 64, 0, u64::MAX];
        assert!(outside.iter().all(|obj| !own.contain(*obj)));
    }
}
