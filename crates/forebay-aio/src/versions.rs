//! The functions of libaio 0.1 that later versions have changed, for `libaio.so.1`.
//!
//! - `io_getevents(context, max, events, timeout)` waits for one event.
//! - `io_cancel(context, iocb)` has no event; the later function ignores its own.
//! - `io_queue_wait` has the same arguments in both versions.
//!
//! Each moves its arguments, and jumps to the function of Rust. `.symver` names the version, which
//! `libaio.map` defines. It is in the same assembly, because the directive and the function must be
//! in one object. The later version of these functions is here too: the linker takes no second
//! symbol of that name.
// Assembly.
#![allow(unsafe_code)]

use crate::exports::{io_cancel, io_getevents, io_queue_wait};
use std::arch::global_asm;

/// Defines `$symbol`, which runs `$line` and jumps to `$target`.
macro_rules! version {
    ($symbol:literal, $version:literal, [$($line:literal),*], $target:ident) => {
        global_asm!(
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", %function"),
            concat!($symbol, ":"),
            $($line,)*
            concat!(jump!(), " {target}"),
            concat!(".size ", $symbol, ", . - ", $symbol),
            concat!(".symver ", $symbol, ", ", $version),
            target = sym $target,
        );
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}

version!("forebay_io_getevents_4", "io_getevents@@LIBAIO_0.4", [], io_getevents);
version!("forebay_io_cancel_4", "io_cancel@@LIBAIO_0.4", [], io_cancel);
version!("forebay_io_cancel_1", "io_cancel@LIBAIO_0.1", [], io_cancel);
version!("forebay_io_queue_wait_4", "io_queue_wait@@LIBAIO_0.4", [], io_queue_wait);
version!("forebay_io_queue_wait_1", "io_queue_wait@LIBAIO_0.1", [], io_queue_wait);

#[cfg(target_arch = "x86_64")]
version!(
    "forebay_io_getevents_1",
    "io_getevents@LIBAIO_0.1",
    ["mov r8, rcx", "mov rcx, rdx", "mov rdx, rsi", "mov esi, 1"],
    io_getevents
);

#[cfg(target_arch = "aarch64")]
version!(
    "forebay_io_getevents_1",
    "io_getevents@LIBAIO_0.1",
    ["mov x4, x3", "mov x3, x2", "mov x2, x1", "mov x1, #1"],
    io_getevents
);
