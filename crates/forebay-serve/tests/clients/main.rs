//! Clients of a server that runs in the process of the test.

mod cache;
mod client;
mod counters;
mod durability;
mod embedded;
mod fairness;
mod flags;
mod limits;
mod managed;
mod merging;
mod order;
mod per_client;
mod server;
mod shutdown;
#[path = "../../../forebay/tests/support/skip.rs"]
mod skip;
#[path = "../../../forebay/tests/support/thin_device.rs"]
mod thin_device;
