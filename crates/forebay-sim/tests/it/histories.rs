//! Every short history on a device with a volatile cache, and a crash at each of its moments.

use forebay_sim::histories::{Lie, Report, Scope, Setting, explore};

fn tried(scope: &Scope, settings: &[Setting]) -> Report {
    let report = explore(scope, settings).unwrap_or_else(|fault| panic!("{fault}"));
    println!("{scope:?}: {report}");
    report
}

#[test]
fn no_history_of_one_or_two_bios_loses_what_was_acknowledged() {
    let mut report = Report::default();
    for length in [1, 2] {
        report += tried(&Scope::all(length), &Setting::all());
    }
    assert!(report.nr_crash_points > 60_000, "{report}");
}

#[test]
fn some_longer_histories_do_not_either() {
    let three = Scope { failures_max: 2, one_of: 997, ..Scope::all(3) };
    let four =
        Scope { failures_max: 1, short_plugs: false, eager_reads: true, one_of: 9973, ..three };
    for scope in [three, Scope { length: 4, ..four }] {
        tried(&scope, &Setting::all());
    }
}

#[test]
fn a_device_that_lies_is_caught() {
    for lie in [Lie::Flush, Lie::Fua] {
        for setting in Setting::all() {
            let setting = Setting { lie: Some(lie), ..setting };
            let lengths = 1..=if lie == Lie::Flush { 2 } else { 1 };
            let fault = lengths.map(|length| explore(&Scope::all(length), &[setting]));
            let is_found = fault.filter_map(Result::err).any(|fault| fault.rule.contains("P2"));
            assert_eq!(is_found, lie == Lie::Flush || setting.fua, "{setting:?}");
        }
    }
}

#[test]
#[ignore = "scratch"]
fn scratch() {
    tried(&Scope { failures_max: 0, short_plugs: false, ..Scope::all(3) }, &Setting::all());
}
