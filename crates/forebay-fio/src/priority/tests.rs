//! Classes and levels follow from the options, and draws from the seed.

use super::*;
use crate::cmdline::{Parsed, parse};
use crate::job::Job;

fn job(args: &str) -> Result<Job, String> {
    let args = format!("--name=a {args}");
    match parse(args.split_whitespace().map(Into::into)) {
        Ok(Parsed::Run(command)) => Ok(command.jobs[0].clone()),
        Ok(other) => panic!("{other:?}"),
        Err(errors) => Err(errors.to_string()),
    }
}

#[track_caller]
fn check(args: &str, class: Class, level: u8) {
    assert_eq!(job(args).expect(args).priorities.of_job, Priority { class, level }, "{args}");
}

#[test]
fn class_and_level_complete_each_other_as_in_fio() {
    check("", Class::BestEffort, 4);
    check("--prioclass=0", Class::BestEffort, 4);
    check("--prio=0", Class::BestEffort, 0);
    check("--prio=6", Class::BestEffort, 6);
    check("--prioclass=1", Class::RealTime, 0);
    check("--prioclass=2 --prio=7", Class::BestEffort, 7);
    check("--prio=2 --prioclass=3", Class::Idle, 2);
}

#[test]
fn values_out_of_range_and_levels_without_a_class_are_refused() {
    for (args, message) in [
        ("--prio=8", "above the maximum, 7"),
        ("--prioclass=4", "above the maximum, 3"),
        ("--prioclass=0 --prio=3", "a: --prio=3 needs a class: give --prioclass=1, 2 or 3"),
        ("--cmdprio_percentage=101", "above the maximum, 100"),
        ("--cmdprio_percentage=1,2,3", "expected at most two values: read,write"),
        ("--cmdprio=8", "above the maximum, 7"),
        ("--cmdprio_class=1,4", "above the maximum, 3"),
        ("--cmdprio_bssplit=4k/10", "use --cmdprio_percentage"),
    ] {
        let error = job(args).expect_err(args);
        assert!(error.contains(message), "{args}: {error}");
    }
}

#[test]
fn pairs_are_for_reads_and_writes() {
    let priorities = job("--cmdprio_percentage=20,40 --cmdprio_class=3 --cmdprio=1,2");
    let priorities = priorities.expect("a job").priorities;
    assert_eq!(priorities.percentage, [20, 40]);
    let other = [1, 2].map(|level| Priority { class: Class::Idle, level });
    assert_eq!(priorities.other, other);
    let one = job("--cmdprio_percentage=30").expect("a job").priorities;
    assert_eq!(one.percentage, [30; 2]);
    assert_eq!(one.other, [Priority { class: Class::RealTime, level: 0 }; 2]);
    let writes = job("--cmdprio_percentage=,40").expect("a job").priorities;
    assert_eq!(writes.percentage, [0, 40]);
}

#[test]
fn settings_of_single_ios_warn_without_a_percentage() {
    let warnings = job("--cmdprio=3 --cmdprio_class=2").expect("a job").warnings;
    assert_eq!(
        warnings,
        [
            "--cmdprio_class has no effect without --cmdprio_percentage",
            "--cmdprio has no effect without --cmdprio_percentage"
        ]
    );
    let args = "--cmdprio=3 --cmdprio_class=2 --cmdprio_percentage=5";
    assert!(job(args).expect("a job").warnings.is_empty());
}

#[test]
fn drawn_priorities_keep_the_percentage_and_depend_on_the_seed_alone() {
    const NR: usize = 10_000;
    let priorities = job("--prioclass=3 --cmdprio_percentage=20,100").expect("a job");
    let priorities = priorities.priorities;
    let draw = |seed, stream| {
        let mut drawer = priorities.drawer(seed, stream).expect("other priorities");
        (0..NR).map(|_| drawer.next(Direction::Read).class).collect::<Vec<_>>()
    };
    let first = draw(1, 0);
    assert_eq!(first, draw(1, 0));
    assert!(first != draw(2, 0) && first != draw(1, 1));
    let nr_other = first.iter().filter(|&&class| class == Class::RealTime).count();
    assert!((NR / 6..NR / 4).contains(&nr_other), "{nr_other} of {NR}");
    let mut drawer = priorities.drawer(1, 0).expect("other priorities");
    for _ in 0..100 {
        assert_eq!(drawer.next(Direction::Write).class, Class::RealTime);
        assert_eq!(drawer.next(Direction::Trim).class, Class::Idle);
    }
    assert!(job("").expect("a job").priorities.drawer(1, 0).is_none());
}

#[test]
fn refused_io_keeps_its_priority_when_it_is_submitted_again() {
    let priorities = job("--cmdprio_percentage=50").expect("a job").priorities;
    let mut plain = priorities.drawer(1, 0).expect("other priorities");
    let mut refused = plain.clone();
    for _ in 0..100 {
        let priority = plain.next(Direction::Read);
        assert_eq!(refused.next(Direction::Read), priority);
        refused.repeat();
        assert_eq!(refused.next(Direction::Read), priority);
    }
}

#[test]
fn classes_are_those_that_the_directions_of_a_job_can_have() {
    let classes = |args: &str| {
        let job = job(args).expect(args);
        job.priorities.classes(|direction| job.rw.has(direction))
    };
    assert_eq!(classes("--rw=read"), [Class::BestEffort]);
    let mixed = [Class::Idle, Class::RealTime];
    assert_eq!(classes("--rw=read --prioclass=3 --cmdprio_percentage=5"), mixed);
    assert_eq!(classes("--rw=read --prioclass=3 --cmdprio_percentage=100"), [Class::RealTime]);
    assert_eq!(classes("--rw=read --cmdprio_percentage=0,9"), [Class::BestEffort]);
    assert_eq!(classes("--rw=trim --cmdprio_percentage=9"), [Class::BestEffort]);
}
