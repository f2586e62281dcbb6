//! Terse lines beside those of fio for the same jobs: the same number of fields in the same forms,
//! and the same values where the job determines them.

use tempfile::TempDir;

use crate::common::{self, bench, folder, skip, stderr, stdout};

/// The fields of a disk.
const DISK_FIELDS: usize = 9;

/// Returns what fio prints, or `None` if fio is not installed.
#[track_caller]
fn fio(test: &str, folder: &TempDir, args: &str) -> Option<String> {
    common::fio(test, folder, &format!("{args} --output=fio.txt"))?;
    Some(std::fs::read_to_string(folder.path().join("fio.txt")).expect("fio's report"))
}

/// A terse line, in parts.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// The fields up to the latencies in milliseconds.
    of_job: Vec<&'a str>,
    /// The fields of a disk, if there is one.
    disk: Option<Vec<&'a str>>,
    /// The fields after those of the disks.
    rest: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// Splits a line of a job. The job has `nr_rest` fields after those of its disks.
    pub(crate) fn of(text: &'a str, nr_rest: usize) -> Self {
        let mut of_job: Vec<_> = text.split(';').collect();
        let rest = of_job.split_off(of_job.len() - nr_rest);
        // All disks are at the end, and their first field is a name.
        let has_disk = |fields: &[&str]| {
            let name = fields.len().checked_sub(DISK_FIELDS).map(|at| fields[at]);
            name.is_some_and(|name| !name.ends_with('%'))
        };
        let mut disk = None;
        while has_disk(&of_job) {
            disk = Some(of_job.split_off(of_job.len() - DISK_FIELDS));
        }
        Self { of_job, disk, rest }
    }

    /// Returns the fields up to the latencies in milliseconds.
    pub(crate) fn of_job(&self) -> &[&'a str] {
        &self.of_job
    }
}

/// Returns the form of a field: the digits of a number do not count, but those after the point do.
fn form(field: &str) -> String {
    let (start, value) = match field.split_once("%=") {
        Some((percent, value)) => (format!("{percent}%="), value),
        None => (String::new(), field),
    };
    let number = value.strip_suffix('%').unwrap_or(value);
    let unit = &value[number.len()..];
    match number.parse::<f64>() {
        Ok(_) => {
            let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            format!("{start}{decimals} decimals{unit}")
        }
        Err(_) => format!("{start}text"),
    }
}

/// Returns the forms of several fields.
pub(crate) fn forms(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| form(field)).collect()
}

/// Runs both programs. Returns their lines, or `None` without fio.
#[track_caller]
fn lines(test: &str, args: &str) -> Option<[Vec<String>; 2]> {
    let (their_folder, our_folder) = (folder(), folder());
    let theirs = fio(test, &their_folder, args)?;
    let output = bench(&our_folder, args);
    assert_eq!(output.status.code(), Some(0), "{args}: {}", stderr(&output));
    // fio prints the header of jobs above terse lines of several jobs, and of new files.
    let of = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with([';', '2', '3', '4', '5']));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    Some([of(&stdout(&output)), of(&theirs)])
}

/// Compares the lines of both programs. `facts` are positions of fields whose values the job
/// determines.
#[track_caller]
fn check(test: &str, args: &str, nr_rest: usize, facts: &[usize]) {
    let Some([ours, theirs]) = lines(test, args) else { return };
    assert_eq!(ours.len(), theirs.len(), "{args}: {ours:?} {theirs:?}");
    assert!(!ours.is_empty(), "{args}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let (ours, theirs) = (Line::of(ours, nr_rest), Line::of(theirs, nr_rest));
        assert_eq!(forms(&ours.of_job), forms(&theirs.of_job), "{args}");
        assert_eq!(ours.rest, theirs.rest, "{args}");
        for &at in facts {
            assert_eq!(ours.of_job[at], theirs.of_job[at], "{args}: field {at}");
        }
        match (&ours.disk, &theirs.disk) {
            (ours, None) => {
                let is_v2 = args.contains("terse-version=2");
                assert_eq!(ours.is_some(), !is_v2, "{args}");
                if !is_v2 {
                    skip(test, "fio finds no disk below the file");
                }
            }
            (Some(ours), Some(theirs)) => assert_eq!(forms(ours), forms(theirs), "{args}"),
            (None, Some(_)) => panic!("{args}: no disk in our line"),
        }
    }
}

