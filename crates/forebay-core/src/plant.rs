//! Bugs planted in this crate, which prove that the simulator's checkers can fail.
//!
//! They are compiled only with `--cfg forebay_plant`. Without it, `plants!` is the constant
//! `false`.

/// Returns whether a planted bug shows now.
macro_rules! plants {
    ($plant:ident) => {{
        #[cfg(forebay_plant)]
        let shows = $crate::plant::shows($crate::plant::CorePlant::$plant);
        #[cfg(not(forebay_plant))]
        let shows = false;
        shows
    }};
}

pub(crate) use plants;

#[cfg(forebay_plant)]
pub use chosen::{CorePlant, choose, shows};

#[cfg(forebay_plant)]
mod chosen {
    use alloc::boxed::Box;
    use std::cell::RefCell;
    use std::thread_local;

    /// A bug of this crate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CorePlant {
        /// A leader whose own bios have ended is not kicked (W4).
        SkipKick,
        /// A leader leaves without passing the baton (W3).
        DropBaton,
        /// A follower parks without checking whether there is a leader (W1).
        ParkBlindly,
        /// A mark is forgotten when the token is released (R1).
        ForgetMark,
        /// A leader without the token blocks, and does not request another turn (R2).
        BlockUnasked,
        /// A leader that has to make one more turn leaves without it, because its own wait is over
        /// (R1).
        LeaveKept,
        /// A turn dispatches behind a closed gate (R5).
        DispatchQuiesced,
        /// A turn accepts requests while the disk is frozen (R5).
        EnterFrozen,
        /// Completions are reaped while a kick is on its way (K8).
        ReapKicked,
        /// A turn arms nothing for its deadline (W7).
        SkipDeadline,
        /// Requests over their time limit are not noticed (H1).
        SkipTimeout,
        /// Bios end when their request is overdue, and not after the grace period (H5).
        EndBeforeGrace,
        /// The memory of a bio that has ended early is not kept for the driver (H5).
        DropHold,
        /// Requests that overlap a write that was given up are issued (H6).
        ForgetRange,
        /// A split bio takes the first tag that is freed, although it gathers (T14).
        SkipGather,
    }

    type Chooser = Box<dyn FnMut(CorePlant) -> bool>;

    thread_local! {
        static CHOOSER: RefCell<Option<Chooser>> = const { RefCell::new(None) };
    }

    /// Sets the function that decides, on this thread, whether a bug shows.
    pub fn choose(chooser: Option<Chooser>) {
        CHOOSER.with_borrow_mut(|place| *place = chooser);
    }

    /// Returns whether a bug shows now.
    pub fn shows(plant: CorePlant) -> bool {
        CHOOSER.with_borrow_mut(|chooser| chooser.as_mut().is_some_and(|chooser| chooser(plant)))
    }
}
