//! NBD as a [`Session`] of the front, and what its sessions share.

use super::cache::Caching;
use super::conn::{Conn, Phase};
use super::in_flight::InFlight;
use super::input::Inbound;
use super::{NbdClients, NbdDesk, NbdFront, NbdHost};
use crate::ending::Ending;
use crate::flight::{Answered, Flight};
use crate::front::max_without_export;
use crate::link::Link;
use crate::session::{EndedOf, Progress, Session, Settled};
use crate::slots::Key;
use crate::stream::pool::{Budget, Capacity, Pool};
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::{Handshake, TlsPolicy};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Time limit for a client to send a piece of a payload while other clients wait for memory, ns. A
/// piece has at most 256 KiB, so a client must send at least 9 kB/s to keep its connection.
const PIECE_NS: u64 = 30_000_000_000;

/// Facts of an export's disk.
#[derive(Clone, Copy, Debug)]
pub struct ExportFacts {
    /// Whether a discard implements WRITE_ZEROES without NO_HOLE.
    pub discards_to_zeroes: bool,
    /// Whether a read fills the whole buffer. If not, the session clears the buffer before it sends
    /// it, since it may contain data of other clients.
    pub keeps_data: bool,
    /// Whether a read fills a cache from which later reads are served.
    pub caches_reads: bool,
}

/// Settings of an NBD server, the same for each of its fronts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Descriptions of the exports, for clients.
    pub infos: Arc<[ExportInfo]>,
    /// Facts of their disks.
    pub facts: Vec<ExportFacts>,
    /// Whether clients may or must use TLS.
    pub tls: TlsPolicy,
    /// Memory and connections of the whole server.
    pub capacity: Capacity,
    /// Memory of one front.
    pub budget: Budget,
    /// Clients of all fronts that have chosen an export.
    pub nr_open: Arc<AtomicUsize>,
    /// Most requests of one client in flight: [`MAX_IN_FLIGHT`](super::MAX_IN_FLIGHT), except in
    /// simulations.
    pub max_in_flight: u32,
}

/// State that all NBD sessions of a front share.
#[derive(Debug)]
pub struct Common<H: NbdHost> {
    pub(super) infos: Arc<[ExportInfo]>,
    pub(super) facts: Vec<ExportFacts>,
    pub(super) tls: TlsPolicy,
    pub(super) capacity: Capacity,
    pub(super) nr_open: Arc<AtomicUsize>,
    pub(super) max_in_flight: u32,
    /// CACHE requests, by export.
    pub(super) caching: Vec<Caching>,
    pub(super) pool: Pool<H::Memory>,
}

impl<H: NbdHost> NbdFront<H> {
    /// Returns a front for NBD clients.
    pub fn nbd(host: H, settings: Settings) -> NbdFront<H> {
        let Settings { infos, facts, tls, capacity, budget, nr_open, max_in_flight } = settings;
        let caching = infos.iter().map(|_| Caching::default()).collect();
        let pool = Pool::new(budget, H::allocate);
        let max = max_without_export(capacity.connections, capacity.threads);
        let common = Common { infos, facts, tls, capacity, nr_open, max_in_flight, caching, pool };
        NbdFront::new(host, common, Inbound::new(), max)
    }

    /// Replaces the descriptions of the exports, of which only the sizes may differ. Clients that
    /// choose an export from now on get its new size. Requests of all clients are checked against
    /// it.
    ///
    /// A list that is shorter than the present one is older, and is ignored.
    pub fn resize(&mut self, infos: Arc<[ExportInfo]>) {
        let nr = self.desk.common.infos.len();
        if infos.len() < nr {
            return;
        }
        assert_eq!(infos.len(), nr, "exports are added before their sizes change");
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            self.clients.get_mut(key).expect("just found").resize(&infos);
        }
        self.desk.common.infos = infos;
    }

    /// Returns the number of exports, with those of free indices.
    pub fn nr_exports(&self) -> usize {
        self.desk.common.infos.len()
    }

    /// Replaces the descriptions and facts of the exports. The exports that clients use must be the
    /// same as before, at the same indices; others may differ, and there may be more.
    ///
    /// Descriptions that are fewer than the present ones are older, and are ignored.
    pub fn change_exports(&mut self, infos: Arc<[ExportInfo]>, facts: Vec<ExportFacts>) {
        let common = &mut self.desk.common;
        if infos.len() >= common.infos.len() {
            common.infos = infos;
        }
        let nr = common.infos.len();
        assert_eq!(facts.len(), nr, "each export has facts");
        common.caching.resize_with(nr, Caching::default);
        common.facts = facts;
    }

    /// Returns whether all memory of clients was returned.
    pub fn has_all_memory(&self) -> bool {
        self.desk.common.pool.is_whole()
    }
}

