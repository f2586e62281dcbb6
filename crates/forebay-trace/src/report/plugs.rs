//! The plugs of the threads.
//!
//! A U ends the plug of all requests of its thread. With `plug=per-level`, the requests of an outer
//! plug wait longer: the rest of their wait counts as the next stage.

use super::in_flight::InFlight;
use super::waiting::BioId;
use std::collections::HashMap;

/// The plug of a thread.
#[derive(Debug, Default)]
struct Plug {
    is_open: bool,
    /// The bio that was queued last; `None` if that was a flush.
    last: Option<BioId>,
    bios: Vec<BioId>,
    /// The number of gaps before the bios.
    nr_gaps: u64,
}

/// The plug of each thread, by the index of its file.
#[derive(Debug, Default)]
pub(super) struct Plugs {
    plugs: HashMap<u32, Plug>,
    /// Number of gaps so far. A plug with a lower number drops its bios at its next use. So a gap
    /// does not visit all plugs: a damaged file may have many of both.
    nr_gaps: u64,
}

impl Plugs {
    /// Forgets all bios.
    pub(super) fn forget(&mut self) {
        self.nr_gaps += 1;
    }

    fn plug_of(&mut self, index: u32) -> &mut Plug {
        let plug = self.plugs.entry(index).or_default();
        if plug.nr_gaps != self.nr_gaps {
            *plug = Plug { is_open: plug.is_open, nr_gaps: self.nr_gaps, ..Plug::default() };
        }
        plug
    }

    /// Returns the bio that a thread has queued last.
    pub(super) fn last(&mut self, index: u32) -> Option<BioId> {
        self.plug_of(index).last
    }

    /// Adds a bio that a thread has queued, or notes that it has queued a flush.
    pub(super) fn queue(&mut self, index: u32, id: Option<BioId>) {
        let plug = self.plug_of(index);
        plug.last = id;
        if plug.is_open {
            plug.bios.extend(id);
        }
    }

    /// Opens the plug of a thread. The bio that it has just queued is in it.
    pub(super) fn plug(&mut self, index: u32) {
        let plug = self.plug_of(index);
        plug.is_open = true;
        plug.bios.extend(plug.last);
    }

    /// Ends the plug of a thread.
    pub(super) fn unplug(&mut self, index: u32, now: u64, in_flight: &mut InFlight) {
        let plug = self.plug_of(index);
        plug.is_open = false;
        plug.bios.drain(..).for_each(|id| in_flight.unplug(id, now));
    }
}
