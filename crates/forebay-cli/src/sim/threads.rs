//! The threads of a recorded load, in reports.

use forebay_fio::histogram::RANGE_NS;
use forebay_sim::RecordedLoad;
use serde_json::{Value, json};

use super::rows::Row;
use super::run::{Latencies, Run};
use crate::table;

/// Returns the load in words.
pub(super) fn about(load: &RecordedLoad) -> String {
    let (nr, nr_recorded) = (load.names().len(), load.nr_recorded());
    let threads = match nr {
        1 => "1 thread".to_owned(),
        _ if nr < nr_recorded => format!("{nr} threads, which {nr_recorded} recorded ones share"),
        _ => format!("{nr} threads"),
    };
    let when = match load.is_timed() {
        true => format!("the last one due at {:.3} ms", load.last_ns() as f64 / 1e6),
        false => "without times".to_owned(),
    };
    format!("{} I/Os of {threads}, {when}", load.nr_steps())
}

/// Returns a note about percentiles that are too low, if there are some.
pub(super) fn note_of_long_waits(rows: &[Row<'_>]) -> Option<String> {
    let mut runs =
        rows.iter().flat_map(|row| &row.runs).filter(|run| run.load.recorded().is_some());
    let is_long = |run: &Run<'_>| run.has_times() && run.latencies().max >= RANGE_NS;
    runs.any(is_long).then(|| {
        let range_s = RANGE_NS / 1_000_000_000;
        format!(
            "the device is overloaded: percentiles count a wait of more than {range_s} s as \
             {range_s} s; see max us, or choose a lower --replay-time-scale"
        )
    })
}

/// Returns a table of the threads, if there are several.
pub(super) fn table(load: &RecordedLoad, run: &Run<'_>) -> String {
    if load.names().len() < 2 || !run.has_times() {
        return String::new();
    }
    let heading = ["thread", "I/Os", "p50 us", "p99 us", "late p99 us", "switches"];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    lines.extend(threads(load, run).map(|OfThread { name, latency, late, nr_switches }| {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        let nr = latency.nr.to_string();
        let late = late.map_or("-".to_owned(), |late| us(late.p99));
        let times = [us(latency.p50), us(latency.p99), late];
        [&[name.to_owned(), nr][..], &times, &[nr_switches.to_string()]].concat()
    }));
    table::aligned(&lines, "  ")
}

/// Returns the keys of a run of the load that other loads do not have.
pub(super) fn json(load: &RecordedLoad, run: &Run<'_>) -> [(String, Value); 2] {
    let latencies = |it: Latencies| it.json();
    let of_thread = |OfThread { name, latency, late, nr_switches }: OfThread<'_>| {
        json!({
            "name": name,
            "latency_ns": latencies(latency),
            "late_ns": late.map(latencies),
            "voluntary_switches": nr_switches,
        })
    };
    let threads: Vec<_> = threads(load, run).map(of_thread).collect();
    let late = run.lateness().map(latencies);
    let is_shown = run.has_times();
    let timed = |value: Value| if is_shown { value } else { Value::Null };
    [("late_ns".to_owned(), timed(late.into())), ("threads".to_owned(), timed(threads.into()))]
}

/// The figures of a thread.
struct OfThread<'a> {
    name: &'a str,
    latency: Latencies,
    /// `None` if the I/Os have no times.
    late: Option<Latencies>,
    nr_switches: u64,
}

/// Returns the figures of each thread, in the order of the recording.
fn threads<'a>(load: &'a RecordedLoad, run: &Run<'a>) -> impl Iterator<Item = OfThread<'a>> {
    let mut clones: Vec<_> = run.summary.tally.clones.iter().collect();
    clones.sort_by_key(|clone| clone.job);
    load.names().zip(clones).map(|(name, clone)| OfThread {
        name,
        latency: Latencies::of(&clone.latency()),
        late: clone.lateness.as_deref().map(Latencies::of),
        nr_switches: clone.stats.usage.voluntary_switches,
    })
}
