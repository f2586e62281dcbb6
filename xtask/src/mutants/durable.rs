//! Memory orderings of durable points and of retries, one entry for each.

use super::table::mutant;
use super::{Mutant, Unseen};

const DURABILITY: &str = "durability.rs";
const COUNTS: &str = "retry/counts.rs";
const RETRIES: &str = "retry/mod.rs";

/// Models.
const WRITE_BEFORE_FLUSH: &str = "durability::durable_write_completed_before_its_flush";
const END_OF_FLUSH: &str = "durability::thread_that_sees_a_durable_point_sees_the_end_of_its_flush";
const IN_FLIGHT: &str = "durability::write_in_flight_when_a_flush_fails_is_lost";
const HIDDEN_LOSS: &str =
    "durability::an_acknowledgement_does_not_hide_a_loss_that_it_has_not_seen";
const REPLACED: &str = "durability::loss_counts_while_its_record_is_replaced";
const ACKNOWLEDGED: &str =
    "durability::models::wait_after_an_acknowledgement_begins_after_its_loss";
const EXCLUDE: &str =
    "retry::models::retry_and_overlapping_write_of_another_context_exclude_each_other";
const UNCOUNTED: &str = "retry::models::retry_and_write_of_an_uncounted_disk_exclude_each_other";
const UNCOUNTED_ENDS: &str = "retry::models::moment_after_an_uncounted_disk_comes_after_its_writes";
const MOMENT: &str = "retry::models::moment_after_a_write_comes_after_its_issue";
const NEXT_OWNER: &str = "retry::models::count_continues_with_its_next_owner";
const TWO_RETRIES: &str = "retry::models::one_of_two_overlapping_retries_sees_the_other";
const RANGE_GONE: &str = "retry::models::range_that_is_gone_shows_the_effects_of_its_retries";
const QUARANTINE: &str = "retry::models::range_in_quarantine_is_seen_with_its_count";
const OWN_COUNT: &str = "retry::models::range_in_quarantine_is_seen_with_its_own_count";
const LEAVES: &str = "retry::models::range_that_leaves_quarantine_shows_the_late_effects";

const CHECK: &str = "\
        let acknowledged = self.nr_acknowledged.load(Ordering::Acquire);
        self.check_since";
const IN_DOUBT: &str = "\
        let acknowledged = self.nr_acknowledged.load(Ordering::Acquire);
        let losses = remembered_losses(acknowledged, self.nr_losses.load(Ordering::Acquire));";
const DRAW: &str = "self.point.fetch_add(1, Ordering::AcqRel) + 1";
const END_OF_LOSS: &str = "self.point.fetch_add(0, Ordering::AcqRel)";
const FLUSHED: &str = "self.durable.fetch_max(point, Ordering::AcqRel);";
const ACKNOWLEDGE: &str = "self.nr_acknowledged.fetch_max(nr_losses, Ordering::AcqRel);";

const TAKE_COUNT: &str = "let order = (Ordering::Acquire, Ordering::Relaxed);";
const OPEN_UNCOUNTED: &str = "\
        // This replaces the fence of each write.
        fence(Ordering::SeqCst);";
const COUNT_WRITE: &str = "\
            nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            fence(Ordering::SeqCst);";

const ENTERED: &str = "\
        // If two threads enter overlapping ranges, at least one sees the other's range.
        fence(Ordering::SeqCst);";
const LEAVE: &str = "\
        self.ranges[usize::from(slot.0)].1.store(0, Ordering::Release);
        self.nr.fetch_sub(1, Ordering::Release);";
const RELEASE: &str = "\
    pub(crate) fn release(&self) {
        self.nr.fetch_sub(1, Ordering::Release);";

pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        DURABILITY,
        "self.point.load(Ordering::Acquire)",
        "self.point.load(Ordering::Relaxed)",
        WRITE_BEFORE_FLUSH,
    ),
    mutant(
        DURABILITY,
        "self.durable.load(Ordering::Acquire)",
        "self.durable.load(Ordering::Relaxed)",
        END_OF_FLUSH,
    ),
    mutant(DURABILITY, DRAW, "self.point.fetch_add(1, Ordering::Acquire) + 1", WRITE_BEFORE_FLUSH),
    mutant(DURABILITY, DRAW, "self.point.fetch_add(1, Ordering::Release) + 1", IN_FLIGHT),
    mutant(DURABILITY, FLUSHED, "self.durable.fetch_max(point, Ordering::Acquire);", END_OF_FLUSH),
    mutant(DURABILITY, END_OF_LOSS, "self.point.fetch_add(0, Ordering::Acquire)", IN_FLIGHT),
    mutant(
        DURABILITY,
        "loss.after.store(after, Ordering::Release)",
        "loss.after.store(after, Ordering::Relaxed)",
        REPLACED,
    ),
    mutant(
        DURABILITY,
        "loss.number.store(number, Ordering::Release)",
        "loss.number.store(number, Ordering::Relaxed)",
        HIDDEN_LOSS,
    ),
    mutant(
        DURABILITY,
        ACKNOWLEDGE,
        "self.nr_acknowledged.fetch_max(nr_losses, Ordering::Acquire);",
        ACKNOWLEDGED,
    ),
    mutant(
        DURABILITY,
        CHECK,
        "let acknowledged = self.nr_acknowledged.load(Ordering::Relaxed);\n        \
         self.check_since",
        ACKNOWLEDGED,
    ),
    mutant(
        DURABILITY,
        "loss.number.load(Ordering::Acquire)",
        "loss.number.load(Ordering::Relaxed)",
        HIDDEN_LOSS,
    ),
    mutant(
        DURABILITY,
        "loss.after.load(Ordering::Acquire)",
        "loss.after.load(Ordering::Relaxed)",
        REPLACED,
    ),
    mutant(COUNTS, TAKE_COUNT, "let order = (Ordering::Relaxed, Ordering::Relaxed);", NEXT_OWNER),
    mutant(COUNTS, OPEN_UNCOUNTED, "// No fence.", UNCOUNTED),
    mutant(COUNTS, OPEN_UNCOUNTED, "fence(Ordering::AcqRel);", UNCOUNTED),
    mutant(
        COUNTS,
        "self.uncounted.fetch_sub(UNCOUNTED_OPEN, Ordering::Release)",
        "self.uncounted.fetch_sub(UNCOUNTED_OPEN, Ordering::Relaxed)",
        UNCOUNTED_ENDS,
    ),
    mutant(
        COUNTS,
        "count.is_taken.store(0, Ordering::Release)",
        "count.is_taken.store(0, Ordering::Relaxed)",
        NEXT_OWNER,
    ),
    mutant(
        COUNTS,
        COUNT_WRITE,
        "nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Relaxed);",
        EXCLUDE,
    ),
    mutant(
        COUNTS,
        COUNT_WRITE,
        "nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Relaxed); fence(Ordering::AcqRel);",
        EXCLUDE,
    ),
    mutant(
        COUNTS,
        "nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Release)",
        "nr.store(nr.load(Ordering::Relaxed) + 1, Ordering::Relaxed)",
        MOMENT,
    ),
    mutant(
        COUNTS,
        "self.uncounted.load(Ordering::Acquire)",
        "self.uncounted.load(Ordering::Relaxed)",
        UNCOUNTED_ENDS,
    ),
    mutant(COUNTS, "count.nr.load(Ordering::Acquire)", "count.nr.load(Ordering::Relaxed)", MOMENT),
    mutant(RETRIES, ENTERED, "// No fence.", TWO_RETRIES),
    mutant(RETRIES, ENTERED, "fence(Ordering::AcqRel);", TWO_RETRIES),
    mutant(
        RETRIES,
        LEAVE,
        "self.ranges[usize::from(slot.0)].1.store(0, Ordering::Relaxed);\n        \
         self.nr.fetch_sub(1, Ordering::Release);",
        RANGE_GONE,
    ),
    mutant(
        RETRIES,
        LEAVE,
        "self.ranges[usize::from(slot.0)].1.store(0, Ordering::Release);\n        \
         self.nr.fetch_sub(1, Ordering::Relaxed);",
        RANGE_GONE,
    ),
    mutant(
        RETRIES,
        "self.nr_quarantined.fetch_add(1, Ordering::Release)",
        "self.nr_quarantined.fetch_add(1, Ordering::Relaxed)",
        OWN_COUNT,
    ),
    mutant(
        RETRIES,
        "self.nr.fetch_add(1, Ordering::Release)",
        "self.nr.fetch_add(1, Ordering::Relaxed)",
        QUARANTINE,
    ),
    mutant(
        RETRIES,
        RELEASE,
        "pub(crate) fn release(&self) {\n        self.nr.fetch_sub(1, Ordering::Relaxed);",
        LEAVES,
    ),
    mutant(
        RETRIES,
        "self.nr_quarantined.fetch_sub(1, Ordering::Release)",
        "self.nr_quarantined.fetch_sub(1, Ordering::Relaxed)",
        LEAVES,
    ),
    mutant(
        RETRIES,
        "self.nr_quarantined.load(Ordering::Acquire)",
        "self.nr_quarantined.load(Ordering::Relaxed)",
        OWN_COUNT,
    ),
    mutant(
        RETRIES,
        "self.nr.load(Ordering::Acquire) > 0",
        "self.nr.load(Ordering::Relaxed) > 0",
        RANGE_GONE,
    ),
    mutant(
        RETRIES,
        "(to.load(Ordering::Acquire), from",
        "(to.load(Ordering::Relaxed), from",
        RANGE_GONE,
    ),
];

