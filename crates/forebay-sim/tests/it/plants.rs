//! Planted bugs: each is found within some seeds, and by the rule that it breaks.

use forebay_sim::{Options, Plant, RULES, run_seed};
use std::panic::{catch_unwind, set_hook, take_hook};

/// Within how many seeds a bug must be found.
const NR_SEEDS: u64 = 1000;

#[test]
fn every_planted_bug_is_found_and_named() {
    // The core's assertions are expected to fail here; their messages come with the violations.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let table: Vec<_> = Plant::ALL.into_iter().map(|plant| (plant, find(plant))).collect();
    set_hook(hook);
    println!("{:<18} {:>5}  found by", "planted bug", "seeds");
    for (plant, found) in &table {
        let name = format!("{plant:?}");
        match found {
            Some((nr, rule)) => println!("{name:<18} {nr:>5}  {rule}"),
            None => println!("{name:<18}     -  not found in {NR_SEEDS} seeds"),
        }
    }
    for (plant, found) in table {
        let Some((_, rule)) = found else { panic!("{plant:?} is not found") };
        let expected = plant.breaks().unwrap_or_default();
        assert!(rule.starts_with(expected), "{plant:?} breaks {expected:?}, and {rule:?} is named");
    }
}

#[test]
fn every_rule_of_tags_and_of_runs_has_a_planted_bug() {
    for rule in RULES {
        let is_planted = Plant::ALL.into_iter().any(|plant| plant.breaks() == Some(rule));
        assert!(is_planted, "{rule}");
    }
}

/// After how many seeds it is found, and by which rule.
fn find(plant: Plant) -> Option<(u64, String)> {
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
