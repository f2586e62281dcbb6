//! The integration tests, one program.

mod histories;
mod plants;
mod seeds;
mod sessions;
