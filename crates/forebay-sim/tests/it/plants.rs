//! Planted bugs: each is found within some seeds, by the rule that it breaks.

#[cfg(forebay_plant)]
use forebay_sim::RULES;
use forebay_sim::{Options, Plant, run_seed};
use std::fmt::Debug;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, PoisonError};

/// Within how many seeds a bug must be found.
const NR_SEEDS: u64 = 5000;

/// Result of a search for a planted bug: after how many seeds it was found, and by which rule.
pub(crate) type Found = Option<(u64, String)>;

/// Searches for each of the bugs, and prints the results. Assertions are expected to fail during a
/// search; the violations contain their messages. Only one search runs at a time, because the panic
/// hook is global.
#[allow(clippy::print_stdout, reason = "a test says which rule has found what")]
pub(crate) fn look_for<P: Copy + Debug>(
    plants: impl IntoIterator<Item = P>,
    find: impl Fn(P) -> Found,
) -> Vec<(P, Found)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let searching = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let table: Vec<_> = plants.into_iter().map(|plant| (plant, find(plant))).collect();
    set_hook(hook);
    drop(searching);
    println!("{:<24} {:>5}  found by", "planted bug", "seeds");
    for (plant, found) in &table {
        let name = format!("{plant:?}");
        match found {
            Some((nr, rule)) => println!("{name:<24} {nr:>5}  {rule}"),
            None => println!("{name:<24}     -  not found"),
        }
    }
    table
}

/// Searches for each of the bugs, and checks that it is found by the rule that it breaks, of which
/// the beginning is given.
pub(crate) fn check_found<P: Copy + Debug>(
    plants: impl IntoIterator<Item = (P, &'static str)>,
    find: impl Fn(P) -> Found,
) {
    let plants: Vec<_> = plants.into_iter().collect();
    let found = look_for(plants.iter().map(|(plant, _)| *plant), find);
    for ((plant, rule), (_, found)) in plants.into_iter().zip(found) {
        let Some((_, found)) = found else { panic!("{plant:?} is not found") };
        assert!(found.starts_with(rule), "{plant:?} breaks {rule:?}, and {found:?} is named");
    }
}

#[test]
fn every_planted_bug_is_found_and_named() {
    check_found(Plant::all().map(|plant| (plant, plant.breaks().unwrap_or_default())), find);
}

/// The bugs of the core are compiled with `--cfg forebay_plant` only.
#[cfg(forebay_plant)]
#[test]
fn every_rule_of_tags_runs_and_waits_has_a_planted_bug() {
    for rule in RULES {
        let breaks = |plant: Plant| plant.breaks().is_some_and(|text| rule.starts_with(text));
        let is_planted = Plant::all().any(breaks);
        assert!(is_planted, "{rule}");
    }
}

/// Returns after how many seeds the bug is found, and by which rule.
fn find(plant: Plant) -> Found {
    let options = Options { plant: Some(plant), ..Options::default() };
    (0..NR_SEEDS).find_map(|seed| {
        let run = catch_unwind(|| run_seed(seed, &options).map(drop));
        let rule = match run {
            Ok(Ok(())) => return None,
            Ok(Err(violation)) => match violation.rule {
                "no assertion fails" => format!("core: {}", violation.what),
                rule => rule.to_owned(),
            },
            Err(_) => "a panic outside of the run".to_owned(),
        };
        Some((seed + 1, rule))
    })
}
