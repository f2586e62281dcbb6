//! The integration tests, one program.

mod differential;
mod histories;
mod nbd;
mod plants;
mod same_bytes;
mod seeds;
