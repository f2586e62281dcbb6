//! Planted bugs, which the checkers must find. Those of the server are in `forebay-front`, in the
//! code that ships, and are compiled with `--cfg forebay_plant` only.

#[cfg(forebay_plant)]
use forebay_front::plant::{FrontPlant, Protocol};
#[cfg(forebay_plant)]
use forebay_model::Random;

/// How often a planted bug shows: once in so many chances.
pub(super) const PLANT_OF: u32 = 6;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPlant {
    /// A proxy of NBD clients sends a chunk of data as a hole.
    FalseHole,
    /// The device's flush makes nothing durable.
    LieFlush,
    /// A bug of the server's front.
    #[cfg(forebay_plant)]
    Front(FrontPlant),
}

/// A bug, and the beginning of the text of the rule that must find it.
type Planted = (ServerPlant, &'static str);

impl ServerPlant {
    /// Returns the bugs that NBD clients must find.
    pub fn of_nbd() -> impl Iterator<Item = Planted> {
        let own = [(ServerPlant::FalseHole, "P3:"), (ServerPlant::LieFlush, "P2:")].into_iter();
        #[cfg(forebay_plant)]
        let own = of_front(Protocol::Nbd).chain(own);
        own
    }

    /// Returns the bugs that guests of virtio-blk devices must find.
    pub fn of_blk() -> impl Iterator<Item = Planted> {
        let own = [(ServerPlant::LieFlush, "P2:")].into_iter();
        #[cfg(forebay_plant)]
        let own = of_front(Protocol::Blk).chain(own);
        own
    }
}

#[cfg(forebay_plant)]
fn of_front(protocol: Protocol) -> impl Iterator<Item = Planted> {
    let bugs = FrontPlant::ALL.iter();
    bugs.filter_map(move |bug| Some((ServerPlant::Front(*bug), bug.breaks(protocol)?)))
}

/// Plants a bug in the front. It shows now and then.
#[cfg(forebay_plant)]
pub(super) fn choose(seed: u64, plant: Option<ServerPlant>) {
    use forebay_front::plant::choose;
    let mut random = Random::new(seed, 3);
    choose(plant.map(|plant| -> Box<dyn FnMut(_) -> bool> {
        Box::new(move |bug: FrontPlant| {
            let shows = bug.is_rare() || random.chance(1, PLANT_OF);
            plant == ServerPlant::Front(bug) && shows
        })
    }));
}
