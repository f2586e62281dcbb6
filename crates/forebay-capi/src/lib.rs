//! Forebay for C: the library `libforebay` and its header `forebay.h`.
//!
//! Every function of the header is an `extern "C"` function of this crate. The rules for all:
//!
//! - J1: the body runs in [`error::guard`], so that no panic reaches C. Results are 0 or a count,
//!   or a negative errno; the thread keeps a text for the last failure.
//! - J2: a handle is checked before it is used: null, of another kind, closed ([`handle`]). So is
//!   a request, by the key that C uses instead ([`slab`]).
//! - J3: a queue is used by the thread that opened it. Other threads get `EPERM` ([`queue`]).
//! - J4: numbers of the caller are checked before they become enums or flags ([`io`]). Structures
//!   that a caller fills carry their size, so that later versions can add fields.
//! - J5: memory of the caller is passed on by address. No reference to it is made, because the
//!   caller's other threads may change it.
//!
//! The header is made by cbindgen and is part of the tree, as is the list of symbols. Tests compare
//! both.
#![allow(unreachable_pub, reason = "functions and types are public for C, not for Rust")]
#![allow(non_camel_case_types, reason = "types have the names that C programs use")]

mod args;
mod backend;
mod commit;
mod disk;
mod durable;
mod error;
mod extents;
mod handle;
mod hold;
mod info;
mod insight;
mod io;
mod late;
mod open;
mod owner;
mod plug;
mod queue;
mod request;
mod scheduling;
mod slab;
mod stats;
