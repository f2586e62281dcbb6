//! Bugs planted in this crate, which prove that simulated clients and guests can find them.
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
pub use chosen::{FrontPlant, Protocol, choose, shows};

#[cfg(forebay_plant)]
mod chosen {
    use std::cell::RefCell;

    /// Protocol of the clients that find a bug.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Protocol {
        /// NBD.
        Nbd,
        /// virtio-blk.
        Blk,
    }

    /// Declares the bugs, each with the beginning of the text of the rule that must find it, for
    /// each protocol whose clients can find it.
    macro_rules! front_plants {
        ($($(#[$doc:meta])* $plant:ident: $($protocol:ident $rule:literal),+;)*) => {
            /// A bug of this crate.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum FrontPlant {
                $($(#[$doc])* $plant,)*
            }

            impl FrontPlant {
                /// All bugs of this crate.
                pub const ALL: &[FrontPlant] = &[$(FrontPlant::$plant),*];

                /// Returns the beginning of the text of the rule that must find the bug. `None`:
                /// clients of this protocol cannot find it.
                pub const fn breaks(self, protocol: Protocol) -> Option<&'static str> {
                    match (self, protocol) {
                        $($((FrontPlant::$plant, Protocol::$protocol) => Some($rule),)+)*
                        _ => None,
                    }
                }
            }
        };
    }

    front_plants! {
        /// A reply has the cookie of another request.
        OtherCookie: Nbd "N";
        /// A request is answered twice.
        AnswerTwice: Nbd "N2:", Blk "X1:";
        /// A request is never answered.
        AnswerNever: Nbd "N", Blk "X1:";
        /// Two writes get each other's reply.
        SwapCookies: Nbd "P";
        /// A flush is answered before it is done.
        EarlyFlush: Nbd "P2:", Blk "P2:";
        /// A flush is answered at once if its connection has no request in flight.
        IdleFlush: Nbd "P2:";
        /// FUA is ignored.
        ForgetFua: Nbd "P2:", Blk "P2:";
        /// A write is answered before it is done.
        EarlyWrite: Nbd "P";
        /// A write is answered, and not done.
        LostWrite: Nbd "P", Blk "P";
        /// A write goes to the disk before its whole payload has arrived.
        TornPayload: Nbd "P3:";
        /// A write goes to the next block.
        MisplacedWrite: Nbd "P3:", Blk "P3:";
        /// A read returns the next block.
        MisplacedRead: Nbd "P3:", Blk "P3:";
        /// A read is answered before its data have arrived.
        EarlyRead: Nbd "P3:";
        /// A request is answered although the disk has not completed all of its I/O.
        EarlySettle: Nbd "no assertion fails", Blk "no assertion fails";
        /// A read returns the old contents of its buffer.
        StaleBuffer: Nbd "P3:";
        /// A chunk has a wrong offset.
        WrongPlace: Nbd "N3:";
        /// Two pieces of a read have each other's data.
        MixPieces: Nbd "P3:";
        /// One byte of a refused payload is not skipped.
        OutOfStep: Nbd "N";
        /// One byte of data is not sent.
        ShortData: Nbd "N";
        /// A failed request is answered as done.
        HideFailure: Nbd "", Blk "";
        /// A failure after good data is not reported.
        HideLateFailure: Nbd "N3:";
        /// The key of a client that is gone finds the client that has its place now.
        AnswerNext: Nbd "";
        /// A request that must be refused is answered as done.
        Obey: Nbd "N", Blk "X2:";
        /// The memory of a client that is gone is not returned to the pool.
        LeakBuffer: Nbd "N7:";
        /// A connection that is over is not closed.
        LeakConnection: Nbd "N", Blk "X4:";
        /// Clients are closed when the server stops, before their requests are answered.
        DropAtStop: Nbd "N2:", Blk "X1:";
        /// A connection with new replies is not flushed.
        ForgetFlush: Nbd "N6:";
        /// A connection that waits for memory or for the disk is not resumed.
        ForgetWaiting: Nbd "N", Blk "";
        /// Bytes that no event reports are not received.
        ForgetUnreported: Nbd "N";
        /// Replies are sent between the portions of a read whose reply has one header.
        Interrupt: Nbd "N";
        /// Bytes behind a request that waits are lost.
        DropRest: Nbd "N";
        /// A request of a ring has the head of another one.
        OtherHead: Blk "X1:";
        /// A used entry has a wrong length.
        WrongLength: Blk "X1:";
        /// Some of the ranges of a request are not discarded or zeroed.
        ForgetRange: Blk "P3:";
        /// Y1: A ring that is broken takes more requests.
        TakeFromBroken: Blk "Y1:";
        /// Y1: A broken ring is not reported.
        HideBroken: Blk "Y1:";
        /// Y1: A broken ring is closed before its requests are answered.
        DropAccepted: Blk "Y1:";
        /// Y1: A bad request stops its ring.
        StopForBadRequest: Blk "Y1:";
        /// Y2: The state of the write cache is ignored.
        IgnoreWriteCache: Blk "P2:";
        /// Y2: A driver without FLUSH gets a write cache.
        CacheWithoutFlush: Blk "P2:";
        /// Y3: Requests are taken while the driver notifies the device.
        TakeWithNotifications: Blk "Y3:";
        /// Y3: Only one of the available requests is taken.
        TakeOne: Blk "Y3:";
        /// Y3: Notifications stay disabled at the end of a round.
        ForgetEnable: Blk "Y3:";
        /// Y3: The ring is not looked at again after notifications were enabled.
        ForgetSecondLook: Blk "Y3:";
        /// Y3: The same after polling.
        ForgetLookAfterPoll: Blk "Y3:";
        /// Y4: The driver is notified of each used entry.
        NotifyEach: Blk "Y4:";
        /// Y4: The driver is not notified at the end of a round.
        ForgetNotify: Blk "Y4:";
        /// Y4: The driver is not notified in a long round.
        NotifyLate: Blk "Y4:";
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
