//! Single-threaded tests of the tag set. `tests/loom/tags.rs` uses several threads.

use alloc::string::String;
use alloc::vec::Vec;

use super::*;

fn numbers(get: impl FnOnce(&mut dyn FnMut(Tag))) -> Vec<usize> {
    let mut numbers = Vec::new();
    get(&mut |tag| numbers.push(tag.index()));
    numbers
}

#[test]
fn every_depth_gives_each_of_its_tags_once() {
    // Miri would take minutes for the largest.
    let depth_max = if cfg!(miri) { 300 } else { QUEUE_DEPTH_MAX };
    for depth in [1, 2, 63, 64, 65, 128, 300, depth_max] {
        let tags = TagSet::new(depth);
        let mut hint = 0;
        let got: Vec<Tag> = core::iter::from_fn(|| tags.try_get(&mut hint)).collect();
        assert!(got.iter().map(|tag| tag.index()).eq(0..depth as usize), "{depth}");
        assert_eq!((tags.nr_free(), tags.try_get(&mut hint)), (0, None));
        tags.put_many(got.into_iter().rev());
        assert_eq!(tags.nr_free(), tags.depth());
    }
}

#[test]
fn the_lowest_free_tag_of_the_word_of_the_hint_comes_first() {
    let tags = TagSet::new(130);
    let mut hint = 1;
    assert_eq!(tags.try_get(&mut hint).map(Tag::index), Some(64));
    assert_eq!(tags.try_get(&mut hint).map(Tag::index), Some(65));
    tags.put(Tag::from_index(64));
    assert_eq!(tags.try_get(&mut hint).map(Tag::index), Some(64));
    let got = numbers(|out| assert_eq!(tags.try_get_many(63, &mut hint, &mut |t| out(t)), 63));
    assert!(got.into_iter().eq(66..129));
    assert_eq!(hint, 2, "the last word that gave one");
    assert_eq!(tags.try_get(&mut 5).map(Tag::index), Some(129), "any number is a hint");
    assert_eq!(tags.try_get(&mut hint).map(Tag::index), Some(0));
}

#[test]
fn many_are_as_many_as_there_are() {
    let tags = TagSet::new(70);
    let mut hint = 0;
    assert_eq!(tags.try_get_many(0, &mut hint, &mut |_| panic!("none was asked for")), 0);
    let got = numbers(|out| assert_eq!(tags.try_get_many(66, &mut hint, &mut |t| out(t)), 66));
    assert!(got.into_iter().eq(0..66));
    let got = numbers(|out| assert_eq!(tags.try_get_many(66, &mut hint, &mut |t| out(t)), 4));
    assert_eq!(got, [66, 67, 68, 69]);
}

#[test]
fn all_or_nothing() {
    let tags = TagSet::new(70);
    let mut hint = 1;
    let got = numbers(|out| assert_eq!(tags.try_get_exact(10, &mut hint, &mut |t| out(t)), Ok(())));
    assert!(got.into_iter().eq((0..4).chain(64..70)), "6 of word 1, then 4 of word 0");
    assert_eq!(tags.try_get_exact(61, &mut hint, &mut |_| panic!("there are 60")), Err(0));
    assert_eq!(tags.nr_free(), 60);
    assert_eq!(tags.try_get_exact(60, &mut hint, &mut |_| ()), Ok(()));
    assert_eq!(tags.try_get_exact(1, &mut hint, &mut |_| panic!("there is none")), Err(0));
}

#[test]
#[should_panic(expected = "put twice")]
fn a_free_tag_cannot_be_put() {
    TagSet::new(3).put(Tag::from_index(2));
}

#[test]
#[should_panic(expected = "put twice")]
fn a_tag_is_put_once_in_a_batch() {
    let tags = TagSet::new(3);
    let tag = tags.try_get(&mut 0);
    tags.put_many(tag.into_iter().chain(tag));
}

#[test]
#[should_panic(expected = "none of this set")]
fn a_tag_beyond_the_depth_cannot_be_put() {
    TagSet::new(3).put(Tag::from_index(3));
}

#[test]
fn a_smaller_set_revokes_nothing_and_gives_out_no_high_tag() {
    let tags = TagSet::new(70);
    let got: Vec<Tag> = core::iter::from_fn(|| tags.try_get(&mut 0)).collect();
    tags.resize(66);
    assert_eq!((tags.depth(), tags.nr_free(), tags.nr_busy()), (66, 0, 66));
    tags.put_many(got[60..].iter().copied());
    assert_eq!((tags.nr_free(), tags.nr_busy()), (6, 60));
    let got = numbers(|out| assert_eq!(tags.try_get_many(9, &mut 1, &mut |t| out(t)), 6));
    assert_eq!(got, [64, 65, 60, 61, 62, 63]);
    tags.resize(70);
    let got = numbers(|out| assert_eq!(tags.try_get_many(9, &mut 1, &mut |t| out(t)), 4));
    assert_eq!(got, [66, 67, 68, 69]);
    tags.resize(65);
    tags.put(Tag::from_index(68));
    tags.put(Tag::from_index(64));
    tags.resize(69);
    let got = numbers(|out| assert_eq!(tags.try_get_many(9, &mut 0, &mut |t| out(t)), 2));
    assert_eq!(got, [64, 68]);
}

#[test]
fn a_set_grows_to_its_largest_depth_and_no_further() {
    let tags = TagSet::new(200);
    tags.resize(1);
    assert_eq!((tags.depth(), tags.depth_max(), tags.nr_free()), (1, 200, 1));
    tags.resize(200);
    assert_eq!(tags.nr_free(), 200);
    let message = std::panic::catch_unwind(|| TagSet::new(2).resize(3)).unwrap_err();
    assert_eq!(message.downcast_ref::<String>().unwrap(), "a depth of 3 of at most 2");
}

/// A thread that read an old, larger depth makes a tag free that is too high.
#[test]
fn high_tag_that_was_put_late_is_not_given_out_and_comes_back_with_the_depth() {
    for get_many in [false, true] {
        let tags = TagSet::new(130);
        let late = [100, 101].map(|_| tags.try_get(&mut 1));
        let late: Vec<Tag> = late.into_iter().flatten().collect();
        assert_eq!(late, [64, 65].map(Tag::from_index));
        tags.resize(64);
        late.iter().for_each(|tag| tags.words[1].free.give(1 << (tag.index() - 64)));
        assert_eq!((tags.nr_free(), tags.nr_busy()), (64, 0));
        // The search begins at the word of the high tags.
        let mut hint = 1;
        let got: Vec<usize> = match get_many {
            true => numbers(|out| _ = tags.try_get_many(130, &mut hint, &mut |tag| out(tag))),
            false => core::iter::from_fn(|| tags.try_get(&mut hint)).map(Tag::index).collect(),
        };
        assert!(got.into_iter().eq(0..64), "T7: each low tag");
        tags.resize(130);
        let got = numbers(|out| _ = tags.try_get_many(130, &mut hint, &mut |tag| out(tag)));
        let mut got = got;
        got.sort_unstable();
        assert!(got.into_iter().eq(64..130), "T7: each high tag");
    }
}

#[test]
fn any_number_is_a_hint() {
    for hint in [0, 2, 3, 4, 1000, u32::MAX] {
        let tags = TagSet::new(130);
        let got = numbers(|out| {
            assert_eq!(tags.try_get_many(130, &mut { hint }, &mut |tag| out(tag)), 130);
        });
        assert_eq!(got.len(), 130, "{hint}");
    }
}
