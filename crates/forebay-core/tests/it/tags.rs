//! The tag set against a plain set: random steps on one thread.

use std::collections::BTreeSet;

use forebay_core::{Tag, TagSet};
use proptest::prelude::*;

const DEPTH_MAX: u32 = 200;

#[derive(Clone, Debug)]
enum Step {
    Get(u32),
    GetMany(u32, u32),
    GetExact(u32, u32),
    /// Puts the first tag in use at or after this number.
    Put(u32),
    PutMany(u32, usize),
    Resize(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (nr, hint) = (0..150_u32, 0..5_u32);
    prop_oneof![
        4 => hint.clone().prop_map(Step::Get),
        2 => (nr.clone(), hint.clone()).prop_map(|(nr, hint)| Step::GetMany(nr, hint)),
        2 => (nr, hint).prop_map(|(nr, hint)| Step::GetExact(nr, hint)),
        4 => (0..DEPTH_MAX).prop_map(Step::Put),
        3 => (0..DEPTH_MAX, 0..100_usize).prop_map(|(from, nr)| Step::PutMany(from, nr)),
        2 => (0..DEPTH_MAX).prop_map(Step::Resize),
    ]
}

struct Pair {
    tags: TagSet,
    used: BTreeSet<u32>,
}

impl Pair {
    fn nr_free(&self) -> u32 {
        let depth = self.tags.depth();
        depth - self.used.range(..depth).count() as u32
    }

    /// Records tags that were got. Checks that they were free and are below the depth. Returns
    /// their number.
    fn note(&mut self, got: &[Tag]) -> u32 {
        for tag in got {
            let number = tag.index() as u32;
            assert!(number < self.tags.depth(), "{number} is too high");
            assert!(self.used.insert(number), "{number} is in use");
        }
        got.len() as u32
    }

    fn take(&mut self, from: u32, nr: usize) -> Vec<Tag> {
        let chosen: Vec<u32> = self.used.range(from..).take(nr).copied().collect();
        chosen.iter().for_each(|number| assert!(self.used.remove(number)));
        chosen.into_iter().map(|number| Tag::from_index(number as usize)).collect()
    }

    fn run(&mut self, step: &Step) {
        let (nr_free, mut got) = (self.nr_free(), Vec::new());
        match *step {
            Step::Get(mut hint) => {
                got.extend(self.tags.try_get(&mut hint));
                assert_eq!(self.note(&got), nr_free.min(1));
            }
            Step::GetMany(nr, mut hint) => {
                let nr_got = self.tags.try_get_many(nr, &mut hint, &mut |tag| got.push(tag));
                assert_eq!((nr_got, self.note(&got)), (nr.min(nr_free), nr.min(nr_free)));
            }
            Step::GetExact(nr, mut hint) => {
                let result = self.tags.try_get_exact(nr, &mut hint, &mut |tag| got.push(tag));
                let (expected, nr_got) = if nr <= nr_free { (Ok(()), nr) } else { (Err(0), 0) };
                assert_eq!((result, self.note(&got)), (expected, nr_got));
            }
            Step::Put(from) => self.take(from, 1).into_iter().for_each(|tag| self.tags.put(tag)),
            Step::PutMany(from, nr) => {
                let chosen = self.take(from, nr);
                self.tags.put_many(chosen.into_iter());
            }
            Step::Resize(depth) => self.tags.resize(depth.max(1)),
        }
        assert_eq!(self.tags.nr_free(), self.nr_free());
        assert_eq!(self.tags.nr_busy(), self.tags.depth() - self.nr_free());
    }
}

proptest! {
    /// Gets of all kinds, puts and resizes: no tag is live twice, none is lost, none is too high,
    /// and every free tag is found.
    #[test]
    fn a_set_of_tags_is_a_set(
        depth in 1..DEPTH_MAX,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let tags = TagSet::new(DEPTH_MAX);
        tags.resize(depth);
        let mut pair = Pair { tags, used: BTreeSet::new() };
        steps.iter().for_each(|step| pair.run(step));
        let rest = pair.take(0, usize::MAX);
        pair.tags.put_many(rest.into_iter());
        pair.tags.resize(DEPTH_MAX);
        assert_eq!(pair.tags.nr_free(), DEPTH_MAX, "a tag was lost");
    }
}
