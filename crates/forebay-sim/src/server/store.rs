//! The sectors of a device with a volatile cache: their contents. An [`Image`] has what a power cut
//! may leave of them.

use crate::image::{INITIAL, Image, Outcome};
use forebay_model::Random;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// The contents that a write gave to a sector.
#[derive(Debug)]
struct Version {
    /// The number of the write, which is its value in the image.
    id: u64,
    /// The layer got the completion of the write.
    is_completed: bool,
    /// A flush has failed since: no later one makes it durable.
    is_lost: bool,
    bytes: Vec<u8>,
}

/// The sectors. Each has the versions that a power cut may leave, in the order in which they were
/// written.
#[derive(Debug)]
pub(crate) struct Store {
    sectors: Vec<Vec<Version>>,
    image: Image,
    nr_versions: u64,
    /// Scratch space: sectors of which a version has become durable.
    settled: Vec<u64>,
}

impl Store {
    /// Returns sectors of zeroes.
    pub(crate) fn new(nr_sectors: u64) -> Store {
        let zeroes = || Version {
            id: INITIAL,
            is_completed: true,
            is_lost: false,
            bytes: vec![0; SECTOR as usize],
        };
        Store {
            sectors: (0..nr_sectors).map(|_| vec![zeroes()]).collect(),
            image: Image::default(),
            nr_versions: 0,
            settled: Vec::new(),
        }
    }

    pub(crate) fn nr_sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// Returns the contents of a sector.
    pub(crate) fn read(&self, sector: u64) -> &[u8] {
        let versions = &self.sectors[sector as usize];
        &versions.last().expect("a sector holds something").bytes
    }

    /// Writes a sector, and returns the number of this version.
    pub(crate) fn write(&mut self, sector: u64, bytes: Vec<u8>) -> u64 {
        self.nr_versions += 1;
        let id = self.nr_versions;
        self.image.replace(sector);
        self.image.begin(sector, id);
        let version = Version { id, is_completed: false, is_lost: false, bytes };
        self.sectors[sector as usize].push(version);
        id
    }

    /// Records that the layer gets the completion of this version. With FUA it is durable.
    pub(crate) fn completed(&mut self, sector: u64, id: u64, is_fua: bool) {
        let versions = &mut self.sectors[sector as usize];
        let Some(version) = versions.iter_mut().find(|version| version.id == id) else { return };
        version.is_completed = true;
        // The image takes any point: the server flushes the whole device.
        let outcome = if is_fua { Outcome::Durable } else { Outcome::Cached(0) };
        self.image.end(sector, id, outcome);
        self.prune(sector);
    }

    /// Returns a time for [`Store::flushed`], after all completions so far.
    pub(crate) fn mark(&mut self) -> u64 {
        self.image.mark()
    }

    /// Records that a flush is done that began at that time.
    pub(crate) fn flushed(&mut self, began: u64) {
        let mut settled = std::mem::take(&mut self.settled);
        self.image.settle(began, &mut settled);
        settled.drain(..).for_each(|sector| self.prune(sector));
        self.settled = settled;
    }

    /// Drops the contents that a power cut cannot leave any more.
    fn prune(&mut self, sector: u64) {
        let Store { sectors, image, .. } = self;
        sectors[sector as usize].retain(|version| image.may_hold(sector, version.id));
    }

    /// Records a failed flush: the cached versions will be dropped some time.
    pub(crate) fn lose(&mut self) {
        self.image.lose_all();
        let cached = self.sectors.iter_mut().flat_map(|versions| versions.iter_mut().skip(1));
        cached.for_each(|version| version.is_lost = true);
    }

    /// Forgets earlier losses, because the server that saw the failed flush is gone. A later server
    /// cannot know of the failure, and its flushes succeed, so they must make these versions
    /// durable. (A kernel that drops pages which it could not write loses them silently, and no
    /// layer above can help.)
    pub(crate) fn forget_losses(&mut self) {
        for (sector, versions) in self.sectors.iter_mut().enumerate() {
            for version in versions.iter_mut().filter(|version| version.is_lost) {
                version.is_lost = false;
                if version.is_completed {
                    self.image.regain(sector as u64, version.id);
                }
            }
        }
    }

    /// Cuts the power and restores it. Returns how many sectors have lost something.
    pub(crate) fn cut(&mut self, random: &mut Random) -> u64 {
        let mut nr_lost = 0;
        for sector in 0..self.nr_sectors() {
            let versions = &mut self.sectors[sector as usize];
            let newest = versions.len() as u64 - 1;
            let at = match random.below(3) {
                0 => 0,
                1 => newest,
                _ => random.below(newest + 1),
            };
            nr_lost += u64::from(at < newest);
            let bytes = std::mem::take(&mut versions[at as usize].bytes);
            if newest > 0 {
                let id = self.write(sector, bytes);
                self.completed(sector, id, true);
            } else {
                versions[0].bytes = bytes;
            }
        }
        nr_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::new(1)
    }

    fn write(store: &mut Store, byte: u8) -> u64 {
        store.write(0, vec![byte; SECTOR as usize])
    }

    /// Returns the first bytes of the contents that a power cut may leave.
    fn legal(store: &Store) -> Vec<u8> {
        let versions = &store.sectors[0];
        assert_eq!(
            versions.iter().map(|version| version.id).collect::<Vec<_>>(),
            store.image.values(0).collect::<Vec<_>>()
        );
        versions.iter().map(|version| version.bytes[0]).collect()
    }

    #[test]
    fn flush_covers_what_completed_before_it_began() {
        let mut store = store();
        let [one, two] = [1, 2].map(|byte| write(&mut store, byte));
        store.completed(0, one, false);
        let began = store.mark();
        store.completed(0, two, false);
        store.flushed(began);
        assert_eq!(legal(&store), [1, 2]);
        let began = store.mark();
        store.flushed(began);
        assert_eq!(legal(&store), [2]);
    }

    #[test]
    fn write_that_was_replaced_may_complete_later_but_not_survive_the_replacement() {
        let mut store = store();
        let [one, two] = [1, 2].map(|byte| write(&mut store, byte));
        store.completed(0, two, true);
        assert_eq!(legal(&store), [2]);
        store.completed(0, one, false);
        assert_eq!(legal(&store), [2]);
    }

    #[test]
    fn lost_versions_stay_in_the_cache_until_the_loss_is_forgotten() {
        let mut store = store();
        let [one, two] = [1, 2].map(|byte| write(&mut store, byte));
        store.completed(0, one, false);
        store.lose();
        store.completed(0, two, false);
        let began = store.mark();
        store.flushed(began);
        assert_eq!(legal(&store), [0, 1, 2]);
        store.forget_losses();
        let began = store.mark();
        store.flushed(began);
        assert_eq!(legal(&store), [2]);
    }

    #[test]
    fn power_cut_leaves_one_legal_version() {
        let mut left = [0, 0, 0];
        for seed in 0..50 {
            let mut store = store();
            let [one, _] = [1, 2].map(|byte| write(&mut store, byte));
            store.completed(0, one, false);
            let nr_lost = store.cut(&mut Random::new(seed, 0));
            let legal = legal(&store);
            assert_eq!(legal, [store.read(0)[0]]);
            assert_eq!(nr_lost, u64::from(legal != [2]));
            left[legal[0] as usize] += 1;
        }
        assert!(left.iter().all(|nr| *nr > 0), "{left:?}");
    }
}
