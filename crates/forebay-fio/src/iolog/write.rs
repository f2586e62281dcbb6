//! The lines of an iolog of version 3, which fio 3.31 and later write and read.

use super::Act;
use crate::generator::Op;

/// The first line.
pub const HEADER: &str = "fio version 3 iolog\n";

/// Returns the line of an I/O that was submitted at this time.
pub fn io_line(now_ns: u64, name: &str, op: Op) -> String {
    let Op { direction, offset, len, .. } = op;
    format!("{} {name} {} {offset} {len}\n", now_ns / 1000, direction.word())
}

/// Returns the line of a sync.
pub fn sync_line(now_ns: u64, name: &str, act: Act) -> String {
    let word = if act == Act::Datasync { "datasync" } else { "sync" };
    format!("{} {name} {word} 0 0\n", now_ns / 1000)
}

/// Returns the line of an action on a file: `add`, `open` or `close`.
pub fn file_line(now_ns: u64, name: &str, action: &str) -> String {
    format!("{} {name} {action}\n", now_ns / 1000)
}
