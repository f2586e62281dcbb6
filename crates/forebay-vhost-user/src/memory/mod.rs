//! Memory of the guest, mapped into this process.
//!
//! The guest, and every process that shares its memory, may change it at any time. So no reference
//! to it exists in this process. Each access has one of three forms:
//!
//! - Rings are read and written with atomic accesses, and descriptors are read with volatile ones
//!   (`range`). Each value is read once and checked afterwards ([`crate::ring`]).
//! - Headers, statuses and bounced data are copied, with volatile accesses (`data`).
//! - Data of requests is passed to the disk as addresses ([`Segment`](forebay_core::Segment)). The
//!   kernel reads and writes them, or a driver of the library copies them through raw pointers.
//!   Neither inspects the data, so a change meanwhile only changes the data that the guest reads or
//!   writes itself.
//!
//! Addresses come from a table (`regions`), which checks them. Everything that holds addresses
//! holds its table too, and the table holds the mappings. `vm-memory` maps the regions. Its
//! accesses look a region up and check a range for each value, which cost more than the rest of a
//! request; so the table has a list of its own, and a range is checked once.

mod data;
mod range;
mod regions;

pub use data::GuestData;
pub(crate) use data::{Gathered, GuestByte, Lists};
pub(crate) use range::{GuestRange, KeptRange, prefetch};
pub use regions::{GuestMemory, OutsideMemory};
