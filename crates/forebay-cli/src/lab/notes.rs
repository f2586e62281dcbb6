//! Why a figure is as it is, in a line: where it is further off than it may be, or looks wrong.

use super::published::Tags;
use super::rows::{Row, metric};

/// On rows of `run` that nothing was added to.
pub(super) const AS_IT_IS: &str =
    "as it is: the core's own turns, which have no worker; nothing is injected";

/// On rows of `run` with the published cost.
pub(super) const MODELLED: &str = "modelled, and a fit by construction: four constants that were \
     not published (64 tags, 2.6 us to queue work again that is pending, 6 us until a run begins, \
     80 ns for each request that it looks at) were chosen for these four points; the cost is \
     injected in virtual time";

/// On reads per second of several jobs on `hdd`, where threads wait for tags.
const FITTED_DISK: &str = "a fit in part: the row of 1 job gives the sum of the disk's constants; \
     how it is divided (32 commands, 1.9 ms, 1.6 ms for 256 KiB) was chosen with these rows in \
     sight";

/// On the mean wait where reads wait for tags.
const LITTLE: &str = "by Little's law, the mean time of a read in the layer; so a bound of twice \
     this compares the longest wait with the mean";

/// On rows of `run` in real time.
pub(super) const MEASURED: &str =
    "measured as it is, on this machine, where nothing was published: medians of 5 pairs, in turn";

/// On gains of `run` in real time, percent, in the order in which they were measured: how far they
/// are apart says what their median is worth.
pub(super) fn measured_gains(gains: &[f64]) -> String {
    // Nothing has no sign but the usual one.
    let gains: Vec<_> =
        gains.iter().map(|gain| format!("{:+.1}", (gain * 10.0).round() / 10.0 + 0.0)).collect();
    format!("{MEASURED}; the pairs: {} %", gains.join(", "))
}

/// Under this index some jobs starve.
const JAIN_STARVES: f64 = 0.9;

/// Adds notes to the rows of one cell. `ios_of_jobs` is what each of its jobs has completed,
/// `least_share` the least of them as a part of the mean.
pub(super) fn add(rows: &mut [Row], table: &Tags, ios_of_jobs: &[u64], least_share: f64) {
    let jain = rows.iter().find(|row| row.metric == metric::JAIN).map(|row| row.value);
    let is_starving = jain.is_some_and(|jain| jain < JAIN_STARVES);
    for row in rows {
        let note = match row.metric {
            metric::IOPS => of_iops(row, table),
            metric::SWITCHES => of_switches(row, table, is_starving),
            metric::FAIR_SHARE if row.policy == "fair" => Some(LITTLE.to_owned()),
            metric::JAIN | metric::WAIT_P99 | metric::WAIT_MAX if is_starving => {
                Some(starvation(ios_of_jobs, least_share))
            }
            _ => None,
        };
        row.note = note.unwrap_or_default();
    }
}

/// Adds what is true in real time alone.
pub(super) fn add_of_real_time(rows: &mut [Row]) {
    for row in rows {
        if row.metric == metric::SWITCHES && row.published.is_some() {
            row.note = String::from(
                "measured: all voluntary switches of job threads, two for each sleep; the \
                 published figure counts all switches of that machine, a worker's included, which \
                 the library does not have",
            );
        } else if row.metric == metric::LEAST_SHARE && row.policy == "fair" && row.value < 0.9 {
            row.note = String::from(
                "a job's reads come one after another, once in a round of all 1024; the run saw \
                 few rounds, and some jobs one fewer (in virtual time, 35 rounds)",
            );
        } else if row.metric == metric::IOPS && row.is_over() && !row.note.starts_with("artefact") {
            row.note = String::from(
                "real time: how soon a woken thread runs, and how many tags are gone by then, \
                 depends on this machine's processors and on what else they do",
            );
        }
    }
}

