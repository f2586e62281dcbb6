//! The events of scenarios in reports.

use forebay_sim::Reached;

/// The kinds of events that reports show: their names in [`Reached`] and in reports.
const SHOWN: [(&str, &str); 12] = [
    ("refusals", "refusals"),
    ("numbers of tags changed", "resizes"),
    ("gates opened", "gates reopened"),
    ("devices revived", "devices revived"),
    ("losses acknowledged", "losses acknowledged"),
    ("failed write-backs", "failed write-backs"),
    ("splits", "splits"),
    ("retries", "retries"),
    ("waits for tags", "waits for tags"),
    ("flushes joined", "flushes joined"),
    ("requests over their time limit", "timeouts"),
    ("devices given up", "devices given up"),
];

/// Returns the events of the report, and how often each happened.
pub(super) fn events(reached: &Reached) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    reached.counts().iter().filter_map(|(name, nr)| {
        let (_, shown) = SHOWN.iter().find(|(reached, _)| reached == name)?;
        Some((*shown, *nr))
    })
}
