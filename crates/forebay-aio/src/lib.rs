//! libaio's functions on Forebay's block layer, for programs that run unmodified.
//!
//! This is a shared library for C programs, without an interface for Rust: a Rust program that
//! linked it would get its functions in place of libc's.
//!
//! Neighbouring reads and writes of one `io_submit` become one request of the kernel's AIO. Each
//! iocb still ends with its own result, event and eventfd.
//!
//! - `exports`: the functions that programs call;
//! - `table`: the contexts of the process, by handle; `context`: one of them;
//! - `plan`: which iocbs go through the layer; `file`: the block layer of a descriptor; `files`:
//!   those of a context; `records`: the iocbs that have not ended;
//! - `keeper`: the file of reads that are held, and of syncs that wait;
//! - `syncs`: `fsync` and `fdatasync`, which threads share;
//! - `ring`: events in memory; `eventfds`: those that ends signal;
//! - `stats`: the files of descriptors, and times of stages, for the area of `forebay run`;
//! - `syscall`: libc's function of that name, for programs that use AIO without libaio;
//! - `versions`: functions of older versions of libaio, for `libaio.so.1`;
//! - `own_iocbs`: those that are submitted from this library's memory;
//! - `kernel`, `raw`, `abi`, `program`: system calls, structures, and the memory of the program.

mod abi;
mod context;
mod eventfds;
pub mod exports;
mod file;
mod files;
mod keeper;
mod kernel;
mod own_iocbs;
mod plan;
mod program;
mod raw;
mod records;
mod ring;
mod stats;
mod syncs;
#[cfg(all(target_arch = "x86_64", not(test)))]
mod syscall;
mod table;
#[cfg(forebay_libaio)]
mod versions;

pub use abi::IoEvent;

#[cfg(test)]
#[path = "../../forebay/tests/support/skip.rs"]
#[allow(dead_code, reason = "each user needs a part")]
mod skip;
