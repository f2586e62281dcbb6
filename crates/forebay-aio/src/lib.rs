//! libaio's functions on Forebay's block layer, for programs that run unmodified.
//!
//! Neighbouring reads and writes of one `io_submit` become one request of the kernel's AIO. Each
//! iocb still ends with its own result, event and eventfd.
//!
//! - `exports`: the functions that programs call;
//! - `table`: the contexts of the process, by handle; `context`: one of them;
//! - `plan`: which iocbs go through the layer; `file`: the block layer of a descriptor; `files`:
//!   those of a context; `records`: the iocbs that have not ended;
//! - `ring`: events in memory; `eventfds`: those that ends signal;
//! - [`area`]: the counters of a tree of processes;
//! - `kernel`, `abi`, `program`: system calls, structures, and the memory of the program.

mod abi;
pub mod area;
mod context;
mod eventfds;
pub mod exports;
mod file;
mod files;
mod kernel;
mod plan;
mod program;
mod records;
mod ring;
mod table;

pub use abi::IoEvent;
use forebay_core::{Knob, Policy};

/// The environment variable with settings of the layer, such as `nomerges=2&plug=none`.
pub const POLICY_VARIABLE: &str = "FOREBAY_RUN_POLICY";

/// The settings that have an effect here.
pub const SETTINGS: [&str; 2] = ["plug", "nomerges"];

/// Sets a setting in a policy.
///
/// # Errors
/// Fails if the key is not in [`SETTINGS`], or if it does not take the value. Returns what is
/// expected.
pub fn set(policy: &mut Policy, key: &str, value: &str) -> Result<(), String> {
    let knob = Knob::named(key).filter(|_| SETTINGS.contains(&key));
    let knob = knob.ok_or_else(|| format!("one of the settings {}", SETTINGS.join(", ")))?;
    if knob.set(policy, value) { Ok(()) } else { Err(knob.values.expected()) }
}

/// Returns the settings that the environment names. Others were refused by `forebay run`.
fn policy() -> Policy {
    let mut policy = Policy::default();
    let text = std::env::var(POLICY_VARIABLE).unwrap_or_default();
    for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let _ = set(&mut policy, key, value);
    }
    policy
}