const READS: &str = "--name=a --rw=read --size=1m --ioengine=libaio --filename=disk.img";

#[test]
fn each_version_has_the_fields_of_fio() {
    let test = "each_version_has_the_fields_of_fio";
    // The version, name, group, error, and KiB read. Versions after 2 have the program, too.
    check(test, &format!("{READS} --minimal --terse-version=2"), 0, &[0, 1, 2, 3, 4]);
    check(test, &format!("{READS} --minimal"), 0, &[0, 2, 3, 4, 5]);
    check(test, &format!("{READS} --output-format=terse --terse-version=4"), 0, &[0, 2, 3, 4, 5]);
    check(test, &format!("{READS} --minimal --terse-version=5"), 0, &[0, 2, 3, 4, 5]);
    let writes = "--name=w --rw=write --size=2m --bs=16k --ioengine=psync --filename=disk.img";
    // KiB read and written.
    check(test, &format!("{writes} --minimal"), 0, &[0, 2, 3, 4, 5, 46]);
}

#[test]
fn options_change_the_fields_as_in_fio() {
    let test = "options_change_the_fields_as_in_fio";
    for (options, nr_rest) in [
        ("--percentile_list=50:99", 0),
        ("--clat_percentiles=0", 0),
        ("--clat_percentiles=0 --lat_percentiles=1", 0),
        ("--disable_clat=1", 0),
        ("--disable_lat=1 --lat_percentiles=1", 0),
        ("--gtod_reduce=1", 0),
        ("--unified_rw_reporting=mixed", 0),
        ("--unified_rw_reporting=both", 0),
        ("--unified_rw_reporting=both --terse-version=5", 0),
        ("--continue_on_error=all", 0),
        ("--terse-version=4 --description=text", 1),
    ] {
        check(test, &format!("{READS} --minimal {options}"), nr_rest, &[0, 2, 3, 4, 5]);
    }
    // The second line has the description alone, after an empty field.
    let args = format!("{READS} --minimal --terse-version=2 --description=text");
    let Some([ours, theirs]) = lines(test, &args) else { return };
    assert_eq!(ours.len(), 2);
    assert_eq!((ours[1].as_str(), &ours[1]), (";text", &theirs[1]));
}

#[test]
fn each_job_has_a_line_and_each_group_one() {
    let test = "each_job_has_a_line_and_each_group_one";
    let two = format!("{READS} --name=b --rw=write --size=1m --filename=b.img --minimal");
    check(test, &two, 0, &[0, 2, 3, 4, 5, 46]);
    let group = format!("{READS} --minimal --numjobs=2 --group_reporting --thread");
    check(test, &group, 0, &[0, 2, 3, 4, 5]);
}

#[test]
fn terse_lines_come_before_json_and_text() {
    let folder = folder();
    let args = "--name=a --filename=ram:64k --rw=read";
    let text = stdout(&bench(&folder, &format!("{args} --output-format=normal,json,terse")));
    let places = ["a: (g=0)", "\n3;forebay-", "\n{\n", "\na: (groupid=0"];
    let places = places.map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")));
    assert!(places.is_sorted(), "{text}");
    let text = stdout(&bench(&folder, &format!("{args} --append-terse")));
    assert!(text.contains("\n3;forebay-") && text.contains("\na: (groupid=0"), "{text}");
    let text = stdout(&bench(&folder, &format!("{args} --minimal")));
    assert!(text.starts_with("3;forebay-") && text.lines().count() == 1, "{text}");
}

#[test]
fn version_of_terse_lines_is_checked_and_has_no_effect_without_them() {
    let output = bench(&folder(), "--name=a --filename=ram:64k --minimal --terse-version=6");
    let message = "forebay: --terse-version=6: there is no such version (accepted: 2, 3, 4 or 5)\n";
    assert_eq!((stderr(&output).as_str(), output.status.code()), (message, Some(2)));
    let output = bench(&folder(), "--name=a --filename=ram:64k --terse-version=4");
    let message = "forebay: warning: --terse-version has no effect without terse lines; add \
                   --minimal or --append-terse\n";
    assert_eq!(stderr(&output), message);
}
