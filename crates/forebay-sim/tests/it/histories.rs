//! Every short history on a device with a volatile cache, with a crash after each event.
//!
//! The ignored tests take minutes in an optimized build: `cargo xtask histories` runs them.

use forebay_sim::Plant;
use forebay_sim::histories::{Kinds, Report, Scope, Setting, explore};

/// Runs all histories of a scope under these settings, and prints how many there were.
#[allow(clippy::print_stdout, reason = "a test says how much it has tried")]
fn try_these(scope: Scope, settings: &[Setting]) -> Report {
    let report = explore(&scope, settings).unwrap_or_else(|fault| panic!("{fault}"));
    println!("{scope}: {report}");
    report
}

/// Runs all histories of a scope under every setting of a device without a file.
fn try_all(scope: Scope) -> Report {
    try_these(scope, &Setting::all())
}

/// Returns the scope of four bios, with at most so many failed writes and flushes.
const fn four(failures_max: u32, one_of: u64) -> Scope {
    Scope {
        failures_max,
        writes_fail: true,
        short_plugs: false,
        eager_reads: true,
        one_of,
        ..Scope::all(4)
    }
}

#[test]
fn no_history_of_one_or_two_bios_loses_acknowledged_data() {
    try_all(Scope::all(1));
    let report = try_all(Scope::all(2));
    assert!(report.nr_crash_points > 30_000, "{report}");
}

#[test]
fn some_longer_histories_do_not_either() {
    try_all(Scope { one_of: 397, ..Scope::all(3) });
    try_all(four(1, 7919));
    try_all(Scope { kinds: Kinds::Flushes, failures_max: 0, ..Scope::all(3) });
    try_all(Scope { nr_hctxs: 2, one_of: 13, ..Scope::all(2) });
    try_all(Scope { nr_hctxs: 2, one_of: 1597, ..Scope::all(3) });
}

#[test]
fn a_device_that_drops_acknowledged_data_is_caught() {
    for bug in [Plant::LieFlush, Plant::IgnoreFua] {
        for setting in Setting::all() {
            let setting = Setting { bug: Some(bug), ..setting };
            let lengths = 1..=if bug == Plant::LieFlush { 2 } else { 1 };
            let fault = lengths.map(|length| explore(&Scope::all(length), &[setting]));
            let is_found = fault.filter_map(Result::err).any(|fault| fault.rule.contains("P2"));
            // `IgnoreFua` is a bug of native FUA. A script of one FUA write does not depend on
            // elision and queueable flushes, so it is tried only with both.
            let shows = match bug {
                Plant::LieFlush => true,
                _ => setting.fua && setting.elide && setting.flush_queueable,
            };
            assert_eq!(is_found, shows, "{setting:?}");
        }
    }
}

#[test]
fn write_back_error_of_a_file_is_reported_in_every_short_history() {
    let report = try_these(Scope::file(1, 1, Kinds::All), &Setting::files());
    assert!(report.nr_crash_points > 50, "{report}");
    let report = try_these(Scope::file(2, 2, Kinds::Syncs), &Setting::files());
    assert!(report.nr_crash_points > 1_000, "{report}");
    // Syncs at the same time: a write, one with FUA, and a flush.
    let mut native = Setting::files();
    native.retain(|setting| setting.fua && !setting.elide);
    try_these(Scope::file(3, 1, Kinds::Syncs), &native);
    // Commands fail on their own as well.
    let failing = Scope { failures_max: 1, one_of: 29, ..Scope::file(2, 2, Kinds::All) };
    try_these(failing, &Setting::files());
}

/// Explores files with a planted bug. Returns for each setting whether P2 is found broken.
fn find(bug: Plant, scope: &Scope) -> Vec<(Setting, bool)> {
    let found = |setting: Setting| {
        let planted = Setting { bug: Some(bug), ..setting };
        let fault = explore(scope, &[planted]).err();
        (setting, fault.is_some_and(|fault| fault.rule.contains("P2")))
    };
    Setting::files().into_iter().map(found).collect()
}

#[test]
fn planted_bug_of_write_back_errors_is_found_wherever_it_can_do_harm() {
    let length = |length| Scope::file(length, 1, Kinds::Syncs);
    for (setting, is_found) in find(Plant::UndeclaredSync, &length(3)) {
        let is_first = setting.file.is_some_and(|file| !file.opens_late);
        assert_eq!(is_found, is_first && setting.fua, "{setting:?}");
    }
    for (setting, is_found) in find(Plant::UndeclaredCache, &length(2)) {
        let is_first = setting.file.is_some_and(|file| !file.opens_late && file.page_cache);
        assert_eq!(is_found, is_first && setting.fua, "{setting:?}");
    }
    for (setting, is_found) in find(Plant::UncheckedOpen, &Scope::file(2, 2, Kinds::Syncs)) {
        let opens_late = setting.file.is_some_and(|file| file.opens_late && file.page_cache);
        // A script of two bios cannot distinguish the others from these.
        let is_tried = setting.fua || setting.elide;
        assert_eq!(is_found, opens_late && is_tried, "{setting:?}");
    }
}

