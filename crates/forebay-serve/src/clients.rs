//! Clients of an export as owners of I/O, below the owner of the export.
//!
//! A client is an NBD connection, or the connection of a front end to a vhost-user device with all
//! its rings. It has an owner only while clients have limits. The rules:
//!
//! - An owner lives until its connection is closed and its last I/O has ended, and on until each of
//!   its limits has its whole burst. Only then is a new owner the same as the old one.
//! - Until then, the next connection from the same [`ClientAddress`] takes the owner over: so no
//!   client gets another burst by connecting again, and its I/O waits behind what it left.
//!
//! Owners that are over are removed when the next client comes or goes, and when the clients are
//! listed. So there are those of open connections, those of closed ones whose I/O waits, which the
//! limits on memory and connections bound, and at most [`FORMER_MAX`] that have only debts.

use crate::export_limits::ClientLimits;
use crate::listen::Peer;
use forebay::{Owner, OwnerStats};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most owners without a connection and without I/O in flight that are kept for their debts.
const FORMER_MAX: usize = 256;

/// Most clients of an export that `forebay ctl` and the metrics show, the oldest first.
pub(crate) const LISTED_CLIENTS_MAX: usize = 100;

/// The number in the name of the next owner: unique in the process, because servers may share a
/// disk.
static NEXT_NAME: AtomicU64 = AtomicU64::new(1);

/// The number of the owner of a client's I/O, for all threads that submit it.
#[derive(Debug, Default)]
pub(crate) struct SharedOwner(AtomicU32);

impl SharedOwner {
    /// Returns the number of the owner. 0: that of the export.
    #[inline]
    pub(crate) fn owner(&self) -> u32 {
        // Acquire: pairs with the release below, so that a context that gets I/O of an owner has
        // that owner.
        self.0.load(Ordering::Acquire)
    }

    fn set_owner(&self, owner: u32) {
        self.0.store(owner, Ordering::Release);
    }
}

/// The place that a client connects from. Connections from one are taken for the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAddress {
    /// A process at a unix socket.
    Unix,
    /// A machine, or a network of 64 bits: one machine may use any address of that.
    Ip(IpAddr),
    /// The front end of the device with this number.
    Device(usize),
}

impl From<Peer> for ClientAddress {
    fn from(peer: Peer) -> ClientAddress {
        match peer {
            Peer::Unix => ClientAddress::Unix,
            Peer::Tcp(address) => match address.ip().to_canonical() {
                IpAddr::V6(ip) => {
                    ClientAddress::Ip(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into())
                }
                ip => ClientAddress::Ip(ip),
            },
        }
    }
}

/// A client that connects.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) address: ClientAddress,
    /// The peer, for reports.
    pub(crate) peer: Peer,
    pub(crate) submitter: Arc<SharedOwner>,
}

/// A connected client, for reports.
#[derive(Debug)]
pub(crate) struct ClientStats {
    /// The number of the connection.
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    /// The limits in force, if they are its own.
    pub(crate) own: Option<ClientLimits>,
    /// The counters since it connected. `None` without an owner.
    pub(crate) stats: Option<OwnerStats>,
}

/// The clients of an export.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Connected ones, the oldest first.
    open: Vec<Connected>,
    /// Owners without a connection, the oldest first.
    former: Vec<Former>,
    /// Counters of the owners that were removed.
    removed: OwnerStats,
}

#[derive(Debug)]
struct Connected {
    id: u64,
    place: Place,
    /// Limits of this client alone.
    own: Option<ClientLimits>,
    owned: Option<Owned>,
}

/// The owner of a connected client.
#[derive(Debug)]
struct Owned {
    owner: Owner,
    /// Closed connections with I/O of this owner in flight.
    nr_draining: u32,
    /// Its counters when the client connected.
    before: OwnerStats,
}

#[derive(Debug)]
struct Former {
    address: ClientAddress,
    owner: Owner,
    nr_draining: u32,
}

