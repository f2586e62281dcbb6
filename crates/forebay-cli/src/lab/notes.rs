//! Notes on figures: the reason for a deviation beyond its bound, or for a surprising value.

use super::published::Tags;
use super::rows::{Row, metric};

/// The note on rows of `run` without injected costs.
pub(super) const AS_IT_IS: &str =
    "as it is: the layer's own turns, without a worker thread; no cost is injected";

/// The note on rows of `run` with the published cost.
pub(super) const MODELLED: &str = "modelled, and a fit by construction: four constants that were \
     not published (64 tags, 2.6 us to queue pending work again, 6 us until a run begins, 80 ns \
     for each request that it examines) were chosen for these four points; the cost is injected \
     in virtual time";

/// The note on reads per second of several jobs on `hdd`, where threads wait for tags.
const FITTED_DISK: &str = "a fit in part: the row of 1 job gives the sum of the disk's constants; \
     its division (32 commands, 1.9 ms, 1.6 ms for 256 KiB) was chosen to match these rows";

/// The same on the disk with rotational latency.
const FITTED_ROTATION: &str = "a fit in part: 7200 turns per minute are known; the shortest \
     seek, the longest one and the rate were chosen to match these rows";

/// The note on the mean wait if reads wait for tags.
const LITTLE: &str = "by Little's law, the mean time of a read in the layer; a bound of twice this \
     compares the longest wait with the mean";

/// The note on rows of `run` in real time.
pub(super) const MEASURED: &str =
    "measured on this machine, without injected costs; nothing was published: medians of 5 pairs";

/// Returns the note on gains of `run` in real time, percent, in the order of the pairs. Their
/// differences show how reliable the median is.
pub(super) fn measured_gains(gains: &[f64]) -> String {
    // Adding 0 makes -0 positive.
    let gains: Vec<_> =
        gains.iter().map(|gain| format!("{:+.1}", (gain * 10.0).round() / 10.0 + 0.0)).collect();
    format!("{MEASURED}; the pairs: {} %", gains.join(", "))
}

/// Below this index some jobs starve.
const JAIN_STARVES: f64 = 0.9;

/// Adds notes to the rows of one cell. `ios_of_jobs` has the completed I/Os of each job,
/// `least_share` is the smallest of them as a part of the mean.
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

/// Adds notes that apply to real time only.
pub(super) fn add_of_real_time(rows: &mut [Row]) {
    for row in rows {
        if row.metric == metric::SWITCHES && row.published.is_some() {
            row.note = String::from(
                "measured: all voluntary switches of job threads, two for each sleep; the \
                 published figure counts all switches of that machine, also those of a worker \
                 thread, which the library does not have",
            );
        } else if row.metric == metric::LEAST_SHARE && row.policy == "fair" && row.value < 0.9 {
            row.note = String::from(
                "reads of a job follow each other, once in a round of all 1024 reads; the run had \
                 few rounds, and some jobs had one fewer (in virtual time, 35 rounds)",
            );
        } else if row.metric == metric::IOPS && row.is_over() && !row.note.starts_with("artefact") {
            row.note = String::from(
                "real time: how soon a woken thread runs, and how many tags are taken by then, \
                 depends on the processors of this machine and on their other load",
            );
        }
    }
}

fn of_iops(row: &Row, table: &Tags) -> Option<String> {
    let published = row.published?;
    if table.is_artefact(published) {
        return Some(String::from(
            "artefact: the published figure exceeds what the device can do; it is a sum of rates, \
             each over the time of its job, while starved jobs start only when others have ended",
        ));
    }
    if !row.is_over() {
        let is_fitted = table.device == "hdd" && row.policy == "batch" && row.x > 1;
        let note = if table.constants.is_empty() { FITTED_DISK } else { FITTED_ROTATION };
        return is_fitted.then(|| note.to_owned());
    }
    Some(match (table.block_bytes, row.x) {
        (4096, 1) => String::from(
            "one thread takes 2.5 us per read, as in the rows of 1 job; the dependence of its time \
             on depth and device is not modelled",
        ),
        (4096, _) => String::from(
            "published rows of many jobs lose up to 5 %, because many more threads share 72 \
             processors; here each thread has a processor",
        ),
        _ => String::from("over the bound, for an unknown reason"),
    })
}

/// The deviation of context switches that needs no note.
const SWITCHES_OFF: f64 = 0.25;

fn of_switches(row: &Row, table: &Tags, is_starving: bool) -> Option<String> {
    let published = row.published?;
    if (row.value / published - 1.0).abs() <= SWITCHES_OFF {
        return None;
    }
    Some(String::from(match (table.device, row.policy, is_starving) {
        (_, "stash", true) => {
            "few or no threads are woken for tags, because running threads take them; most sleeps \
             here are for completions, and the published figure includes the rest of the machine"
        }
        (_, _, _) if row.x == 1 || row.policy == "stash" => {
            "the published figure counts all switches of that machine, including 1000 to 3300 per \
             second of background load; compare differences"
        }
        ("nvme", ..) => {
            "that kernel has eight wait queues, and with few jobs one of them has fewer threads \
             than a batch; here there is one queue"
        }
        _ => {
            "that kernel's worker probably ran for every sleep; here only for a thread that sleeps \
             with requests in its plug"
        }
    }))
}

fn starvation(ios_of_jobs: &[u64], least_share: f64) -> String {
    let nr_jobs = ios_of_jobs.len();
    let got = match ios_of_jobs.iter().filter(|&&nr| nr == 0).count() {
        0 => format!("the slowest of {nr_jobs} jobs got {least_share:.2} of the mean"),
        nr => format!("{nr} of {nr_jobs} jobs completed nothing"),
    };
    format!("starvation: {got}; running threads take freed tags before sleeping ones")
}

#[cfg(test)]
mod tests {
    use super::super::published::{SMALL, TAGS};
    use super::super::rows::sample;
    use super::*;

    #[test]
    fn figures_have_a_note_only_if_over_their_bound() {
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
