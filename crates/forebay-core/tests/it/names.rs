//! Tests of names in specs and reports: each is a word of its own.

use forebay_core::{
    BlockStatus, FlushPolicy, KickPolicy, MergeKind, MergePolicy, Op, PlugPolicy, TagNeed,
    UnplugCause, WakePolicy,
};
use std::collections::BTreeSet;

#[test]
fn names_are_these() {
    let names = |names: &[&str]| names.join(" ");
    for (found, expected) in [
        (names(&Op::ALL.map(Op::name)), "read write flush discard write_zeroes"),
        (names(&PlugPolicy::ALL.map(PlugPolicy::name)), "outermost per-level none"),
        (names(&KickPolicy::ALL.map(KickPolicy::name)), "deferred per-request loop-end"),
        (names(&MergePolicy::ALL.map(MergePolicy::name)), "0 1 2"),
        (names(&TagNeed::ALL.map(TagNeed::name)), "auto one parts"),
        (names(&FlushPolicy::ALL.map(FlushPolicy::name)), "hold requeue tail"),
        (names(&WakePolicy::ALL.map(WakePolicy::name)), "fair batch stash single"),
        (names(&MergeKind::ALL.map(MergeKind::name)), "back front discard"),
        (names(&UnplugCause::ALL.map(UnplugCause::name)), "outermost level explicit limit wait"),
        (
            names(&BlockStatus::ALL.map(BlockStatus::name)),
            "io medium nospace notsupp timeout transport offline resource again readonly invalid",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn each_status_has_a_text_of_its_own() {
    let texts: BTreeSet<String> = BlockStatus::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), BlockStatus::ALL.len());
    assert!(texts.iter().all(|text| text.len() > 8), "{texts:?}");
}

#[test]
fn operations_that_change_the_device_and_that_move_data() {
    let of = |is: fn(Op) -> bool| Op::ALL.into_iter().filter(|op| is(*op)).collect::<Vec<_>>();
    assert_eq!(of(Op::moves_data), [Op::Read, Op::Write]);
    assert_eq!(of(Op::is_write), [Op::Write, Op::Discard, Op::WriteZeroes]);
}
