//! The sectors of a device with a volatile cache: their contents, and what a power cut may leave.

use forebay_model::Random;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// The completion time of a version that the layer has no completion of yet.
const NOT_COMPLETED: u64 = u64::MAX;

#[derive(Debug)]
struct Version {
    id: u64,
    /// When the layer got the completion of the write.
    completed_at: u64,
    /// A flush has failed since: no later one makes it durable.
    is_lost: bool,
    bytes: Vec<u8>,
}

/// The sectors. Each has its durable version, followed by the versions written since.
#[derive(Debug)]
pub(crate) struct Store {
    sectors: Vec<Vec<Version>>,
    nr_versions: u64,
}

impl Store {
    /// Returns sectors of zeroes.
    pub(crate) fn new(nr_sectors: u64) -> Store {
        let bytes = || vec![0; SECTOR as usize];
        let zeroes = || Version { id: 0, completed_at: 0, is_lost: false, bytes: bytes() };
        Store { sectors: (0..nr_sectors).map(|_| vec![zeroes()]).collect(), nr_versions: 0 }
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
        let (id, completed_at, is_lost) = (self.nr_versions, NOT_COMPLETED, false);
        self.sectors[sector as usize].push(Version { id, completed_at, is_lost, bytes });
        id
    }

    /// Records that the layer gets the completion of this version. With FUA it is durable.
    pub(crate) fn completed(&mut self, sector: u64, id: u64, completed_at: u64, is_fua: bool) {
        let versions = &mut self.sectors[sector as usize];
        if let Some(at) = versions.iter().position(|version| version.id == id) {
            versions[at].completed_at = completed_at;
            if is_fua {
                versions.drain(..at);
            }
        }
    }

    /// Records that a flush is done that began at that time.
    pub(crate) fn flushed(&mut self, began: u64) {
        for versions in &mut self.sectors {
            let is_safe = |version: &Version| version.completed_at < began && !version.is_lost;
            if let Some(at) = versions.iter().rposition(is_safe) {
                versions.drain(..at);
            }
        }
    }

    /// Records a failed flush: the cached versions will be dropped some time.
    pub(crate) fn lose(&mut self) {
        let cached = self.sectors.iter_mut().flat_map(|versions| versions.iter_mut().skip(1));
        cached.for_each(|version| version.is_lost = true);
    }

    /// Forgets earlier losses, because the server that saw the failed flush is gone. A later server
    /// cannot know of the failure, and its flushes succeed, so they must make these versions
    /// durable. (A kernel that drops pages which it could not write loses them silently, and no
    /// layer above can help.)
    pub(crate) fn forget_losses(&mut self) {
        self.sectors.iter_mut().flatten().for_each(|version| version.is_lost = false);
    }

    /// Cuts the power and restores it. Returns how many sectors have lost something.
    pub(crate) fn cut(&mut self, random: &mut Random) -> u64 {
        let mut nr_lost = 0;
        for versions in &mut self.sectors {
            let newest = versions.len() as u64 - 1;
            let at = match random.below(3) {
                0 => 0,
                1 => newest,
                _ => random.below(newest + 1),
            };
            nr_lost += u64::from(at < newest);
            versions.swap(0, at as usize);
            versions.truncate(1);
            versions[0].is_lost = false;
        }
        nr_lost
    }
}
