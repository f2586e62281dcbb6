//! Memory of the checkers, kept from one run to the next on a thread.
//!
//! A random scenario has a few hundred bios. Allocating the lists of its blocks and bios would take
//! about a tenth of the run.

use super::bios::BioRow;
use super::durable::Durable;
use super::register::Register;
use std::cell::RefCell;

/// The memory of larger runs is not kept: the next run would have to visit all of it.
const NR_BLOCKS_MAX: u64 = 1024;
const NR_ROWS_MAX: usize = 4096;

/// Lists that are empty, but have memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) rows: Vec<BioRow>,
    pub(super) register: Register,
    pub(super) durable: Durable,
}

thread_local! {
    static SPARE: RefCell<Option<Memory>> = const { RefCell::new(None) };
}

impl Memory {
    /// Returns the memory of the last run of this thread, in its initial state.
    pub(super) fn take() -> Memory {
        let mut memory = SPARE.with_borrow_mut(Option::take).unwrap_or_default();
        memory.register.reset();
        memory.durable.reset();
        memory
    }

    /// Keeps the memory for the next run, unless it is large.
    pub(super) fn keep(self) {
        let Memory { rows, register, durable } = &self;
        let is_small = register.is_within(NR_BLOCKS_MAX) && durable.is_within(NR_BLOCKS_MAX);
        if is_small && rows.len() <= NR_ROWS_MAX {
            // At the end of the thread there is no next run.
            let _ = SPARE.try_with(|spare| spare.replace(Some(self)));
        }
    }
}
