//! Notes about settings that had no effect on the load, although they have one on the device.
//!
//! Such a setting is no error: the figures are right, and another load may need it. It is not
//! ignored silently either.

use forebay::{KNOBS, Knob};
use forebay_sim::{JobDisk, Summary};

/// Kinds of I/O that only some loads submit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// I/O that takes reserved tags.
    pub(super) has_reserved: bool,
    /// Background I/O.
    pub(super) has_background: bool,
    /// I/O with another priority than the usual one.
    pub(super) has_priorities: bool,
    /// I/O of several priority classes.
    pub(super) has_classes: bool,
}

/// Events of one or more runs, without which some settings have no effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    nr_flushes: u64,
    nr_tag_waits: u64,
    /// The number of requests that each fault rule changed.
    faults: Vec<u64>,
}

impl Events {
    /// Adds a run.
    pub(super) fn add(&mut self, run: &Summary) {
        self.nr_flushes += run.stats.flushes_asked;
        self.nr_tag_waits += run.stats.tag_waits;
        self.faults.resize(run.faults.len(), 0);
        self.faults.iter_mut().zip(&run.faults).for_each(|(sum, (_, nr))| *sum += nr);
    }
}

/// Returns the notes about a disk, on which the load ran with these events.
pub(super) fn of(disk: &JobDisk, kinds: Kinds, events: &Events) -> Vec<String> {
    let mut default = JobDisk::new(disk.device.clone());
    // Other defaults follow these.
    default.policy.queue_depth = disk.policy.queue_depth;
    default.policy.nr_requests = disk.policy.nr_requests;
    default.policy.scheduler = disk.policy.scheduler;
    let mut notes = Vec::new();
    for knob in &KNOBS {
        let (value, of_device) = (value(disk, knob), value(&default, knob));
        if value == of_device {
            continue;
        }
        if let Some(why) = idle(knob.key, kinds, events) {
            notes.push(format!("{}={value} {why}", knob.key));
        }
    }
    let (kib, max_kib) = (disk.max_sectors.map(|max| max / 2), disk.largest_request() / 2);
    if kinds.has_priorities && !disk.policy.scheduler.orders_by_class() {
        notes.push(
            "the I/O priorities changed no order: only scheduler=mq-deadline and scheduler=bfq \
             order by them"
                .to_owned(),
        );
    }
    notes.extend(kib.filter(|&kib| kib > max_kib).map(|kib| {
        format!(
            "max_sectors_kb={kib} is limited to {max_kib} KiB, the max_hw_sectors_kb of the device"
        )
    }));
    let unmatched = disk.faults.iter().zip(&events.faults).filter(|(_, nr)| **nr == 0);
    notes.extend(unmatched.map(|(rule, _)| {
        format!("the fault rule {} had no effect: it matched no request", rule.text())
    }));
    notes
}

/// Returns the notes of several disks: a note of all of them once, others after the disk's name,
/// unless the note begins with it.
pub(super) fn merged(of_disks: &[(&str, Vec<String>)]) -> Vec<String> {
    let is_of_all = |note: &&String| of_disks.iter().all(|(_, notes)| notes.contains(note));
    let Some((_, first)) = of_disks.first() else { return Vec::new() };
    let mut merged: Vec<_> = first.iter().filter(is_of_all).cloned().collect();
    for (name, notes) in of_disks {
        let own = notes.iter().filter(|note| !is_of_all(note));
        merged.extend(own.map(|note| match note.starts_with(&format!("{name} ")) {
            true => note.clone(),
            false => format!("{name}: {note}"),
        }));
    }
    merged
}

fn value(disk: &JobDisk, knob: &Knob) -> String {
    match knob.key {
        "wake" => disk.wake().name().to_owned(),
        _ => knob.get(&disk.policy),
    }
}

/// Returns why a setting had no effect with these events. `None` if it may have had one.
fn idle(key: &str, kinds: Kinds, events: &Events) -> Option<&'static str> {
    let no_tag_wait = events.nr_tag_waits == 0;
    match key {
        // With flushes it may have had an effect even if none was elided: it changes their order.
        "elide" | "flush" | "flush_pending_ms" if events.nr_flushes == 0 => {
            Some("had no effect: the load has no flushes")
        }
        "prio_aging_expire" if !kinds.has_classes => {
            Some("had no effect: the load has one priority class")
        }
        "tag_need" if no_tag_wait => Some("had no effect: no I/O waited for a tag"),
        // It also decides whether split I/Os gather tags.
        "async_depth" if !kinds.has_background && no_tag_wait => {
            Some("had no effect: the load has no background I/O, and no I/O waited for a tag")
        }
        "reserved_tags" if !kinds.has_reserved && no_tag_wait => {
            Some("had no effect: the load has no reserved I/O, and no I/O waited for a tag")
        }
        "reserved_tags" if !kinds.has_reserved => Some(
            "only leaves fewer tags: the load has no reserved I/O, so these tags were never used; \
             to limit the tags, use nr_requests",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_of_every_disk_is_given_once_and_others_name_their_disk() {
        let notes = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let of_disks = [("(base)", notes(&["a"])), ("wake=batch", notes(&["b", "a"]))];
        assert_eq!(merged(&of_disks), ["a", "wake=batch: b"]);
        assert_eq!(merged(&[("(base)", notes(&["a", "b"]))]), ["a", "b"]);
        let of_itself = [("(base)", notes(&[])), ("elide=on", notes(&["elide=on had no effect"]))];
        assert_eq!(merged(&of_itself), ["elide=on had no effect"]);
        assert!(merged(&[]).is_empty());
    }
}
