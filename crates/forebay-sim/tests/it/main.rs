//! The integration tests, one program.

mod histories;
mod nbd;
mod plants;
mod same_bytes;
mod seeds;
