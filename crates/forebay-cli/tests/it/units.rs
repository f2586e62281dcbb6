//! Units of options and reports (`kb_base`, `unit_base`) beside those of fio for the same jobs.

use tempfile::TempDir;

use crate::common::{self, bench, folder, stdout};

/// Returns fio's report, or `None` if fio is not installed.
#[track_caller]
fn fio(test: &str, folder: &TempDir, args: &str) -> Option<String> {
    Some(stdout(&common::fio(test, folder, args)?))
}

/// Returns the parts of a report that show units. Rates differ between runs, so only their units
/// count, without a prefix before `B` or `bit`: that depends on the speed.
fn units(report: &str) -> Vec<String> {
    let part = |line: &str, from: &str, to: &str| {
        let after = line.split_once(from).unwrap_or_else(|| panic!("{from}: {line}")).1;
        after.split_once(to).unwrap_or_else(|| panic!("{to}: {line}")).0.to_owned()
    };
    let base = |rate: &str| {
        let unit = rate.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let prefix = unit.trim_end_matches("/s").trim_end_matches("bit").trim_end_matches('B');
        let kind = if prefix.ends_with('i') { "binary" } else { "decimal" };
        let kind = if prefix.is_empty() { "none" } else { kind };
        format!("{kind} {}", if unit.contains("bit") { "bits" } else { "bytes" })
    };
    let mut units = Vec::new();
    for line in report.lines() {
        if line.contains(": (g=") {
            units.push(part(line, "bs=", ", ioengine"));
        } else if line.contains(" BW=") {
            units.push(base(&part(line, "BW=", " (")));
            units.push(base(&part(line, " (", ")")));
            units.push(part(line, ")(", "/"));
        } else if line.contains(": bw=") {
            units.push(base(&part(line, "bw=", " (")));
            units.push(base(&part(line, " (", ")")));
            units.push(part(line, "io=", ", run="));
        }
    }
    units
}

#[test]
fn units_of_a_report_are_those_of_fio() {
    let test = "units_of_a_report_are_those_of_fio";
    let job = "--name=a --rw=write --ioengine=psync --bs=16k --size=2m \
               --filename=disk.img --number_ios=1";
    for options in [
        "--kb_base=1024 --unit_base=0",
        "--kb_base=1000 --unit_base=0",
        "--kb_base=1000 --unit_base=1",
        "--kb_base=1024 --unit_base=1",
        "--kb_base=1024 --unit_base=8",
    ] {
        let args = format!("{options} {job} --bssplit=16k/100");
        let Some(theirs) = fio(test, &folder(), &args) else { return };
        let ours = stdout(&bench(&folder(), &args));
        assert_eq!(units(&ours), units(&theirs), "{options}");
        assert_eq!(units(&ours).len(), 7, "{ours}");
    }
}

#[test]
fn base_of_a_job_file_holds_for_its_whole_section() {
    let test = "base_of_a_job_file_holds_for_its_whole_section";
    let text = "[a]\nfilename=x.img\nrw=write\nbs=10k\nsize=100k\nkb_base=1000\n\
                [b]\nfilename=y.img\nrw=write\nsize=128kib\nbs=32kib\nkb_base=1000\nbs=16kib\n";
    let (their_folder, our_folder) = (folder(), folder());
    for folder in [&their_folder, &our_folder] {
        std::fs::write(folder.path().join("a.fio"), text).expect("a file");
    }
    let Some(theirs) = fio(test, &their_folder, "a.fio") else { return };
    let ours = stdout(&bench(&our_folder, "a.fio"));
    assert_eq!(units(&ours), units(&theirs));
    for name in ["x.img", "y.img"] {
        let len = |folder: &TempDir| folder.path().join(name).metadata().expect(name).len();
        assert_eq!(len(&our_folder), len(&their_folder), "{name}");
    }
}

/// fio's manual says that `ki` is `kib`.
#[test]
fn unit_with_an_i_and_no_b_has_the_value_of_fio() {
    let test = "unit_with_an_i_and_no_b_has_the_value_of_fio";
    let mut text = "[global]\nrw=write\nbs=1000\nnumber_ios=1\n".to_owned();
    for base in [1000, 1024] {
        for size in ["64k", "64ki", "64Ki", "64kib", "64KiB", "1mi", "1mib"] {
            text += &format!("[{base}-{size}]\nsize={size}\nkb_base={base}\n");
        }
    }
    let (their_folder, our_folder) = (folder(), folder());
    for folder in [&their_folder, &our_folder] {
        std::fs::write(folder.path().join("a.fio"), &text).expect("a file");
    }
    if fio(test, &their_folder, "a.fio").is_none() {
        return;
    }
    assert_eq!(bench(&our_folder, "a.fio").status.code(), Some(0));
    let sizes = |folder: &TempDir| {
        let entries = std::fs::read_dir(folder.path()).expect("a folder").flatten();
        let size =
            |entry: std::fs::DirEntry| (entry.file_name(), entry.metadata().expect("a file").len());
        entries.map(size).collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(sizes(&our_folder).len(), 15);
    assert_eq!(sizes(&our_folder), sizes(&their_folder));
}
