//! Parts for authors of drivers.
//!
//! - [`CompletionList`]: completions that any thread pushes, with everything that waits for them;
//! - [`ForkGuard`]: whether this process is a child of the one that opened the driver.
//!
//! Wrappers pass calls on with [`forward!`](crate::driver::forward).

mod fork_guard;
mod list;

pub use fork_guard::ForkGuard;
pub use list::CompletionList;
pub(crate) use list::end_of;
