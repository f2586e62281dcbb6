//! Bugs in the limits and weights of owners.

use super::{Bug, Edit, Test};

const BUCKET: &str = "crates/forebay-core/src/owner/bucket.rs";
const SETTING: &str = "crates/forebay-core/src/owner/bucket/setting.rs";

const fn unit(name: &'static str) -> Test {
    Test::unit("forebay-core", name)
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "bucket-forgets-debt",
        what: "a cost beyond the level of a bucket is not charged",
        edits: &[Edit {
            file: BUCKET,
            from: "let next = refilled.wrapping_sub(level).wrapping_add(cost);",
            to: "let next = refilled.wrapping_sub(level).wrapping_add(cost.min(level.max(1)));",
        }],
        test: unit("owner::bucket::tests::no_window_has_more_than_burst_rate_and_one_io"),
        says: "",
    },
    Bug {
        name: "bucket-without-burst-limit",
        what: "the credit of an idle bucket exceeds its burst",
        edits: &[Edit {
            file: BUCKET,
            from: "let level = refilled.wrapping_sub(spent).min(setting.burst);",
            to: "let level = refilled.wrapping_sub(spent);",
        }],
        test: unit("owner::bucket::tests::no_window_has_more_than_burst_rate_and_one_io"),
        says: "",
    },
    Bug {
        name: "bucket-refunds-half",
        what: "a refund takes back less than the charge",
        edits: &[Edit {
            file: BUCKET,
            from: "self.spent.fetch_sub(charged.0, Ordering::Relaxed);",
            to: "self.spent.fetch_sub(charged.0 / 2, Ordering::Relaxed);",
        }],
        test: Test::core_model(
            "owner::bucket::models::refund_beside_a_charge_leaves_that_charge_only",
        ),
        says: "",
    },
    Bug {
        name: "bucket-forgets-ns",
        what: "a bucket gets nothing for the part of a second",
        edits: &[Edit {
            file: SETTING,
            from: "let of_ns = per_ns * ns + rest * ns / NS_PER_S;",
            to: "let of_ns = per_ns * ns;",
        }],
        test: unit("owner::bucket::tests::level_is_within_one_unit_of_the_exact_one"),
        says: "",
    },
    Bug {
        name: "setting-of-two-changes",
        what: "a reader of a bucket's setting does not check for a change in between",
        edits: &[Edit { file: SETTING, from: "if after == before {", to: "if after >= before {" }],
        test: Test::core_model("owner::bucket::models::reader_gets_the_numbers_of_one_change"),
        says: "a mixture of two settings",
    },
];
