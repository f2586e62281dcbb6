//! Counts of two reports, and their comparison: which fields may differ, and by how much.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

/// Counts of a direction.
const OF_DIRECTION: [&str; 3] = ["io_bytes", "total_ios", "short_ios"];

/// The jobs of a report, and their counts. A key is the position of a job, and the path of a field:
/// `0.read.io_bytes`.
#[derive(Debug, PartialEq)]
pub(super) struct Counts {
    names: Vec<String>,
    fields: BTreeMap<String, u64>,
}

impl Counts {
    /// Returns the counts of a JSON report, after which nothing follows. Other output has no jobs.
    pub(super) fn of(output: &str) -> Self {
        // Notes about files may precede the JSON of fio.
        let report: Value = output[output.find("{\n").unwrap_or(0)..].parse().unwrap_or_default();
        let jobs = report["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        let mut fields = BTreeMap::new();
        for (at, job) in jobs.iter().enumerate() {
            let mut add = |path: String, value: &Value| {
                fields.insert(format!("{at}.{path}"), value.as_u64().unwrap_or(0));
            };
            add("error".to_owned(), &job["error"]);
            for part in ["read", "write", "trim", "mixed"] {
                for key in OF_DIRECTION {
                    add(format!("{part}.{key}"), &job[part][key]);
                }
            }
            add("sync.total_ios".to_owned(), &job["sync"]["total_ios"]);
        }
        let name = |job: &Value| job["jobname"].as_str().expect("the name of a job").to_owned();
        Self { names: jobs.iter().map(name).collect(), fields }
    }

    /// Returns whether there is no job.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names of the jobs.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns whether there are jobs, and each has done I/O.
    pub(super) fn has_io(&self) -> bool {
        let has_io = |at: usize| {
            let parts = ["read", "write", "trim", "mixed"].iter();
            parts.map(|part| self.get(&format!("{at}.{part}.total_ios"))).sum::<u64>() > 0
        };
        !self.is_empty() && (0..self.names.len()).all(has_io)
    }

    fn get(&self, key: &str) -> u64 {
        *self.fields.get(key).unwrap_or_else(|| panic!("{key} is no field of {self:?}"))
    }
}

/// Fields that differ between the two programs.
#[derive(Debug)]
pub(super) enum Difference {
    /// A field, its value in fio, and ours.
    Values(&'static str, u64, u64),
    /// A drawn field, and its range in both programs.
    Drawn(&'static str, RangeInclusive<u64>),
    /// The same, for bytes that are no multiple of 512.
    Unaligned(&'static str, RangeInclusive<u64>),
    /// Two fields with an equal sum in both programs, and the range of the first in percent of it.
    Share([&'static str; 2], RangeInclusive<u64>),
}

impl Difference {
    /// Returns whether `key` is a field that differs.
    fn has(&self, key: &str) -> bool {
        match self {
            Self::Values(field, ..) | Self::Drawn(field, _) | Self::Unaligned(field, _) => {
                *field == key
            }
            Self::Share(fields, _) => fields.contains(&key),
        }
    }

    /// Returns whether the fields differ only as they may.
    fn allows(&self, theirs: &Counts, ours: &Counts) -> bool {
        let all = [theirs, ours];
        match self {
            Self::Values(field, of_fio, our_own) => {
                all.map(|counts| counts.get(field)) == [*of_fio, *our_own]
            }
            Self::Drawn(field, range) => all.iter().all(|it| range.contains(&it.get(field))),
            Self::Unaligned(field, range) => all.iter().all(|counts| {
                let bytes = counts.get(field);
                range.contains(&bytes) && !bytes.is_multiple_of(512)
            }),
            Self::Share([first, second], range) => {
                let sums = all.map(|counts| counts.get(first) + counts.get(second));
                let is_near = |(counts, sum): (&&Counts, u64)| {
                    sum > 0 && range.contains(&(counts.get(first) * 100 / sum))
                };
                sums[0] == sums[1] && all.iter().zip(sums).all(is_near)
            }
        }
    }
}

/// Compares all counts. Those of `differences` may differ as these state.
///
/// # Errors
///
/// A description of the difference.
pub(super) fn compare(
    theirs: &Counts,
    ours: &Counts,
    differences: &[Difference],
) -> Result<(), String> {
    if theirs.names != ours.names {
        return Err(format!("fio reports the jobs {:?}, and we {:?}", theirs.names, ours.names));
    }
    for (key, of_fio) in &theirs.fields {
        let value = ours.get(key);
        if *of_fio != value && !differences.iter().any(|difference| difference.has(key)) {
            return Err(format!("{key} is {of_fio} in fio, and {value} in our report"));
        }
    }
    match differences.iter().find(|difference| !difference.allows(theirs, ours)) {
        Some(difference) => Err(format!("not {difference:?}: {theirs:?}, {ours:?}")),
        None => Ok(()),
    }
}