/// Orderings whose weakening no model detects.
pub(super) const UNSEEN: &[Unseen] = &[
    Unseen {
        file: DURABILITY,
        from: FLUSHED,
        why: "that it acquires: the thread reads nothing after it",
    },
    Unseen {
        file: DURABILITY,
        from: END_OF_LOSS,
        why: "that it acquires: the thread only writes the record of the loss after it",
    },
    Unseen {
        file: DURABILITY,
        from: ACKNOWLEDGE,
        why: "that it acquires: the thread reads nothing after it",
    },
    Unseen {
        file: DURABILITY,
        from: IN_DOUBT,
        why: "a thread that does not see all of a loss records one of its own",
    },
    Unseen {
        file: DURABILITY,
        from: "self.nr_failures.load(Ordering::Acquire)",
        why: "a thread that sees the failure and not its loss records a loss of its own",
    },
    Unseen {
        file: DURABILITY,
        from: "self.nr_failures.fetch_add(1, Ordering::AcqRel)",
        why: "the change of `point` that follows it releases it, too",
    },
    Unseen {
        file: DURABILITY,
        from: "self.nr_losses.fetch_add(1, Ordering::AcqRel)",
        why: "the stores into the record release it; without its record a loss counts as \
              one of all writes",
    },
    Unseen {
        file: DURABILITY,
        from: "loss.number.store(0, Ordering::Release)",
        why: "a reader that finds 0 uses nothing of the record",
    },
    Unseen {
        file: DURABILITY,
        from: "loss.up_to.store(up_to, Ordering::Release)",
        why: "a newer end only widens the range, and the number that follows releases it",
    },
    Unseen {
        file: DURABILITY,
        from: "self.lost_since(self.nr_acknowledged.load(Ordering::Acquire)).0",
        why: "a count of losses that is older than the acknowledgement leaves none to report",
    },
    Unseen {
        file: DURABILITY,
        from: "self.lost_since(self.nr_acknowledged.load(Ordering::Acquire));",
        why: "as in `lost`",
    },
    Unseen {
        file: DURABILITY,
        from: "let now = self.nr_losses.load(Ordering::Acquire);\n        let is_lost",
        why: "the number of each record acquires it",
    },
    Unseen {
        file: DURABILITY,
        from: "let now = self.nr_losses.load(Ordering::Acquire);\n        let losses",
        why: "as in `check_since`",
    },
    Unseen {
        file: DURABILITY,
        from: "loss.up_to.load(Ordering::Acquire)",
        why: "a newer end only widens the range",
    },
    Unseen {
        file: DURABILITY,
        from: "self.nr_losses.load(Ordering::Acquire) - number",
        why: "the load of `after` has acquired",
    },
    Unseen {
        file: COUNTS,
        from: "self.nr_ever_used.fetch_max(nr, Ordering::SeqCst)",
        why: "the fence of the first counted write follows it",
    },
    Unseen {
        file: COUNTS,
        from: "self.uncounted.fetch_add(UNCOUNTED_OPEN + UNCOUNTED_EVER, Ordering::SeqCst)",
        why: "the fence after it",
    },
    Unseen {
        file: COUNTS,
        from: "self.nr_ever_used.load(Ordering::Acquire)",
        why: "the fence of `was_overtaken` precedes it; a moment with an older value only \
              prevents a retry",
    },
    Unseen {
        file: RETRIES,
        from: "self.nr.fetch_add(1, Ordering::SeqCst)",
        why: "the fence at the end of `enter`",
    },
    Unseen {
        file: RETRIES,
        from: "compare_exchange(0, end, Ordering::SeqCst, Ordering::Relaxed)",
        why: "the fence at the end of `enter`; the word keeps all that the last owner released",
    },
    Unseen {
        file: RETRIES,
        from: "self.nr.fetch_sub(1, Ordering::SeqCst)",
        why: "no range was entered",
    },
    Unseen {
        file: RETRIES,
        from: "self.ranges[at].0.store(start, Ordering::SeqCst)",
        why: "the fence after it; until it is seen, the range seems to begin at 0",
    },
    Unseen {
        file: RETRIES,
        from: "self.ranges[usize::from(slot.0)].0.store(0, Ordering::Release)",
        why: "a range that begins at 0 holds back more; the end that follows releases the effects",
    },
    Unseen {
        file: RETRIES,
        from: "fence(Ordering::SeqCst);\n        if plants!(RetryOvertaken)",
        why: "`enter` ends with a fence as well",
    },
    Unseen {
        file: RETRIES,
        from: "from.load(Ordering::Acquire))",
        why: "a start that is too old is 0; the end before it has acquired the effects",
    },
];