impl Clients {
    /// Adds a client. `parent`: the owner of the export, if it has one.
    pub(crate) fn connect(
        &mut self,
        id: u64,
        place: Place,
        parent: Option<&Owner>,
        limits: &ClientLimits,
    ) {
        self.open.push(Connected { id, place, own: None, owned: None });
        if let Some(parent) = parent
            && self.need_owners(limits)
        {
            self.give_owner(self.open.len() - 1, parent, limits);
            self.remove_rested();
        }
    }

    /// Removes a client that is gone. Returns the number of its owner, for
    /// [`drained`](Clients::drained).
    pub(crate) fn leave(&mut self, id: u64) -> Option<u32> {
        let at = self.open.iter().position(|client| client.id == id)?;
        let Connected { place, owned, .. } = self.open.remove(at);
        place.submitter.set_owner(0);
        let Owned { owner, nr_draining, .. } = owned?;
        let number = owner.origin().owner();
        let nr_draining = nr_draining + 1;
        self.former.push(Former { address: place.address, owner, nr_draining });
        Some(number)
    }

    /// Records that the last I/O of a client which is gone has ended.
    pub(crate) fn drained(&mut self, owner: u32) {
        let open = self.open.iter_mut().filter_map(|client| client.owned.as_mut());
        let open = open.map(|owned| (&owned.owner, &mut owned.nr_draining));
        let former = self.former.iter_mut().map(|it| (&it.owner, &mut it.nr_draining));
        let found = open.chain(former).find(|(it, _)| it.origin().owner() == owner);
        // It is kept until then. A panic in a drop would end the process.
        if let Some((_, nr_draining)) = found {
            *nr_draining -= 1;
        }
        self.remove_rested();
    }

    /// Passes limits to the owners, which are made for the first of them.
    pub(crate) fn apply(&mut self, parent: &Owner, limits: &ClientLimits) {
        if self.need_owners(limits) {
            (0..self.open.len()).for_each(|at| self.give_owner(at, parent, limits));
        } else {
            self.set_limits(limits);
        }
        self.former.iter().for_each(|former| set_limits(&former.owner, limits));
        self.remove_rested();
    }

    /// Returns the limits of a client.
    pub(crate) fn limits_of(&self, id: u64, limits: &ClientLimits) -> Option<ClientLimits> {
        let client = self.open.iter().find(|client| client.id == id)?;
        Some(client.own.unwrap_or(*limits))
    }

    /// Sets the limits of one client. [`apply`](Clients::apply) passes them to its owner.
    pub(crate) fn set_own(&mut self, id: u64, limits: ClientLimits) {
        self.open.iter_mut().filter(|it| it.id == id).for_each(|it| it.own = Some(limits));
    }

    /// Removes the limits that clients have alone.
    pub(crate) fn lift(&mut self) {
        self.open.iter_mut().for_each(|client| client.own = None);
    }

    /// Returns the sum of the counters of all clients, present and former.
    pub(crate) fn stats(&self) -> OwnerStats {
        let open = self.open.iter().filter_map(|client| Some(&client.owned.as_ref()?.owner));
        let former = self.former.iter().map(|former| &former.owner);
        let mut stats = self.removed;
        open.chain(former).for_each(|owner| add(&mut stats, &owner.stats()));
        stats
    }

    /// Returns up to `max` connected clients, the oldest first, and the number of all.
    pub(crate) fn list(&mut self, max: usize) -> (Vec<ClientStats>, usize) {
        self.remove_rested();
        let client = |client: &Connected| ClientStats {
            id: client.id,
            peer: client.place.peer,
            own: client.own,
            stats: client.owned.as_ref().map(|it| since(it.owner.stats(), &it.before)),
        };
        (self.open.iter().take(max).map(client).collect(), self.open.len())
    }

    /// Returns the numbers of the first connected clients, for an error.
    pub(crate) fn ids(&self) -> String {
        const NR: usize = 20;
        let ids: Vec<_> = self.open.iter().take(NR).map(|client| client.id.to_string()).collect();
        let more = if self.open.len() > NR { ", ..." } else { "" };
        format!("{}{more}", ids.join(", "))
    }

