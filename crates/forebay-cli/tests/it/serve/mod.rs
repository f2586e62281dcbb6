//! `forebay serve`, as its users meet it: the program, a socket, and programs of others.
//!
//! - `libnbd`, `qemu`, `fio`, `script`, `guest`: what clients are used for;
//!
//! Nothing here waits for ever: programs of others have a limit of time, sockets too.

mod fio;
mod guest;
mod libnbd;
mod qemu;
mod script;
mod server;
mod tools;
