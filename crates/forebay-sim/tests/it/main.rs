//! The integration tests, one program.

mod blk;
mod costs;
mod differential;
mod histories;
mod nbd;
mod plants;
mod same_bytes;
mod seeds;
mod server;
