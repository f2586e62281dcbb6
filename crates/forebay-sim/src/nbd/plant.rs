//! Planted bugs, which the checkers must find. Those of the server are in `forebay-front`, in the
//! code that ships, and are compiled with `--cfg forebay_plant` only.

#[cfg(forebay_plant)]
use forebay_front::plant::FrontPlant;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdPlant {
    /// A chunk of data is sent as a hole.
    FalseHole,
    /// The device's flush makes nothing durable.
    LieFlush,
    /// A bug of the server's front.
    #[cfg(forebay_plant)]
    Front(FrontPlant),
}

impl NbdPlant {
    /// Returns all planted bugs, with those of the front.
    pub fn all() -> impl Iterator<Item = NbdPlant> {
        let all = [NbdPlant::FalseHole, NbdPlant::LieFlush].into_iter();
        #[cfg(forebay_plant)]
        let all = FrontPlant::ALL.iter().map(|&plant| NbdPlant::Front(plant)).chain(all);
        all
    }

    /// Returns the beginning of the text of the rule that must find the bug.
    pub fn breaks(self) -> &'static str {
        match self {
            NbdPlant::FalseHole => "P3:",
            NbdPlant::LieFlush => "P2:",
            #[cfg(forebay_plant)]
            NbdPlant::Front(plant) => plant.breaks(),
        }
    }
}
