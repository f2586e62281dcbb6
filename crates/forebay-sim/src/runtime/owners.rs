//! Owners of the simulated disk: the list, and its changes by tasks. The library's counterparts are
//! `runtime/owners.rs` and `NEW_OWNERS` in `hctx/tags.rs`.

use crate::check::Checks;
use crate::runtime::hctx::Hctx;
use crate::runtime::thread::Thread;
use crate::scenario::owners::{NewOwner, OWNERS_MAX, OwnerSettings, limits, weight};
use crate::trace::Kind;
use crate::world::World;
use forebay_core::wait::run_turn;
use forebay_core::{HardwareContext, Owner, OwnerId, Owners};
use forebay_model::Random;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The owners of the disk.
#[derive(Debug)]
pub(crate) struct DiskOwners {
    pub(crate) settings: OwnerSettings,
    list: RefCell<Owners>,
    /// By number: the place of the owner in the checker.
    places: RefCell<Vec<Option<usize>>>,
    /// The number of owners that were added.
    nr_added: Cell<u32>,
}

impl DiskOwners {
    /// Creates the owners of a disk that is new at time 0. Their numbers are 1 and above, in order.
    pub(crate) fn new(settings: OwnerSettings, checks: &mut Checks) -> DiskOwners {
        let owners = DiskOwners {
            list: RefCell::new(Owners::with_goal_windows(settings.goal_window_ns)),
            places: RefCell::default(),
            nr_added: Cell::new(0),
            settings,
        };
        let mut ids = Vec::new();
        for new in owners.settings.first.clone() {
            let parent = new.parent.map(|nth| ids[nth]);
            ids.push(owners.add(&new, parent, 0, checks));
        }
        if !ids.is_empty() {
            checks.order.set_has_owners();
            checks.gathers.set_has_owners();
            checks.classes.set_has_owners();
        }
        owners
    }

    fn add(
        &self,
        new: &NewOwner,
        parent: Option<OwnerId>,
        now: u64,
        checks: &mut Checks,
    ) -> OwnerId {
        let name = self.nr_added.get().to_string();
        self.nr_added.set(self.nr_added.get() + 1);
        let mut list = self.list.borrow_mut();
        let owner = list.add(&name, parent, now).expect("the name is new, and the parent exists");
        let number = owner.id().number() as usize;
        let mut places = self.places.borrow_mut();
        if places.len() <= number {
            places.resize(number + 1, None);
        }
        let parent = parent.and_then(|id| places[id.number() as usize]);
        let place = checks.owners.add(parent);
        checks.owner_depths.add(&owner, parent);
        places[number] = Some(place);
        if let Some(weight) = new.weight {
            owner.set_weight(weight);
        }
        owner.set_limits(&new.limits, now).expect("no other task changes it");
        checks.owners.set(place, &new.limits);
        owner.id()
    }

    /// Passes the owners to a context.
    pub(crate) fn pass_to(&self, core: &mut HardwareContext, hctx: usize, checks: &mut Checks) {
        let owners = self.list.borrow().clone();
        core.set_owners(owners, self.settings.by, self.settings.cost);
        let places = self.places.borrow();
        checks.owners.pass_to(hctx, &places);
        checks.owner_depths.pass_to(hctx, &places, &self.list.borrow());
    }

    /// Returns the depth that latency goals leave an owner, or I/O without an owner.
    #[cfg(test)]
    pub(crate) fn depth(&self, number: u32) -> Option<u32> {
        let list = self.list.borrow();
        match number {
            0 => list.depth_of_unowned(),
            number => list.numbered(number)?.stats().depth,
        }
    }

    /// Draws an owner. `None` if there is none.
    fn pick(&self, random: &mut Random) -> Option<Arc<Owner>> {
        let list = self.list.borrow();
        let nth = random.below(list.iter().count() as u64) as usize;
        list.iter().nth(nth).cloned()
    }

    /// Draws the number of the owner of a bio, or 0.
    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        match random.chance(self.settings.none, 100) {
            true => 0,
            false => self.pick(random).map_or(0, |owner| owner.id().number()),
        }
    }

    /// Draws a change, and makes it. Returns the number of the owner; `None` if nothing changed.
    fn change(&self, random: &mut Random, world: &World) -> Option<u32> {
        let (now, block) = (world.now(), world.disk.limits.logical_block_size);
        let mut checks = world.checks();
        let picked = self.pick(random);
        let place = |number: u32| self.places.borrow()[number as usize].expect("it exists");
        match (random.below(6), picked) {
            (0..=2, Some(owner)) => {
                let limits = limits(random, block);
                owner.set_limits(&limits, now).expect("no other task changes it");
                checks.owners.set(place(owner.id().number()), &limits);
                Some(owner.id().number())
            }
            (3, Some(owner)) if self.settings.has_weights => {
                owner.set_weight(weight(random));
                Some(owner.id().number())
            }
            (4, Some(owner)) => {
                let number = owner.id().number();
                // An owner with children stays.
                self.list.borrow_mut().remove(owner.id()).ok()?;
                checks.owners.remove(place(number));
                checks.owner_depths.remove(place(number));
                self.places.borrow_mut()[number as usize] = None;
                Some(number)
            }
            (_, parent) if self.list.borrow().iter().count() < OWNERS_MAX => {
                let weight = self.settings.has_weights.then(|| weight(random));
                let new = NewOwner { parent: None, weight, limits: limits(random, block) };
                let parent = parent.filter(|_| random.chance(1, 3)).map(|owner| owner.id());
                Some(self.add(&new, parent, now, &mut checks).number())
            }
            _ => None,
        }
    }
}

impl Thread<'_> {
    /// Changes an owner, adds one or removes one.
    pub(crate) fn change_owners(&mut self, random: &mut Random) {
        let world = Rc::clone(&self.world);
        let Some(owners) = &world.owners else { return };
        let Some(number) = owners.change(random, &world) else { return };
        world.note(Kind::Owner, number.into(), 0);
        for hctx in &world.hctxs {
            hctx.tags.note_new_owners();
        }
        self.step();
        let shared: &Rc<Hctx> = &world.hctxs[0];
        run_turn(&mut self.at(shared));
    }
}
