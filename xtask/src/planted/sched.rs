//! Bugs in the scheduler `bfq`: its slices, its shares, and its waits for readers.

use super::{Bug, Edit, Test};

const BUDGET: &str = "crates/forebay-core/src/sched/bfq/budget.rs";
const CLASS: &str = "crates/forebay-core/src/sched/bfq/class.rs";
const SCHEDULER: &str = "crates/forebay-core/src/sched/bfq.rs";
const SLICE: &str = "crates/forebay-core/src/sched/bfq/slice.rs";

const HISTORIES: &str = "sched::bfq::tests::random_histories_agree_with_the_model";
const SHARES: &str =
    "sched::bfq::tests::sequential_readers_share_the_bytes_by_weight_and_lose_few_to_seeks";

const fn unit(name: &'static str) -> Test {
    Test::unit("forebay-core", name)
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "bfq-ignores-weights",
        what: "all owners have the usual weight",
        edits: &[Edit {
            file: CLASS,
            from: "self.fair.set_weight(fair, owner.weight());",
            to: "self.fair.set_weight(fair, WEIGHT_DEFAULT);",
        }],
        test: unit(SHARES),
        says: "",
    },
    Bug {
        name: "bfq-awaits-no-reader",
        what: "the device does not wait for the next request of a reader",
        edits: &[Edit {
            file: SLICE,
            from: "let is_awaited = self.idle_ns > 0",
            to: "let is_awaited = false",
        }],
        test: unit(SHARES),
        says: "",
    },
    Bug {
        name: "bfq-awaits-for-ever",
        what: "the wait for the next request of a reader does not end",
        edits: &[Edit {
            file: SLICE,
            from: "queue.pattern.ended_ns().saturating_add(self.idle_ns)",
            to: "u64::MAX",
        }],
        test: unit(HISTORIES),
        says: "",
    },
    Bug {
        name: "bfq-without-budget",
        what: "a slice ends by its time only",
        edits: &[Edit {
            file: SLICE,
            from: "slice.bytes > 0 && (exceeds || is_late)",
            to: "slice.bytes > 0 && (exceeds && is_late || is_late)",
        }],
        test: unit(HISTORIES),
        says: "",
    },
    Bug {
        name: "bfq-loses-deadline",
        what: "a request that absorbs an older one keeps its own deadline",
        edits: &[Edit {
            file: SCHEDULER,
            from: "            kept.deadline_ns = gone.deadline_ns;\n",
            to: "",
        }],
        test: unit(HISTORIES),
        says: "",
    },
    Bug {
        name: "bfq-random-io-costs-bytes",
        what: "a slice that uses its time and not its budget costs its bytes",
        edits: &[Edit {
            file: BUDGET,
            from: "if is_slow { budget } else { bytes }",
            to: "if is_slow { bytes } else { bytes }",
        }],
        test: unit("sched::bfq::tests::random_reader_pays_for_its_time"),
        says: "",
    },
];
