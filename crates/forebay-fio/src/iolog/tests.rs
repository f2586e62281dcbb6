//! Logs, their errors, and the changes of options.

use super::*;
use crate::generator::Op;

fn parse(text: &str) -> Recording {
    Recording::parse(text).expect(text)
}

#[track_caller]
fn check_refusal(text: &str, line: usize, reason: &str) {
    let error = Recording::parse(text).expect_err(text).to_string();
    assert!(error.starts_with(&format!("line {line}: ")) && error.contains(reason), "{error}");
}

const VERSION_2: &str = "fio version 2 iolog\n/a add\n/b add\n/a open\n/a read 4096 512\n\
                         /b wait 30 0\n/b write 0 4096\n/b datasync 0 0\n/a close\n";

#[test]
fn version_2_has_files_steps_and_waits() {
    let recording = parse(VERSION_2);
    assert_eq!(recording.files(), ["/a", "/b"]);
    let read = Step { due_ns: 0, offset: 4096, len: 512, file: 0, act: Act::Io(Direction::Read) };
    let due_ns = 30_000_000;
    let write = Step { due_ns, offset: 0, len: 4096, file: 1, act: Act::Io(Direction::Write) };
    let sync = Step { len: 0, act: Act::Datasync, ..write };
    assert_eq!(recording.steps(), [read, write, sync]);
    assert!(recording.is_timed());
    assert_eq!((recording.end_of(0), recording.end_of(1)), (4608, 4096));
    assert_eq!(recording.alignment(), 512);
}

#[test]
fn times_of_version_3_count_from_its_first_line_and_never_go_back() {
    let text = "fio version 3 iolog\n100 f add\n150 f read 0 4096\n120 f trim 8192 4096\n\
                200 f sync 12288 0\n";
    let recording = parse(text);
    let steps: Vec<_> = recording.steps().iter().map(|step| (step.due_ns, step.act)).collect();
    let io = |direction| Act::Io(direction);
    let expected =
        [(50_000, io(Direction::Read)), (50_000, io(Direction::Trim)), (100_000, Act::Sync)];
    assert_eq!(steps, expected);
}

#[test]
fn written_lines_are_read_again() {
    let op = Op { direction: Direction::Write, file: 0, offset: 1 << 40, len: 4096 };
    let text = [
        HEADER.to_owned(),
        file_line(0, "x", "add"),
        io_line(7_999, "x", op),
        sync_line(9_000, "x", Act::Datasync),
        file_line(9_000, "x", "close"),
    ]
    .concat();
    let recording = parse(&text);
    let write =
        Step { due_ns: 7_000, offset: 1 << 40, len: 4096, file: 0, act: Act::Io(Direction::Write) };
    let sync = Step { due_ns: 9_000, offset: 0, len: 0, act: Act::Datasync, ..write };
    assert_eq!(recording.steps(), [write, sync]);
}

#[test]
fn wrong_lines_are_refused_by_number() {
    check_refusal("", 1, "expected 'fio version 2 iolog'");
    check_refusal("fio version 4 iolog\n", 1, "version '4'");
    let of_2 = |line: &str| format!("fio version 2 iolog\nf add\n{line}\n");
    check_refusal(&of_2("f"), 3, "expected 'file action' or");
    check_refusal(&of_2("f read 0"), 3, "expected 'file action' or");
    check_refusal(&of_2("f fly 0 1"), 3, "action 'fly' is not known");
    check_refusal(&of_2("f read x 1"), 3, "the offset 'x' is not a number");
    check_refusal(&of_2("f read 0 4294967296"), 3, "the length '4294967296'");
    check_refusal(&of_2("f write 0 0"), 3, "write of 0 bytes");
    check_refusal(&of_2("f read 9223372036854775807 1"), 3, "beyond the largest offset");
    check_refusal("fio version 3 iolog\n1 f wait 5 0\n", 2, "action 'wait' is not known");
    check_refusal("fio version 3 iolog\nf read 0 4096\n", 2, "the time 'f'");
}

#[test]
fn changes_are_those_of_the_options() {
    let scaled = Changes { time_scale: 200, scale: 2, align: 4096, ..Changes::default() };
    let steps = parse(VERSION_2).changed(&scaled);
    let of = |step: &Step| (step.due_ns, step.offset, step.len);
    assert_eq!(steps.steps().iter().map(of).next(), Some((0, 0, 4096)));
    assert_eq!(of(&steps.steps()[1]), (15_000_000, 0, 4096));
    let longest = parse("fio version 3 iolog\n0 f read 0 4294967295\n").changed(&scaled);
    assert_eq!(longest.steps()[0].len, u32::MAX - 4095);
    let skip = Skip { directions: [true, false, false], syncs: true };
    let rest = parse(VERSION_2).changed(&Changes { skip, ..Changes::default() });
    assert_eq!((rest.files(), rest.steps().len()), (&["/b".to_owned()][..], 1));
    assert_eq!(rest.steps()[0].file, 0, "its file is the first now");
    let fast = Changes { no_stall: true, one_file: true, ..Changes::default() };
    let fast = parse(VERSION_2).changed(&fast);
    assert!(!fast.is_timed() && fast.steps().iter().all(|step| step.file == 0));
}