    /// Returns whether each client needs an owner. With an owner for some only, weights and latency
    /// goals would not count among all.
    fn need_owners(&self, limits: &ClientLimits) -> bool {
        *limits != ClientLimits::default() || self.open.iter().any(|client| client.own.is_some())
    }

    /// Gives a client its owner, unless it has one, and sets the limits of that owner. If the disk
    /// can have no more, the client remains without one: the limits of the export apply to it, and
    /// its own do not.
    fn give_owner(&mut self, at: usize, parent: &Owner, limits: &ClientLimits) {
        let Clients { open, former, .. } = self;
        let client = &mut open[at];
        if client.owned.is_none() {
            let is_same = |it: &Former| it.address == client.place.address;
            let (owner, nr_draining) = match former.iter().rposition(is_same) {
                Some(at) => {
                    let Former { owner, nr_draining, .. } = former.remove(at);
                    (owner, nr_draining)
                }
                None => {
                    let nth = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
                    match parent.child(&format!("{CLIENT}{nth}")) {
                        Ok(owner) => (owner, 0),
                        Err(_) => return,
                    }
                }
            };
            let before = owner.stats();
            client.owned = Some(Owned { owner, nr_draining, before });
        }
        if let Some(owned) = &client.owned {
            // Before the first I/O.
            set_limits(&owned.owner, client.own.as_ref().unwrap_or(limits));
            client.place.submitter.set_owner(owned.owner.origin().owner());
        }
    }

    fn set_limits(&self, limits: &ClientLimits) {
        for client in &self.open {
            if let Some(owned) = &client.owned {
                set_limits(&owned.owner, client.own.as_ref().unwrap_or(limits));
            }
        }
    }

    /// Removes owners without a connection and without I/O, if each of their limits has its whole
    /// burst, or if there are too many.
    fn remove_rested(&mut self) {
        let nr_idle = self.former.iter().filter(|former| former.nr_draining == 0).count();
        let mut nr_more = nr_idle.saturating_sub(FORMER_MAX);
        for former in std::mem::take(&mut self.former) {
            let is_over = former.nr_draining == 0 && (former.owner.has_full_burst() || nr_more > 0);
            if !is_over {
                self.former.push(former);
                continue;
            }
            nr_more = nr_more.saturating_sub(1);
            add(&mut self.removed, &former.owner.stats());
            // A program that shares the disk may have removed it, or added children to it.
            let _ = former.owner.remove();
        }
    }
}

/// The beginning of the names of owners of clients.
const CLIENT: &str = "client:";

/// Returns whether this is the owner of a client.
pub(crate) fn is_client(owner: &Owner) -> bool {
    owner.name().starts_with(CLIENT) && owner.parent().is_some()
}

fn set_limits(owner: &Owner, limits: &ClientLimits) {
    owner.set_limits(&limits.limits).expect("each burst has a rate");
    if owner.weight() != limits.weight() {
        owner.set_weight(limits.weight()).expect("the owner of the export has a weight");
    }
}

/// Adds counters.
pub(crate) fn add(sum: &mut OwnerStats, other: &OwnerStats) {
    sum.ios += other.ios;
    sum.bytes += other.bytes;
    sum.limit_waits += other.limit_waits;
    sum.limit_wait_ns += other.limit_wait_ns;
    sum.tag_waits += other.tag_waits;
    sum.tag_wait_ns += other.tag_wait_ns;
    sum.scheduler_waits += other.scheduler_waits;
    sum.scheduler_wait_ns += other.scheduler_wait_ns;
}

/// Returns the counts since `before`.
fn since(now: OwnerStats, before: &OwnerStats) -> OwnerStats {
    let mut stats = now;
    stats.ios -= before.ios;
    stats.bytes -= before.bytes;
    stats.limit_waits -= before.limit_waits;
    stats.limit_wait_ns -= before.limit_wait_ns;
    stats.tag_waits -= before.tag_waits;
    stats.tag_wait_ns -= before.tag_wait_ns;
    stats.scheduler_waits -= before.scheduler_waits;
    stats.scheduler_wait_ns -= before.scheduler_wait_ns;
    stats.missed_windows -= before.missed_windows;
    stats
}
