//! `forebay serve`, as its users meet it: the program, a socket, and programs of others.
//!
//! - `server`: the program at work; `tools`: programs of others; `client`: a client of our own that
//!   sends whatever it is told;
//! - `libnbd`, `qemu`, `fio`, `script`, `guest`: what clients are used for;
//! - `refusals`: what is wrong with its options, before it serves;
//! - `chain`: a server whose disk is another server's;
//! - `process`, `activation`, `signals`: what it does with its process, and who has started it;
//! - `confinement`: what it cannot do any more, as the kernel sees it;
//! - `hangup`: SIGHUP, with a controlling terminal and without;
//! - `endings`: what it says when it ends badly;
//! - `load`, `registers`: four clients whose log is checked, also behind a kill;
//! - `rude`, `hostile`: clients that leave in the middle, and that mean harm.
//!
//! Nothing here waits for ever: programs of others have a limit of time, sockets too.

mod activation;
mod chain;
mod client;
mod confinement;
mod endings;
mod fio;
mod guest;
mod hangup;
mod hostile;
mod libnbd;
mod load;
mod locks;
mod process;
mod qemu;
mod refusals;
mod registers;
mod rude;
mod script;
mod server;
mod signals;
mod tls;
mod tools;
