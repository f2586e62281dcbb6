//! Unit tests of `image`.

use super::*;

/// Returns the image after write 1 and then write 2, one after the other.
fn two() -> Image {
    let mut image = Image::default();
    for value in [1, 2] {
        image.begin(0, value);
        image.end(0, value, Outcome::Cached(value));
    }
    image
}

fn values(image: &Image) -> Vec<u64> {
    image.values(0).collect()
}

#[test]
fn until_a_flush_a_block_may_hold_anything_that_was_written() {
    assert_eq!(values(&Image::default()), [0]);
    assert_eq!(values(&two()), [0, 1, 2]);
}

#[test]
fn a_flush_leaves_the_newest_earlier_and_all_later_writes() {
    let mut image = two();
    let mark = image.mark();
    image.begin(0, 3);
    image.end(0, 3, Outcome::Cached(3));
    let mut settled = Vec::new();
    image.settle(mark, &mut settled);
    assert_eq!((values(&image), settled), (vec![2, 3], vec![0]));
}

#[test]
fn either_of_two_concurrent_writes_may_be_last() {
    let mut image = Image::default();
    image.begin(0, 1);
    image.begin(0, 2);
    image.end(0, 2, Outcome::Durable);
    image.end(0, 1, Outcome::Cached(0));
    assert_eq!(values(&image), [1, 2]);
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [1, 2]);
}

#[test]
fn failed_write_may_persist_and_replaces_nothing() {
    let mut image = two();
    image.begin(0, 3);
    image.end(0, 3, Outcome::Unsure);
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [2, 3]);
    image.begin(0, 4);
    assert_eq!(values(&image), [2, 3, 4], "what is under way may be there");
    image.end(0, 4, Outcome::Durable);
    assert_eq!(values(&image), [4]);
}

#[test]
fn a_point_covers_earlier_writes_and_losses_stay() {
    let mut image = two();
    image.settle_up_to(1, &mut Vec::new());
    assert_eq!(values(&image), [1, 2]);
    let mut image = two();
    image.lose(1, 2);
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [1, 2]);
    let mut image = two();
    image.lose_all();
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [0, 1, 2]);
}

#[test]
fn failed_write_back_loses_one_block_and_writes_in_flight_to_it() {
    let mut image = two();
    image.begin(0, 3);
    image.begin(1, 4);
    assert!(image.is_dirty(0) && image.is_dirty(1) && !image.is_dirty(2));
    image.lose_block(0);
    assert!(!image.is_dirty(0) && image.is_struck(0, 3) && !image.is_struck(1, 4));
    image.end(0, 3, Outcome::Cached(3));
    image.end(1, 4, Outcome::Cached(4));
    assert!(!image.is_dirty(0) && !image.is_struck(0, 3));
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [0, 1, 2, 3]);
    assert_eq!(image.values(1).collect::<Vec<_>>(), [4]);
}

#[test]
fn block_that_lost_its_data_keeps_later_writes() {
    let mut image = two();
    let write = |image: &mut Image, value| {
        image.begin(0, value);
        image.end(0, value, Outcome::Cached(value));
    };
    image.lose_block(0);
    write(&mut image, 3);
    assert!(image.is_dirty(0));
    image.lose_block(0);
    assert!(!image.is_dirty(0));
    write(&mut image, 4);
    write(&mut image, 5);
    let (mark, mut settled) = (image.mark(), Vec::new());
    assert_eq!((image.settle(mark, &mut settled), settled), (2, vec![0]));
    assert!(!image.is_dirty(0));
    assert_eq!(values(&image), [5]);
    write(&mut image, 6);
    assert!(image.is_dirty(0));
    image.lose_all();
    assert!(!image.is_dirty(0));
}

#[test]
fn replaced_data_is_older_whenever_its_write_is_done() {
    let mut image = Image::default();
    image.begin(0, 1);
    image.replace(0);
    image.begin(0, 2);
    image.end(0, 2, Outcome::Cached(0));
    image.end(0, 1, Outcome::Cached(0));
    assert_eq!(values(&image), [0, 1, 2]);
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [2], "without the replacement, either may be the last");
}

#[test]
fn lost_write_that_is_regained_is_durable_after_the_next_flush() {
    let mut image = two();
    let early = image.mark();
    image.lose_all();
    image.regain(0, 1);
    image.settle(early, &mut Vec::new());
    assert_eq!(values(&image), [0, 1, 2], "a flush that began before does not cover it");
    let mark = image.mark();
    image.settle(mark, &mut Vec::new());
    assert_eq!(values(&image), [1, 2]);
}
