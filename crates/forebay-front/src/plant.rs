//! Bugs planted in this crate, which prove that the simulated NBD clients can find them.
//!
//! They are compiled only with `--cfg forebay_plant`. Without it, `plants!` is the constant
//! `false`.

/// Returns whether a planted bug shows now.
macro_rules! plants {
    ($plant:ident) => {{
        #[cfg(forebay_plant)]
        let shows = $crate::plant::shows($crate::plant::FrontPlant::$plant);
        #[cfg(not(forebay_plant))]
        let shows = false;
        shows
    }};
}

pub(crate) use plants;

#[cfg(forebay_plant)]
pub use chosen::{FrontPlant, choose, shows};

#[cfg(forebay_plant)]
mod chosen {
    use std::cell::RefCell;

    /// Declares the bugs, each with the beginning of the text of the rule that must find it.
    macro_rules! front_plants {
        ($($(#[$doc:meta])* $plant:ident: $rule:literal,)*) => {
            /// A bug of this crate.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum FrontPlant {
                $($(#[$doc])* $plant,)*
            }

            impl FrontPlant {
                /// All bugs of this crate.
                pub const ALL: &[FrontPlant] = &[$(FrontPlant::$plant),*];

                /// Returns the beginning of the text of the rule that must find the bug.
                pub const fn breaks(self) -> &'static str {
                    match self {
                        $(FrontPlant::$plant => $rule,)*
                    }
                }
            }
        };
    }

    front_plants! {
        /// A reply has the cookie of another request.
        OtherCookie: "N",
        /// A request is answered twice.
        AnswerTwice: "N2:",
        /// A request is never answered.
        AnswerNever: "N6:",
        /// Two writes get each other's reply.
        SwapCookies: "P",
        /// A flush is answered before it is done.
        EarlyFlush: "P2:",
        /// A flush is answered at once if its connection has no request in flight.
        IdleFlush: "P2:",
        /// FUA is ignored.
        ForgetFua: "P2:",
        /// A write is answered before it is done.
        EarlyWrite: "P",
        /// A write is answered, and not done.
        LostWrite: "P",
        /// A write goes to the disk before its whole payload has arrived.
        TornPayload: "P3:",
        /// A write goes to the next block.
        MisplacedWrite: "P3:",
        /// A read returns the next block.
        MisplacedRead: "P3:",
        /// A read is answered before its data have arrived.
        EarlyRead: "P3:",
        /// A request is answered although the disk has not completed all of its I/O.
        EarlySettle: "no assertion fails",
        /// A read returns the old contents of its buffer.
        StaleBuffer: "P3:",
        /// A chunk has a wrong offset.
        WrongPlace: "N3:",
        /// Two pieces of a read have each other's data.
        MixPieces: "P3:",
        /// One byte of a refused payload is not skipped.
        OutOfStep: "N",
        /// One byte of data is not sent.
        ShortData: "N",
        /// A failed request is answered as done.
        HideFailure: "",
        /// A failure after good data is not reported.
        HideLateFailure: "N3:",
        /// The key of a client that is gone finds the client that has its place now.
        AnswerNext: "",
        /// A request that must be refused is answered as done.
        Obey: "N",
        /// The memory of a client that is gone is not returned to the pool.
        LeakBuffer: "N7:",
        /// A connection that is over is not closed.
        LeakConnection: "N",
        /// A connection with new replies is not flushed.
        ForgetFlush: "N6:",
        /// A connection that waits for memory or for the disk is not resumed.
        ForgetWaiting: "N6:",
        /// Bytes that no event reports are not received.
        ForgetUnreported: "N6:",
        /// Replies are sent between the portions of a read whose reply has one header.
        Interrupt: "N",
        /// Bytes behind a request that waits are lost.
        DropRest: "N",
    }

    impl FrontPlant {
        /// Returns whether the bug does harm only at rare times, so that it should always show.
        pub const fn is_rare(self) -> bool {
            use FrontPlant::{ForgetUnreported, SwapCookies};
            matches!(self, ForgetUnreported | SwapCookies)
        }
    }

    type Chooser = Box<dyn FnMut(FrontPlant) -> bool>;

    thread_local! {
        static CHOOSER: RefCell<Option<Chooser>> = const { RefCell::new(None) };
    }

    /// Sets the function that decides, on this thread, whether a bug shows.
    pub fn choose(chooser: Option<Chooser>) {
        CHOOSER.with_borrow_mut(|place| *place = chooser);
    }

    /// Returns whether a bug shows now.
    pub fn shows(plant: FrontPlant) -> bool {
        CHOOSER.with_borrow_mut(|chooser| chooser.as_mut().is_some_and(|chooser| chooser(plant)))
    }
}
