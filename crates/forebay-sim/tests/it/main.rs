//! The integration tests, one program.

mod costs;
mod histories;
mod nbd;
mod plants;
mod seeds;
