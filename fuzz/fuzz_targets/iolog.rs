//! Fuzzes the parser of iologs: no text makes it panic, hang or allocate much memory, and a log
//! that it accepts can be changed, written and read again.
//!
//! The first four bytes choose the changes. The rest is the log.

#![no_main]

use std::str;

use forebay_fio::generator::{Direction, Op};
use forebay_fio::iolog::{self, Act, Changes, Recording, Skip, Step};
use forebay_fuzz::{Choices, Feature, reach, start};
use libfuzzer_sys::fuzz_target;

const WANTED: &[Feature] = &[
    ("version", 2),
    ("version", 3),
    ("act", 0),
    ("act", 1),
    ("act", 2),
    ("act", 3),
    ("act", 4),
    ("late-step", 0),
    ("several-files", 0),
    ("file-left-out", 0),
    ("refused", 0),
];

fn changes(choices: &mut Choices<'_>) -> Changes {
    let (flags, speed, scale, align) =
        (choices.byte(), choices.byte(), choices.byte(), choices.byte());
    let has = |bit: u8| flags >> bit & 1 == 1;
    Changes {
        no_stall: has(0),
        one_file: has(1),
        skip: Skip { directions: [has(2), has(3), has(4)], syncs: has(5) },
        time_scale: u32::from(speed) * 5,
        scale: u64::from(scale),
        align: if align & 1 == 0 { 0 } else { 1 << (align >> 1 & 31) },
    }
}

/// Writes the log in version 3, and reads it again.
fn check_written(recording: &Recording) {
    let names = recording.files();
    let mut text = iolog::HEADER.to_owned();
    names.iter().for_each(|name| text += &iolog::file_line(0, name, "add"));
    for step in recording.steps() {
        let &Step { due_ns, offset, len, file, act } = step;
        let name = &names[usize::from(file)];
        text += &match act {
            Act::Io(direction) => iolog::io_line(due_ns, name, Op { direction, offset, len, file }),
            act => iolog::sync_line(due_ns, name, act),
        };
    }
    assert_eq!(Recording::parse(&text).as_ref(), Ok(recording));
}

fn check_changed(recording: Recording, changes: &Changes) {
    let (nr_steps, nr_files) = (recording.steps().len(), recording.files().len());
    let changed = recording.changed(changes);
    assert!(changed.steps().len() <= nr_steps && changed.files().len() <= nr_files);
    assert!(changed.steps().is_sorted_by_key(|step| step.due_ns));
    assert!(!changes.no_stall || !changed.is_timed());
    let mut is_used = vec![false; changed.files().len()];
    for step in changed.steps() {
        is_used[usize::from(step.file)] = true;
        assert!(changed.end_of(step.file) >= step.offset.saturating_add(step.len.into()));
        assert!(step.offset.is_multiple_of(u64::from(changes.align.max(1))));
        match step.act {
            Act::Io(direction) => assert!(!changes.skip.directions[direction.index()]),
            Act::Sync | Act::Datasync => assert!(!changes.skip.syncs && step.len == 0),
        }
    }
    assert!(changes.one_file || is_used.iter().all(|is_used| *is_used), "a file without steps");
    if changed.files().len() < nr_files {
        reach("file-left-out", 0);
    }
}

fn run(data: &[u8]) {
    let mut choices = Choices(data);
    let changes = changes(&mut choices);
    let Ok(text) = str::from_utf8(choices.0) else { return };
    let recording = match Recording::parse(text) {
        Ok(recording) => recording,
        Err(error) => {
            reach("refused", 0);
            assert!((1..=text.lines().count().max(1)).contains(&error.line));
            assert!(error.to_string().len() < 1024);
            return;
        }
    };
    let version = text.split_whitespace().nth(2).and_then(|word| word.parse().ok());
    reach("version", version.expect("the header has it"));
    for step in recording.steps() {
        reach(
            "act",
            match step.act {
                Act::Io(direction) => direction.index() as u64,
                Act::Sync => 3,
                Act::Datasync => 4,
            },
        );
        assert!(step.offset + u64::from(step.len) <= i64::MAX as u64);
    }
    if recording.is_timed() {
        reach("late-step", 0);
    }
    if recording.files().len() > 1 {
        reach("several-files", 0);
    }
    let nr_ios = recording.steps().iter().filter(|step| matches!(step.act, Act::Io(_))).count();
    let has = |direction| recording.lengths(direction).is_some();
    assert_eq!(nr_ios > 0, Direction::ALL.into_iter().any(has));
    assert!(recording.alignment().is_power_of_two());
    check_written(&recording);
    check_changed(recording, &changes);
}

fn seeds() -> Vec<Vec<u8>> {
    let logs = [
        "fio version 2 iolog\nd add\nd read 0 4096\nd wait 7\nd write 512 512\nd sync 0 0\n",
        "fio version 3 iolog\n1 d add\n1 e open\n2 d trim 0 4096\n9 e datasync 0 0\n9 e close\n",
    ];
    logs.iter().map(|log| [&[0, 40, 1, 19][..], log.as_bytes()].concat()).collect()
}

fuzz_target!(init: start(WANTED, &seeds(), ""), |data: &[u8]| run(data));
