//! What clients get of a server that runs in the process of the test.

mod cache;
mod client;
mod counters;
mod durability;
mod embedded;
mod ends;
mod fairness;
mod flags;
mod merging;
mod order;
mod server;
#[path = "../../../forebay/tests/support/thin_device.rs"]
mod thin_device;
