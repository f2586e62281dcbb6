//! Parts for drivers whose completions come from other threads, such as callbacks of a library.
//!
//! - [`CompletionList`]: completions that any thread pushes, with everything that waits for them.

mod list;

pub(crate) use list::CompletionList;