/// Returns the scope of scripts of these kinds, in which one command fails.
const fn failing_once(length: usize, kinds: Kinds) -> Scope {
    Scope { kinds, failures_max: 1, ..Scope::all(length) }
}

#[test]
fn durable_points_and_acknowledged_losses_are_right_in_every_short_history() {
    try_all(failing_once(2, Kinds::Points));
    let report = try_all(failing_once(3, Kinds::Points));
    assert!(report.nr_crash_points > 1_000, "{report}");
    try_all(Scope { nr_hctxs: 2, one_of: 3, ..failing_once(2, Kinds::Points) });
}

#[test]
fn split_bios_that_wait_for_tags_break_no_promise_in_any_short_history() {
    let report = try_these(failing_once(1, Kinds::Splits), &Setting::scarce());
    assert!(report.nr_crash_points > 100, "{report}");
    try_these(Scope { one_of: 3, ..failing_once(2, Kinds::Splits) }, &Setting::scarce());
}

#[test]
#[ignore = "half a minute, optimized: cargo xtask histories"]
fn every_history_of_three_bios() {
    let report = try_all(Scope::all(3));
    assert!(report.nr_crash_points > 10_000_000, "{report}");
}

#[test]
#[ignore = "minutes, optimized; one CI run of three executes it: cargo xtask histories"]
fn every_history_of_four_syncs_beside_each_other() {
    let mut native = Setting::files();
    native.retain(|setting| setting.fua && !setting.elide);
    try_these(Scope::file(4, 1, Kinds::Syncs), &native);
}

#[test]
#[ignore = "minutes, optimized; one CI run of three executes it: cargo xtask histories"]
fn every_history_of_three_bios_on_a_file() {
    try_these(Scope::file(2, 2, Kinds::All), &Setting::files());
    let report = try_these(Scope::file(3, 1, Kinds::Syncs), &Setting::files());
    assert!(report.nr_crash_points > 10_000, "{report}");
    let report = try_these(Scope::file(3, 2, Kinds::Syncs), &Setting::files());
    assert!(report.nr_crash_points > 1_000_000, "{report}");
    try_these(Scope { failures_max: 1, ..Scope::file(2, 2, Kinds::All) }, &Setting::files());
    let failing = Scope { failures_max: 1, one_of: 4, ..Scope::file(3, 2, Kinds::Syncs) };
    try_these(failing, &Setting::files());
}

#[test]
#[ignore = "seconds, optimized: cargo xtask histories"]
fn every_history_of_four_bios_with_durable_points() {
    let report = try_all(failing_once(4, Kinds::Points));
    assert!(report.nr_crash_points > 100_000, "{report}");
    try_all(Scope { one_of: 3, ..failing_once(5, Kinds::Points) });
    try_all(Scope { nr_hctxs: 2, ..failing_once(3, Kinds::Points) });
}

#[test]
#[ignore = "half a minute, optimized: cargo xtask histories"]
fn every_history_of_two_split_bios_and_half_of_those_of_three() {
    try_these(failing_once(2, Kinds::Splits), &Setting::scarce());
    let scope = Scope { one_of: 2, ..failing_once(3, Kinds::Splits) };
    let report = try_these(scope, &Setting::scarce());
    assert!(report.nr_crash_points > 1_000_000, "{report}");
}

#[test]
#[ignore = "half a minute, optimized: cargo xtask histories"]
fn every_history_of_three_bios_in_two_contexts() {
    let scope = Scope { nr_hctxs: 2, failures_max: 1, short_plugs: false, ..Scope::all(3) };
    let report = try_all(scope);
    assert!(report.nr_crash_points > 10_000_000, "{report}");
}

#[test]
#[ignore = "two minutes, optimized; one CI run of three executes it: cargo xtask histories"]
fn every_history_of_four_bios_without_failures() {
    let report = try_all(four(0, 1));
    assert!(report.nr_crash_points > 80_000_000, "{report}");
}

#[test]
#[ignore = "ten minutes, optimized, by hand: cargo xtask histories --all"]
fn all_of_four_bios_with_a_failure() {
    let report = try_all(four(1, 1));
    assert!(report.nr_crash_points > 300_000_000, "{report}");
}
