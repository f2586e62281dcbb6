//! The time for which records are missing.

use super::*;

#[test]
fn gap_lasts_from_the_record_before_it_to_the_next_stage_of_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
    // The message about the lost records has the time 7.
    write(&paths[0], 0, &[5, 7, 30]);
    write(&paths[1], 1, &[4, 6, 20, 40]);
    let mut files = TraceFiles::open(&paths).expect("a trace");
    let mut gaps = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        if let Kind::Stage(_) = entry.record.kind {
            gaps.push((entry.record.time_ns, files.has_gap()));
        }
    }
    let expected = [(4, false), (5, true), (6, true), (20, true), (30, false), (40, false)];
    assert_eq!(gaps, expected);
}

#[test]
fn gap_at_the_end_of_a_file_ends_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
    write(&paths[0], 0, &[5, 7]);
    write(&paths[1], 1, &[6, 20]);
    let mut files = TraceFiles::open(&paths).expect("a trace");
    let mut gaps = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        gaps.push((entry.record.time_ns, files.has_gap()));
    }
    assert_eq!(gaps[4..], [(5, true), (6, true), (7, false), (20, false)]);
}
