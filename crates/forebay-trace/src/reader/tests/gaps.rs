//! The time for which records are missing.

use super::*;

/// Returns the times of the stages, and whether a gap follows.
fn gaps(paths: &[PathBuf]) -> Vec<(u64, bool)> {
    let mut files = TraceFiles::open(paths).expect("a trace");
    let mut gaps = Vec::new();
    while let Some(entry) = files.next_entry().expect("records") {
        if let Kind::Stage(_) = entry.record.kind {
            gaps.push((entry.record.time_ns, files.has_gap()));
        }
    }
    gaps
}

#[test]
fn gap_lasts_from_the_record_before_it_to_the_next_stage_of_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
    // The message about the lost records has the time 7.
    write(&paths[0], 0, &[5, 7, 30]);
    write(&paths[1], 1, &[4, 6, 20, 40]);
    let expected = [(4, false), (5, true), (6, true), (20, true), (30, false), (40, false)];
    assert_eq!(gaps(&paths), expected);
    // The same in one file: a record of another ring comes before those that are missing show.
    let merged = [dir.path().join("merged.bin")];
    merge(&paths, &merged[0]);
    assert_eq!(gaps(&merged), expected);
}

#[test]
fn gap_of_a_merged_file_may_begin_before_its_second_ring() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = [0, 1, 2].map(|index| file_path(dir.path(), "disk", index));
    write(&paths[0], 0, &[5, 6, 7, 30]);
    write(&paths[1], 1, &[20, 40]);
    // Here the message about the lost records is the last one.
    write(&paths[2], 2, &[5, 7]);
    let merged = [dir.path().join("merged.bin")];
    for (nr_files, expected) in [
        (2, vec![(5, false), (6, true), (20, true), (30, false), (40, false)]),
        (3, vec![(5, false), (5, true), (6, true), (20, true), (30, false), (40, false)]),
    ] {
        merge(&paths[..nr_files], &merged[0]);
        // The heads of the rings come first. Without them, the second ring begins at 20.
        let bytes = std::fs::read(&merged[0]).expect("a file");
        let mut file = RawFile::open(&merged[0]).expect("a file");
        let mut without = Vec::new();
        while let Some((at, entry)) = file.next().expect("records") {
            if !may_come_early(&entry.record) {
                without.extend(&bytes[at as usize..][..RECORD_BYTES + entry.data.len()]);
            }
        }
        assert_eq!(gaps(&merged), expected);
        std::fs::write(&merged[0], without).expect("it is written");
        assert_eq!(gaps(&merged), expected);
    }
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
