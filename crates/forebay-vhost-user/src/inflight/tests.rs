//! Tests of the in-flight region: a process that dies after any of its stores.

use super::memory::Record;
use super::recover::{RecoverError, Recovered};
use super::{InflightMemory, InflightShape};
use std::cell::RefCell;
use std::collections::VecDeque;

const SIZE: u16 = 8;
const SHAPE: InflightShape = InflightShape { nr_queues: 2, queue_size: SIZE };

thread_local! {
    /// The bytes of the record after each store.
    static STORES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Called after each store.
pub(super) fn stored(record: &Record) {
    STORES.with_borrow_mut(|stores| stores.push(record.bytes()));
}

/// Returns the records between the stores of `act`: before, between any two, and after.
fn states_of(record: &Record, act: impl FnOnce()) -> Vec<Vec<u8>> {
    STORES.take();
    let before = record.bytes();
    act();
    std::iter::once(before).chain(STORES.take()).collect()
}

/// Recovers from a record that has these bytes.
fn recovered(bytes: &[u8], used_idx: u16) -> Result<Recovered, RecoverError> {
    let (memory, _) = InflightMemory::create(SHAPE).expect("memory");
    memory.record(0).expect("a queue").set_bytes(bytes);
    memory.recover(0, SIZE, used_idx).map(|(_, found)| found)
}

/// A small generator, so that a run can be repeated.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn a_process_that_dies_after_any_store_loses_no_request_and_repeats_none_that_was_used() {
    for seed in 0..200 {
        let mut state = seed;
        let (memory, _) = InflightMemory::create(SHAPE).expect("memory");
        let mut used_idx = 65_530_u16;
        let (mut inflight, found) = memory.recover(0, SIZE, used_idx).expect("a new record");
        assert_eq!(found, Recovered { heads: Vec::new(), avail_idx: used_idx });
        let record = memory.record(0).expect("a queue");
        let mut free: Vec<u16> = (0..SIZE).collect();
        let mut taken = VecDeque::new();
        let check = |states: &[Vec<u8>], used_idx: u16, allowed: &[&VecDeque<u16>]| {
            for bytes in states {
                let found = recovered(bytes, used_idx).expect("a record of its own");
                let heads = VecDeque::from(found.heads);
                let nr = heads.len() as u16;
                assert!(allowed.contains(&&heads), "seed {seed}: {heads:?}, not {allowed:?}");
                assert_eq!(found.avail_idx, used_idx.wrapping_add(nr));
            }
        };
        for _ in 0..60 {
            let takes =
                taken.is_empty() || !free.is_empty() && random(&mut state).is_multiple_of(2);
            let before = taken.clone();
            if takes {
                let head = free.swap_remove(random(&mut state) % free.len());
                let states = states_of(&record, || inflight.take(head));
                taken.push_back(head);
                // If the mark is missing, the request is still available.
                check(&states, used_idx, &[&before, &taken]);
            } else {
                let mut batch = Vec::new();
                for _ in 0..=random(&mut state) % taken.len() {
                    let place = random(&mut state) % taken.len();
                    let head = taken.remove(place).expect("it is there");
                    let states = states_of(&record, || inflight.begin_use(head));
                    check(&states, used_idx, &[&before]);
                    batch.push(head);
                }
                // The driver sees the used entries.
                used_idx = used_idx.wrapping_add(batch.len() as u16);
                let heads = batch.iter().copied();
                let states = states_of(&record, || inflight.end_use(heads, used_idx));
                check(&states, used_idx, &[&taken]);
                free.append(&mut batch);
            }
            if random(&mut state).is_multiple_of(8) {
                // The process dies, and its successor goes on with the same record.
                let (next, found) = memory.recover(0, SIZE, used_idx).expect("its own record");
                assert_eq!(VecDeque::from(found.heads), taken, "seed {seed}");
                inflight = next;
            }
        }
    }
}

#[test]
fn a_request_that_was_recorded_as_used_and_died_unseen_is_used_later() {
    let (memory, _) = InflightMemory::create(SHAPE).expect("memory");
    let (mut inflight, _) = memory.recover(1, SIZE, 0).expect("a new record");
    inflight.take(3);
    inflight.take(5);
    inflight.begin_use(3);
    let (mut inflight, found) = memory.recover(1, SIZE, 0).expect("its own record");
    assert_eq!(found.heads, [3, 5]);
    // Its place in the list now refers to itself.
    inflight.begin_use(3);
    inflight.begin_use(5);
    let (_, found) = memory.recover(1, SIZE, 2).expect("its own record");
    assert_eq!(found, Recovered { heads: Vec::new(), avail_idx: 2 });
}

