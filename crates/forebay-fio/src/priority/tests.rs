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
    let of_job = job(args).expect(args).priorities.of_job;
    assert_eq!(of_job, Some(Priority { class, level }), "{args}");
}

#[test]
fn class_and_level_complete_each_other_as_in_fio() {
    for args in ["", "--prioclass=0"] {
        assert_eq!(job(args).expect(args).priorities.of_job, None, "{args}");
    }
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
        ("--cmdprio_bssplit=4k", "'4k' has neither two nor four fields between slashes"),
        ("--cmdprio_bssplit=4k/10/1", "'4k/10/1' has neither two nor four fields"),
        ("--cmdprio_bssplit=4k/10/0/1", "unknown class 0: use 1, 2 or 3"),
        ("--cmdprio_bssplit=4k/10/1/8", "above the maximum, 7"),
        ("--cmdprio_bssplit=4k/60:8k/60:4k/50", "the percentages of 4096 bytes add up to 110"),
        (
            "--cmdprio_bssplit=4k/10 --cmdprio_percentage=5",
            "--cmdprio_percentage contradicts --cmdprio_bssplit: leave one of them out",
        ),
    ] {
        let error = job(args).expect_err(args);
        assert!(error.contains(message), "{args}: {error}");
    }
}

#[test]
fn pairs_are_for_reads_and_writes() {
    let rules = |args: &str| {
        let [reads, writes] = job(args).expect(args).priorities.rules;
        [reads, writes].map(|rules| {
            let rule = |rule: &Rule| (rule.bytes, rule.percent, rule.priority.number());
            rules.iter().map(rule).collect::<Vec<_>>()
        })
    };
    let idle = rules("--cmdprio_percentage=20,40 --cmdprio_class=3 --cmdprio=1,2");
    assert_eq!(idle, [[(None, 20, 0x6001)], [(None, 40, 0x6002)]]);
    assert_eq!(rules("--cmdprio_percentage=30"), [[(None, 30, 0x2000)], [(None, 30, 0x2000)]]);
    assert_eq!(rules("--cmdprio_percentage=,40"), [vec![], vec![(None, 40, 0x2000)]]);
    let split = "--cmdprio_bssplit=64k/25/1/1:64k/75/3/2:1m/0,1m/5 --cmdprio_class=2 --cmdprio=7";
    let reads = vec![(Some(65_536), 25, 0x2001), (Some(65_536), 75, 0x6002)];
    assert_eq!(rules(split), [reads, vec![(Some(1 << 20), 5, 0x4007)]]);
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
    let warnings = job("--cmdprio=3 --cmdprio_bssplit=4k/10/1/0").expect("a job").warnings;
    assert_eq!(warnings, ["--cmdprio has no effect: --cmdprio_bssplit has all priorities"]);
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
        (0..NR).map(|_| drawer.next(Direction::Read, 4096).expect("one").class).collect::<Vec<_>>()
    };
    let first = draw(1, 0);
    assert_eq!(first, draw(1, 0));
    assert!(first != draw(2, 0) && first != draw(1, 1));
    let nr_other = first.iter().filter(|&&class| class == Class::RealTime).count();
    assert!((NR / 6..NR / 4).contains(&nr_other), "{nr_other} of {NR}");
    let mut drawer = priorities.drawer(1, 0).expect("other priorities");
    let class = |priority: Option<Priority>| priority.map(|priority| priority.class);
    for _ in 0..100 {
        assert_eq!(class(drawer.next(Direction::Write, 4096)), Some(Class::RealTime));
        assert_eq!(class(drawer.next(Direction::Trim, 4096)), Some(Class::Idle));
    }
    assert!(job("").expect("a job").priorities.drawer(1, 0).is_none());
}

#[test]
fn refused_io_keeps_its_priority_when_it_is_submitted_again() {
    let priorities = job("--cmdprio_percentage=50").expect("a job").priorities;
    let mut plain = priorities.drawer(1, 0).expect("other priorities");
    let mut refused = plain.clone();
    for _ in 0..100 {
        let priority = plain.next(Direction::Read, 4096);
        assert_eq!(refused.next(Direction::Read, 4096), priority);
        refused.repeat();
        assert_eq!(refused.next(Direction::Read, 4096), priority);
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

#[test]
fn a_split_draws_among_the_io_of_a_size() {
    const NR: usize = 10_000;
    let args = "--cmdprio_bssplit=64k/25/1/1:64k/75/3/2:8k/10,8k/100";
    let mut drawer = job(args).expect("a job").priorities.drawer(1, 0).expect("a drawer");
    let mut nr_high = 0;
    for _ in 0..NR {
        match drawer.next(Direction::Read, 65_536).expect("all have one").number() {
            0x2001 => nr_high += 1,
            0x6002 => {}
            other => panic!("{other:#x}"),
        }
        assert_eq!(drawer.next(Direction::Read, 4096), None);
        assert_eq!(drawer.next(Direction::Trim, 8192), None);
        let write = drawer.next(Direction::Write, 8192).expect("all have one");
        assert_eq!(write.number(), 0x2000);
    }
    assert!((NR / 5..NR / 3).contains(&nr_high), "{nr_high} of {NR}");
    let nr = (0..NR).filter(|_| drawer.next(Direction::Read, 8192).is_some()).count();
    assert!((NR / 12..NR / 8).contains(&nr), "{nr} of {NR}");
}
