//! The integration tests, one program.

mod plants;
mod seeds;