impl<H: NbdHost> Session for Conn<H> {
    type Host = H;
    type Common = Common<H>;
    type Inbound = Inbound;
    type Request = InFlight<H::Memory>;

    fn open(desk: &mut NbdDesk<H>, link: Link<H>) -> Conn<H> {
        let mut greeting = Vec::new();
        let handshake = Handshake::new(desk.common.tls, &mut greeting);
        Conn::new(link, handshake, &greeting)
    }

    #[inline]
    fn link(&self) -> &Link<H> {
        &self.link
    }

    #[inline]
    fn link_mut(&mut self) -> &mut Link<H> {
        &mut self.link
    }

    fn export(&self) -> Option<usize> {
        match self.phase() {
            Phase::Transmission(transmission) => Some(transmission.export()),
            Phase::Handshake(_) => None,
        }
    }

    #[inline]
    fn may_receive(&self) -> bool {
        self.may_receive()
    }

    #[inline]
    fn wants_send(&self) -> bool {
        self.wants_send()
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        self.is_waiting()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.is_over()
    }

    fn waits_for_disk(&self) -> bool {
        self.waits_for_disk()
    }

    fn receive(&mut self, desk: &mut NbdDesk<H>, inbound: &mut Inbound) -> bool {
        inbound.receive(desk, self)
    }

    fn resume(&mut self, desk: &mut NbdDesk<H>, inbound: &mut Inbound) -> Progress {
        inbound.resume(desk, self)
    }

    #[inline]
    fn send(&mut self, desk: &mut NbdDesk<H>) -> Result<(), String> {
        self.send(&mut desk.common.pool).map_err(|error| error.to_string())
    }

    #[inline]
    fn complete(&mut self, desk: &mut NbdDesk<H>, ended: EndedOf<Self>) -> Option<Answered> {
        desk.complete(self, ended)
    }

    fn complete_gone(desk: &mut NbdDesk<H>, ended: EndedOf<Self>) {
        desk.complete_gone(ended);
    }

    fn settle(&mut self, desk: &mut NbdDesk<H>, key: Key) -> Settled {
        desk.settle(self, key)
    }

    fn drop_request(desk: &mut NbdDesk<H>, flight: Flight<InFlight<H::Memory>>) {
        desk.drop_pieces(flight.rq.portion);
    }

    fn close(&mut self, desk: &mut NbdDesk<H>, inbound: &mut Inbound) -> Vec<Key> {
        self.release(&mut desk.common.pool, inbound.rest_bytes())
    }

    #[inline]
    fn end_round(desk: &mut NbdDesk<H>, clients: &mut NbdClients<H>) -> bool {
        desk.read_ahead(clients)
    }

    #[inline]
    fn wants_tick(desk: &NbdDesk<H>) -> bool {
        desk.common.pool.keeps_any() || desk.common.pool.is_short()
    }

    fn tick(desk: &mut NbdDesk<H>, is_idle: bool) -> bool {
        let pool = &mut desk.common.pool;
        if is_idle {
            pool.trim();
        }
        pool.take_shortage()
    }

    fn end_if_stuck(&mut self, now_ns: u64) {
        if self.payload().is_some_and(|payload| payload.is_stalled(now_ns, PIECE_NS)) {
            let why = "payload stalled while other clients wait for memory";
            self.link.end(Ending::Late(why));
        }
    }
}
