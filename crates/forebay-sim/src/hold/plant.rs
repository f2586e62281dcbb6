//! Planted bugs, which the checkers must find: of the user of the policy, and of the policy itself.
//! The latter are in the core, in the code that ships, and are compiled with `--cfg forebay_plant`
//! only.

use super::rules;
#[cfg(forebay_plant)]
use forebay_core::plant::{self, CorePlant};
#[cfg(forebay_plant)]
use forebay_model::Random;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPlant {
    /// Nothing passes the held bios on at their deadline.
    SkipDeadline,
    /// A completion that leaves nothing at the device does not pass the held bios on.
    SkipIdle,
    /// The end of a plug leaves its last bios held.
    SkipPlugEnd,
    /// The user passes held bios on without a call of [`Hold::release`](forebay_core::Hold).
    SkipRelease,
    /// A bug of the policy.
    #[cfg(forebay_plant)]
    Core(CorePlant),
}

impl HoldPlant {
    /// Returns all bugs, each with the beginning of the text of the rule that must find it.
    pub fn all() -> impl Iterator<Item = (HoldPlant, &'static str)> {
        let own = [
            (HoldPlant::SkipDeadline, rules::I9),
            (HoldPlant::SkipIdle, rules::I10),
            (HoldPlant::SkipPlugEnd, rules::I10),
            (HoldPlant::SkipRelease, rules::I10),
        ];
        let own = own.into_iter();
        #[cfg(forebay_plant)]
        let own = CorePlant::ALL
            .iter()
            .filter(|bug| bug.is_of_hold())
            .map(|bug| (HoldPlant::Core(*bug), bug.breaks()))
            .chain(own);
        own
    }
}

/// How often a planted bug of the core shows: once in so many chances.
#[cfg(forebay_plant)]
const PLANT_OF: u32 = 6;

/// Plants a bug in the policy. It shows now and then.
#[cfg(forebay_plant)]
pub(super) fn choose(seed: u64, planted: Option<HoldPlant>) {
    let mut random = Random::new(seed, 3);
    plant::choose(planted.map(|planted| -> Box<dyn FnMut(_) -> bool> {
        Box::new(move |bug: CorePlant| {
            planted == HoldPlant::Core(bug) && (bug.is_rare() || random.chance(1, PLANT_OF))
        })
    }));
}
