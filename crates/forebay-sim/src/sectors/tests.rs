//! The check against its definition: all orders of few operations, tried one by one; and against
//! disks that lie, each in one way.

mod by_hand;
mod every_order;
mod liars;
