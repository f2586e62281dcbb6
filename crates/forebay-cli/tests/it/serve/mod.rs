//! `forebay serve` from a user's view: the program, a socket, and third-party programs.
//!
//! - `server`: the program under test; `tools`: third-party programs; `client`: an independent
//!   client that sends any bytes;
//! - `libnbd`, `qemu`, `fio`, `script`, `guest`: typical uses of clients;
//! - `refusals`: invalid options, refused before it serves;
//! - `vhost_user`: disks for virtual machines; `masking`: a proxy that hides features of them;
//!   `front_end`: a virtual machine in the process of a test; `ring_registers`, `hostile_rings`;
//! - `chain`: a server on the disk of another server;
//! - `process`, `activation`, `signals`: its process, and the service manager that starts it;
//! - `ctl`: exports added, removed and changed while it runs; `manners`: in the background, with a
//!   command, and its log; `top`: its counters, as text, as JSON and as a live view; `traces`:
//!   traces of it; `other_users`: clients of another user;
//! - `confinement`: restrictions that the kernel enforces;
//! - `hangup`: SIGHUP, with and without a controlling terminal; `resize`: files that grow;
//! - `endings`: messages and exit codes after failures;
//! - `load`, `registers`: four clients with a checked log, also across kills;
//! - `rude`, `hostile`: clients that disconnect early, and malicious clients.
//!
//! No test waits forever: third-party programs and sockets have timeouts.

mod activation;
mod chain;
mod client;
mod confinement;
mod ctl;
mod endings;
mod fio;
pub(crate) mod front_end;
mod guest;
mod hangup;
mod hostile;
mod hostile_rings;
mod libnbd;
mod load;
mod locks;
mod manners;
mod masking;
mod other_users;
mod process;
mod qemu;
mod refusals;
mod registers;
mod resize;
mod ring_registers;
mod rude;
mod script;
pub(crate) mod server;
mod signals;
mod timeouts;
mod tls;
mod tools;
mod top;
mod traces;
mod vhost_user;
