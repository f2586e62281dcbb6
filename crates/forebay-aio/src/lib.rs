//! libaio's functions on Forebay's block layer, for programs that run unmodified.
//!
//! Neighbouring reads and writes of one `io_submit` become one request of the kernel's AIO. Each
//! iocb still ends with its own result, event and eventfd.
//!
//! - `exports`: the functions that programs call;
//! - `table`: the contexts of the process, by handle; `context`: one of them;
//! - `file`: the block layer of a descriptor; `records`: the iocbs that have not ended;
//! - `ring`: events in memory; `service`: the thread that reaps for programs that read them;
//! - `kernel`, `abi`, `program`: system calls, structures, and the memory of the program.

mod abi;
mod context;
mod counters;
pub mod exports;
mod file;
mod kernel;
mod program;
mod records;
mod ring;
mod service;
mod table;

pub use abi::IoEvent;
pub use counters::{Counters, counters};

/// Returns the settings of the layer.
fn policy() -> forebay_core::Policy {
    forebay_core::Policy::default()
}