#[test]
fn a_damaged_record_is_refused_or_affects_its_own_requests_only() {
    let (memory, _) = InflightMemory::create(SHAPE).expect("memory");
    let (mut inflight, _) = memory.recover(0, SIZE, 7).expect("a new record");
    (0..4).for_each(|head| inflight.take(head));
    let record = memory.record(0).expect("a queue");
    let good = record.bytes();
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(recovered(&changed(8, 2), 7), Err(RecoverError::Format { version: 2, size: 8 }));
    assert_eq!(recovered(&changed(10, 9), 7), Err(RecoverError::Format { version: 1, size: 9 }));
    assert_eq!(recovered(&good, 16), Err(RecoverError::UsedIndex { ring: 16, record: 7 }));
    assert_eq!(recovered(&good, 6), Err(RecoverError::UsedIndex { ring: 6, record: 7 }));
    assert_eq!(recovered(&changed(12, 200), 8), Err(RecoverError::Head(200)));
    for at in 0..good.len() {
        for value in [1, 7, 8, 127, 255] {
            let Ok(found) = recovered(&changed(at, value), 8) else { continue };
            let mut heads = found.heads.clone();
            heads.sort_unstable();
            heads.dedup();
            assert_eq!(heads.len(), found.heads.len(), "a request is submitted once");
            assert!(heads.iter().all(|head| *head < SIZE));
        }
    }
    assert_eq!(memory.recover(2, SIZE, 0).err(), Some(RecoverError::NoQueue(2)));
    let larger = memory.recover(0, 2 * SIZE, 0).err();
    assert_eq!(larger, Some(RecoverError::Size { ring: 16, record: 8 }));
}

#[test]
fn a_region_that_could_shrink_or_is_too_short_is_refused() {
    let (memory, file) = InflightMemory::create(SHAPE).expect("memory");
    let len = SHAPE.len_bytes();
    let open = |offset, len| {
        let file = file.try_clone().expect("a descriptor");
        InflightMemory::open(file, offset, len, SHAPE).map_err(|error| error.to_string())
    };
    let (mut inflight, _) = memory.recover(1, SIZE, 0).expect("a new record");
    inflight.take(2);
    let (_, found) = open(0, len).expect("it is whole").recover(1, SIZE, 0).expect("a record");
    assert_eq!(found.heads, [2]);
    assert!(open(0, len - 1).expect_err("short").contains("is too short"));
    assert!(open(4096, len).expect_err("short").contains("ends before byte 4096"));
    assert!(open(u64::MAX, len).expect_err("wraps").contains("ends before byte"));
    let plain = tempfile::tempfile().expect("a file");
    plain.set_len(len).expect("room");
    let refused = InflightMemory::open(plain, 0, len, SHAPE).expect_err("it could shrink");
    assert!(refused.to_string().contains("not sealed"), "{refused}");
}

#[test]
fn a_ring_that_was_drained_and_reset_begins_anew() {
    let (memory, _) = InflightMemory::create(SHAPE).expect("memory");
    let (mut inflight, _) = memory.recover(0, SIZE, 900).expect("a new record");
    inflight.take(4);
    inflight.begin_use(4);
    inflight.end_use([4].into_iter(), 901);
    let (mut inflight, found) = memory.recover(0, SIZE, 0).expect("its own record");
    assert_eq!(found, Recovered { heads: Vec::new(), avail_idx: 0 });
    inflight.take(1);
    let (_, found) = memory.recover(0, SIZE, 0).expect("its own record");
    assert_eq!(found, Recovered { heads: vec![1], avail_idx: 1 });
}

#[test]
fn greatest_counter_of_a_hostile_front_end_only_loses_the_order() {
    let (memory, _) = InflightMemory::create(SHAPE).expect("memory");
    let (mut inflight, _) = memory.recover(0, SIZE, 0).expect("a new record");
    inflight.take(1);
    memory.record(0).expect("a queue").set_counter(1, u64::MAX - 1);
    let (mut inflight, _) = memory.recover(0, SIZE, 0).expect("its own record");
    inflight.take(2);
    inflight.take(3);
    let (_, found) = memory.recover(0, SIZE, 0).expect("its own record");
    assert_eq!(found.heads, [3, 1, 2]);
}
