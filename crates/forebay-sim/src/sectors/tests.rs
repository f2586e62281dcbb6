//! Tests of the checker: against its definition, by trying all orders of a few operations; and
//! against faulty disks, each with one kind of fault.

mod by_hand;
mod every_order;
mod liars;
