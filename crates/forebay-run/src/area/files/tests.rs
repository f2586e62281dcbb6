//! Rows, places and paths of files.

use super::*;

fn places(nr: usize) -> Vec<Place> {
    let zero = || AtomicU64::new(0);
    let place = || Place {
        state: AtomicU32::new(FREE),
        reserved: 0,
        dev: zero(),
        ino: zero(),
        counters: [(); Counter::ALL.len()].map(|()| zero()),
        stages: [(); Stage::ALL.len()].map(|()| Histogram::new()),
        path: [(); PATH_BYTES / 8].map(|()| zero()),
    };
    (0..nr).map(|_| place()).collect()
}

/// Returns the bytes of places, as in an area.
fn bytes_of(places: &[Place]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for place in places {
        let state = place.state.load(Ordering::Relaxed);
        [state, place.reserved].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        let words = [&place.dev, &place.ino].into_iter().chain(&place.counters);
        let words = words.chain(place.stages.iter().flat_map(Histogram::words));
        let words = words.chain(&place.path).map(|word| word.load(Ordering::Relaxed));
        words.for_each(|word| bytes.extend(word.to_ne_bytes()));
    }
    bytes
}

#[test]
fn file_has_one_place_with_its_first_path() {
    let places = places(8);
    let file = |ino, path: &str| find(&places, 8, ino, || path.as_bytes().to_vec());
    let long = format!("/{}/end", "x".repeat(PATH_BYTES));
    let (one, two) = (file(3, "/one"), file(4, &long));
    assert_eq!((file(3, "/renamed"), one != two), (one, true));
    assert!(is_of(&places, one, 8, 3) && !is_of(&places, one, 8, 4));
    assert!(!is_of(&places, FileNumber(7), 0, 0));
    places[usize::from(two.get())].add(Counter::Syncs, 5);
    let rows = rows(&bytes_of(&places));
    let [one, two] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((one.id, one.path.as_str(), one.counters), (Some((8, 3)), "/one", [0; 8]));
    assert_eq!((two.id, two.counters), (Some((8, 4)), [0, 0, 0, 0, 5, 0, 0, 0]));
    assert!(two.path.starts_with("...x") && two.path.ends_with("x/end"), "{}", two.path);
    assert_eq!(two.path.len(), PATH_BYTES - 1);
}

#[test]
#[cfg_attr(miri, ignore = "a million steps of safe code")]
fn files_without_a_place_share_the_last_one() {
    let places = places(NR_FILES);
    let numbers: Vec<_> =
        (0..NR_FILES as u64 + 9).map(|ino| find(&places, 1, ino, Vec::new)).collect();
    let nr_other = numbers.iter().filter(|number| **number == FileNumber::OTHER).count();
    assert_eq!(nr_other, 10);
    numbers.iter().for_each(|number| places[usize::from(number.get())].add(Counter::Iocbs, 1));
    let rows = rows(&bytes_of(&places));
    assert_eq!(rows.len(), NR_FILES);
    let last = rows.last().expect("rows");
    assert_eq!((last.id, last.path.as_str(), last.counters[0]), (None, "other files", 10));
}

#[test]
fn two_places_of_a_file_are_one_row_and_a_lost_one_is_none() {
    let places = places(8);
    places[0].state.store(TAKEN, Ordering::Relaxed);
    let number = find(&places, 1, 2, || b"/a".to_vec());
    assert_eq!(number.get(), 1);
    assert!(places[5].take(1, 2, b"/b"));
    places[1].add(Counter::Iocbs, 3);
    places[5].add(Counter::Iocbs, 4);
    let path = "/a".to_owned();
    places[1].record(Stage::Sync, 7);
    places[5].record(Stage::Sync, 5);
    let mut stages: [Times; 3] = Default::default();
    [7, 5].iter().for_each(|ns| stages[Stage::Sync as usize].add(*ns));
    let counters = [7, 0, 0, 0, 0, 0, 0, 0];
    let row = FileRow { id: Some((1, 2)), path, counters, stages };
    assert_eq!(rows(&bytes_of(&places)), [row]);
}

#[test]
fn threads_that_race_for_places_lose_no_count() {
    // Each thread may take a place for each of the seven files.
    let places = places(4 * 7 + 1);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let places = &places;
            scope.spawn(move || {
                for nth in 0..100 {
                    let number = find(places, 1, (nth * (thread + 1)) % 7, Vec::new);
                    places[usize::from(number.get())].add(Counter::Iocbs, 1);
                }
            });
        }
    });
    let rows = rows(&bytes_of(&places));
    assert_eq!(rows.iter().map(|row| row.counters[0]).sum::<u64>(), 400);
    assert_eq!(rows.len(), 7);
}
