//! Files with losses, merged files, and files that are no traces.

mod gaps;

use super::numbers::may_come_early;
use super::raw::RawFile;
use super::*;
use crate::directory::file_path;
use crate::record::{Act, RECORD_BYTES};
use crate::writer::{Place, TraceFile};
use forebay_core::{BioFlags, Op, TraceEvent, TraceRecord};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

fn write(path: &Path, index: u32, times: &[u64]) {
    let place = Place { device: 0, index, errno_of: |_| 5 };
    let mut file = TraceFile::new(File::create(path).expect("a file"), place);
    file.begin(1, "name", 0, Duration::ZERO).expect("it is written");
    for &time_ns in times {
        let event = if time_ns == 7 { TraceEvent::Lost } else { TraceEvent::Issue };
        file.write(&TraceRecord {
            time_ns,
            event,
            op: Op::Read,
            flags: BioFlags::NONE,
            start: 512 * u64::from(index),
            len: 3,
            status: None,
            second_len: 0,
        })
        .expect("it is written");
    }
}

#[test]
fn records_of_all_files_come_by_time_and_missing_ones_are_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
    write(&paths[0], 0, &[5, 7, 30]);
    write(&paths[1], 1, &[4, 6, 20]);
    let mut files = TraceFiles::open(&paths).expect("a trace");
    let mut stages = Vec::new();
    let mut texts = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        match entry.record.kind {
            Kind::Stage(Act::Issue) => stages.push((entry.record.time_ns, entry.record.cpu)),
            _ => texts.extend(entry.text()),
        }
    }
    assert_eq!(stages, [(4, 1), (5, 0), (6, 1), (20, 1), (30, 0)]);
    assert_eq!(texts, ["name", "name", "3 records are missing: the ring was full"]);
    assert_eq!(files.nr_missing(), 3);
}

/// Writes the records of files in the order of their times to one file, as `blkparse -d` does.
fn merge(paths: &[PathBuf], merged: &Path) {
    let mut files = TraceFiles::open(paths).expect("a trace");
    let mut bytes = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        bytes.extend(entry.record.to_bytes());
        bytes.extend(entry.data);
    }
    std::fs::write(merged, bytes).expect("it is written");
}

#[test]
fn merged_file_has_the_numbers_of_each_of_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
    write(&paths[0], 0, &[5, 7, 30]);
    write(&paths[1], 1, &[4, 6, 20]);
    let merged = dir.path().join("merged.bin");
    merge(&paths, &merged);
    let mut files = TraceFiles::open(&[merged]).expect("a trace");
    let nr = std::iter::from_fn(|| files.next_entry().expect("records")).count();
    // Two files with a head of two records, and three records each.
    assert_eq!((nr, files.nr_missing()), (10, 3));
}

#[test]
fn truncated_and_foreign_files_are_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file_path(dir.path(), "disk", 0);
    write(&path, 0, &[1]);
    let len = std::fs::metadata(&path).expect("a file").len();
    File::options().write(true).open(&path).expect("a file").set_len(len - 1).expect("cut");
    let paths = [path.clone()];
    let mut files = TraceFiles::open(&paths).expect("its beginning");
    let error = std::iter::repeat_with(|| files.next_entry()).find_map(Result::err);
    let text = error.expect("the end is missing").to_string();
    assert!(text.contains("disk.blktrace.0: the file ends within the record at byte"), "{text}");
    std::fs::write(&path, [1; 64]).expect("it is written");
    let text = TraceFiles::open(&paths).expect_err("no trace").to_string();
    assert!(text.contains("disk.blktrace.0: byte 0: a record begins with 0x01010101"), "{text}");
}
