//! The probes themselves: a `nop` and a note for each event.
// The notes are written by the assembler.
#![allow(unsafe_code)]

use crate::runtime::trace::switch::SWITCH;
use forebay_core::{Op, TraceEvent, TraceRecord};
use std::ffi::CStr;

/// The arguments of all probes.
#[derive(Clone, Copy)]
struct Arguments<'a> {
    disk: &'a CStr,
    op: &'static CStr,
    start: u64,
    len: u64,
    errno: i64,
}

/// `asm!` with the syntax of operands that notes have: that of AT&T on x86.
#[cfg(target_arch = "x86_64")]
macro_rules! probe_asm {
    ($($arguments:tt)*) => {
        std::arch::asm!($($arguments)* options(nostack, preserves_flags, readonly, att_syntax))
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! probe_asm {
    ($($arguments:tt)*) => {
        std::arch::asm!($($arguments)* options(nostack, preserves_flags, readonly))
    };
}

/// Defines the function of each probe, and `fire`, which calls that of an event.
macro_rules! probes {
    ($($event:ident => $function:ident, $name:literal;)*) => {
        $(
            // One place in the program for each probe.
            #[inline(never)]
            fn $function(arguments: Arguments<'_>) {
                let Arguments { disk, op, start, len, errno } = arguments;
                // SAFETY: the code is one `nop`. The rest are sections beside it, in the form of
                // the page that the parent module names.
                unsafe {
                    probe_asm!(
                        "990: nop",
                        ".pushsection .note.stapsdt, \"?\", %note",
                        ".balign 4",
                        ".4byte 992f - 991f, 994f - 993f, 3",
                        "991: .asciz \"stapsdt\"",
                        "992: .balign 4",
                        "993: .8byte 990b",
                        ".8byte _.stapsdt.base",
                        ".8byte {switch}",
                        ".asciz \"forebay\"",
                        concat!(".asciz \"", $name, "\""),
                        ".asciz \"8@{disk} 8@{op} 8@{start} 8@{len} -8@{errno}\"",
                        "994: .balign 4",
                        ".popsection",
                        // Tools compare its address with the note, to undo prelinking.
                        ".ifndef _.stapsdt.base",
                        ".pushsection .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat",
                        ".weak _.stapsdt.base",
                        ".hidden _.stapsdt.base",
                        "_.stapsdt.base: .space 1",
                        ".size _.stapsdt.base, 1",
                        ".popsection",
                        ".endif",
                        disk = in(reg) disk.as_ptr(),
                        op = in(reg) op.as_ptr(),
                        start = in(reg) start,
                        len = in(reg) len,
                        errno = in(reg) errno,
                        switch = sym SWITCH,
                    );
                }
            }
        )*

        fn fire(event: TraceEvent, arguments: Arguments<'_>) {
            match event {
                $(TraceEvent::$event => $function(arguments),)*
                // Only the files of a trace have lost records.
                _ => {}
            }
        }
    };
}

probes! {
    Queue => queue, "queue";
    BackMerge => back_merge, "back_merge";
    FrontMerge => front_merge, "front_merge";
    GetTag => get_tag, "get_tag";
    Sleep => sleep, "sleep";
    Plug => plug, "plug";
    Unplug => unplug, "unplug";
    Insert => insert, "insert";
    Issue => issue, "issue";
    Requeue => requeue, "requeue";
    Split => split, "split";
    Complete => complete, "complete";
    FlushWait => flush_wait, "flush_wait";
    FlushJoin => flush_join, "flush_join";
    FlushElided => flush_elided, "flush_elided";
    LimitWait => limit_wait, "limit_wait";
    FlushDone => flush_done, "flush_done";
}

/// Passes a record to the probe of its event.
pub(super) fn pass(disk: &CStr, record: &TraceRecord, errno: i32) {
    let &TraceRecord { event, op, start, len, .. } = record;
    let op = match op {
        Op::Read => c"read",
        Op::Write => c"write",
        Op::Flush => c"flush",
        Op::Discard => c"discard",
        Op::WriteZeroes => c"write_zeroes",
    };
    fire(event, Arguments { disk, op, start, len, errno: errno.into() });
}
