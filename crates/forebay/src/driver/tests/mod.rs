//! Tests for several drivers: waits, time limits, cancelled requests, descriptors with a time, and
//! requests that threads make themselves.

mod cancel;
mod descriptors;
mod due;
mod own;
mod timeout;
mod wait;
