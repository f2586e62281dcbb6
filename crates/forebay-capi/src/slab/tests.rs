//! Keys of a slab, used after their values, and by several threads.

use super::*;

#[test]
fn a_key_names_one_value_and_never_another_one() {
    let slab = Slab::new();
    let mut keys = Vec::new();
    for n in 0..1000 {
        let key = slab.insert(n).expect("a place");
        assert_eq!(*slab.get(key).expect("a value").value(), n);
        assert_eq!(slab.get(key).expect("a value").take(), n);
        keys.push(key);
    }
    let last = slab.insert(1000).expect("a place");
    for key in keys {
        assert_eq!(slab.get(key).err(), Some(Miss::Taken), "{key:?}");
    }
    assert_eq!(last.index(), 0, "one place is used again");
    assert_eq!(slab.get(last).expect("a value").take(), 1000);
}

#[test]
fn many_values_at_once_have_places_of_their_own() {
    let slab = Slab::new();
    let keys: Vec<Key> = (0..5000).map(|n| slab.insert(n).expect("a place")).collect();
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(Key::from_bits(key.bits()), Some(*key));
        assert_eq!(slab.get(*key).expect("a value").take(), n);
    }
}

#[test]
fn a_place_without_generations_takes_no_more_values() {
    let slab = Slab::new();
    let key = slab.insert("first").expect("a place");
    slab.place(0).expect("a place").publish(GENERATION_END - 1, IDLE);
    let last = Key::new(0, GENERATION_END - 1);
    assert_eq!(slab.get(last).expect("a value").take(), "first");
    assert_eq!(slab.insert("second").expect("a place").index(), 1);
    for stale in [key, last] {
        assert_eq!(slab.get(stale).err(), Some(Miss::Taken));
    }
}

#[test]
fn a_value_in_use_is_found() {
    let slab = Slab::new();
    let key = slab.insert(7).expect("a place");
    let entry = slab.get(key).expect("a value");
    assert_eq!(slab.get(key).err(), Some(Miss::InUse));
    drop(entry);
    assert_eq!(slab.get(key).expect("a value").take(), 7);
}

#[test]
fn a_stale_key_is_stale_while_a_call_uses_the_next_value() {
    let slab = Slab::new();
    let stale = slab.insert(7).expect("a place");
    assert_eq!(slab.get(stale).expect("a value").take(), 7);
    let key = slab.insert(8).expect("a place");
    assert_eq!(key.index(), stale.index());
    let entry = slab.get(key).expect("a value");
    assert_eq!(slab.get(stale).err(), Some(Miss::Taken));
    drop(entry);
}

/// The other thread uses stale keys of the same place all the time.
#[test]
fn a_stale_key_does_not_disturb_the_calls_of_a_valid_one() {
    let slab = Slab::new();
    let stale = slab.insert(0).expect("a place");
    slab.get(stale).expect("a value").take();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(slab.get(stale).err(), Some(Miss::Taken));
            }
        });
        for n in 0..if cfg!(miri) { 50 } else { 100_000 } {
            let key = slab.insert(n).expect("a place");
            assert_eq!(key.index(), stale.index());
            let entry = slab.get(key).map(Entry::take);
            if entry != Ok(n) {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(entry, Ok(n));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn keys_that_were_never_made_lead_nowhere() {
    let slab = Slab::<u8>::new();
    for bits in [1, 3, usize::MAX] {
        let key = Key::from_bits(bits).expect("it is odd");
        assert_eq!(slab.get(key).err(), Some(Miss::Unknown));
    }
    let key = slab.insert(7).expect("a place");
    assert_eq!(slab.get(Key::new(1, 0)).err(), Some(Miss::Unknown));
    assert_eq!(slab.get(Key::new(0, 1)).err(), Some(Miss::Unknown));
    assert_eq!(Key::from_bits(key.bits() + 1), None);
}

#[test]
fn threads_take_each_value_once() {
    let slab = Slab::new();
    let keys: Vec<Key> = (0..2000).map(|n| slab.insert(n).expect("a place")).collect();
    let take_all = || {
        let take = |key: &Key| loop {
            match slab.get(*key) {
                Ok(entry) => break Some(entry.take()),
                Err(Miss::InUse) => std::thread::yield_now(),
                Err(_) => break None,
            }
        };
        let taken: Vec<u32> = keys.iter().filter_map(take).collect();
        for value in &taken {
            slab.insert(10_000 + value).expect("a place");
        }
        taken
    };
    let mut taken: Vec<u32> = std::thread::scope(|scope| {
        let threads = [scope.spawn(take_all), scope.spawn(take_all)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, (0..2000).collect::<Vec<u32>>());
}
