//! The integration tests, one program.

mod blk;
mod costs;
mod differential;
mod histories;
mod hold;
mod nbd;
mod owners;
mod plants;
mod same_bytes;
mod seeds;
mod server;
mod streams;
