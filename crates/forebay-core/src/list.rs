//! An append for lists that nearly always have room.

use alloc::vec::Vec;

/// Appends an item, as [`Vec::push`] does.
///
/// The capacity of a list of requests or bios is set at open, and the list grows only with the
/// number of its users. Here the growth is a call, so the caller keeps its values in registers
/// beside it.
#[inline(always)]
pub(crate) fn push<T>(list: &mut Vec<T>, item: T) {
    match list.len() < list.capacity() {
        // `push` would be a call too.
        true => list.extend(Some(item)),
        false => push_and_grow(list, item),
    }
}

#[cold]
#[inline(never)]
fn push_and_grow<T>(list: &mut Vec<T>, item: T) {
    list.push(item);
}