fn of_iops(row: &Row, table: &Tags) -> Option<String> {
    let published = row.published?;
    if table.is_artefact(published) {
        return Some(String::from(
            "artefact: the published figure is more than the device can do; it is a sum of rates, \
             of each job over its own time, while starved jobs only begin when others have ended",
        ));
    }
    if !row.is_over() {
        let is_fitted = table.device == "hdd" && row.policy == "batch" && row.x > 1;
        return is_fitted.then(|| FITTED_DISK.to_owned());
    }
    Some(match (table.block_bytes, row.x) {
        (4096, 1) => String::from(
            "one thread is reckoned at 2.5 us per read, as the rows of 1 job have it; how its \
             time depends on depth and device is not modelled",
        ),
        (4096, _) => String::from(
            "published rows of many jobs lose up to 5 % on 72 processors that many more threads \
             share; here each thread has a processor",
        ),
        _ => String::from("over the bound, and why is not known"),
    })
}

/// How far context switches may be off without a word.
const SWITCHES_OFF: f64 = 0.25;

fn of_switches(row: &Row, table: &Tags, is_starving: bool) -> Option<String> {
    let published = row.published?;
    if (row.value / published - 1.0).abs() <= SWITCHES_OFF {
        return None;
    }
    Some(String::from(match (table.device, row.policy, is_starving) {
        (_, "stash", true) => {
            "few or none are woken, since those that run take the tags; the published figure is \
             the rest of the machine's switches"
        }
        (_, _, _) if row.x == 1 || row.policy == "stash" => {
            "the published figure counts all switches of that machine, its background of 1000 to \
             3300 per second included; compare differences"
        }
        ("nvme", ..) => {
            "that kernel has eight wait lines, and with few jobs finds fewer than a batch in one; \
             here there is one line"
        }
        _ => {
            "that kernel's worker ran for every sleep, it seems; here only for a thread that \
             sleeps with requests in its plug"
        }
    }))
}

fn starvation(ios_of_jobs: &[u64], least_share: f64) -> String {
    let nr_jobs = ios_of_jobs.len();
    let got = match ios_of_jobs.iter().filter(|&&nr| nr == 0).count() {
        0 => format!("the least served of {nr_jobs} jobs got {least_share:.2} of the mean"),
        nr => format!("{nr} of {nr_jobs} jobs completed nothing"),
    };
    format!("starvation: {got}; those that run take freed tags before those that sleep")
}

#[cfg(test)]
mod tests {
    use super::super::published::{SMALL, TAGS};
    use super::super::rows::sample;
    use super::*;

    #[test]
    fn what_is_over_its_bound_has_a_reason_and_what_is_not_has_none() {
        let mut rows = [sample(), Row { value: 94.0, ..sample() }];
        add(&mut rows, &TAGS[0], &[1], 1.0);
        assert_eq!(rows[0].note, FITTED_DISK);
        assert!(!rows[1].note.is_empty());
    }

    #[test]
    fn rows_that_the_disk_was_fitted_to_say_so() {
        let mut rows = [sample(), Row { x: 1, ..sample() }, Row { policy: "stash", ..sample() }];
        add(&mut rows, &TAGS[0], &[1], 1.0);
        assert_eq!(rows.map(|row| row.note), [FITTED_DISK, "", ""]);
    }

    #[test]
    fn a_figure_beyond_the_device_is_called_so() {
        let row = Row { published: Some(591_000.0), value: 197_980.0, ..sample() };
        let mut rows = [row];
        add(&mut rows, &SMALL[1], &[1], 1.0);
        assert!(rows[0].note.starts_with("artefact: "), "{}", rows[0].note);
    }

    #[test]
    fn starvation_is_seen_in_the_index() {
        let jain = Row { metric: metric::JAIN, value: 0.5, published: None, ..sample() };
        let mut rows = [jain];
        add(&mut rows, &TAGS[0], &[5, 0, 7, 0], 0.0);
        assert!(
            rows[0].note.starts_with("starvation: 2 of 4 jobs completed nothing"),
            "{}",
            rows[0].note
        );
    }
}
