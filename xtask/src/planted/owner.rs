//! Bugs in the limits and weights of owners. `mutants` weakens the memory orderings of the limits.

use super::{Bug, Edit, Test};

const BUCKET: &str = "crates/forebay-core/src/owner/bucket.rs";
const SETTING: &str = "crates/forebay-core/src/owner/bucket/setting.rs";

const TREE: &str = "crates/forebay-core/src/owner/tree.rs";
const FAIR: &str = "crates/forebay-core/src/owner/fair.rs";
const GOAL: &str = "crates/forebay-core/src/owner/latency_goal.rs";
const PEERS: &str = "crates/forebay-core/src/owner/peers.rs";
const OUTSTANDING: &str = "crates/forebay-core/src/hctx/admission/outstanding.rs";
const HEAP: &str = "crates/forebay-core/src/owner/fair/heap.rs";

const fn unit(name: &'static str) -> Test {
    Test::unit("forebay-core", name)
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "bucket-forgets-debt",
        what: "a cost beyond the level of a bucket is not charged",
        edits: &[Edit {
            file: BUCKET,
            from: "let next = refilled.wrapping_sub(level).wrapping_add(charged.0);",
            to: "let next = refilled.wrapping_sub(level).wrapping_add(charged.0.min(1));",
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
        test: unit("owner::bucket::tests::no_window_has_more_than_burst_rate_and_one_io"),
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
        name: "refusal-keeps-charges",
        what: "an owner whose parent refuses an I/O gets no refund",
        edits: &[Edit { file: TREE, from: "                self.refund(charge);\n", to: "" }],
        test: unit("owner::tree::tests::parent_is_charged_exactly_the_started_io_of_its_children"),
        says: "",
    },
    Bug {
        name: "refund-of-first-level",
        what: "only the owner of a refused I/O gets a refund, and no owner above it",
        edits: &[Edit {
            file: TREE,
            from: "level = owner.parent.as_deref();\n        }\n    }",
            to: "level = None;\n        }\n    }",
        }],
        test: unit("owner::tree::tests::refusal_by_the_root_leaves_no_charge_below"),
        says: "",
    },
    Bug {
        name: "refund-of-all-rates",
        what: "a refund includes rates that were not charged",
        edits: &[Edit {
            file: TREE,
            from: "for which in Which::of_set(rates) {",
            to: "for which in Which::ALL.into_iter().filter(|_| rates != 0) {",
        }],
        test: unit("owner::tree::tests::refund_takes_back_only_what_was_charged"),
        says: "",
    },
    Bug {
        name: "discard-is-not-limited",
        what: "discards do not count against the limits for writes",
        edits: &[Edit {
            file: "crates/forebay-core/src/owner/limits.rs",
            from: "Op::Write | Op::Discard | Op::WriteZeroes => {",
            to: "Op::Discard => both,\n            Op::Write | Op::WriteZeroes => {",
        }],
        test: unit("owner::limits::tests::flushes_are_free_and_discards_are_writes"),
        says: "",
    },
    Bug {
        name: "idle-owner-saves-credit",
        what: "an owner that was idle begins at its last finish tag",
        edits: &[Edit {
            file: FAIR,
            from: "let start = now.max(self.finish);",
            to: "let start = now.min(0).max(self.finish);",
        }],
        test: unit("owner::fair::tests::idle_owner_saves_no_credit_and_gets_its_share_at_once"),
        says: "",
    },
    Bug {
        name: "busy-owner-drops-debt",
        what: "an owner that was idle for a moment begins at the virtual time",
        edits: &[Edit {
            file: FAIR,
            from: "let start = now.max(self.finish);",
            to: "let start = now;",
        }],
        test: unit("owner::fair::tests::choices_are_those_of_the_naive_model"),
        says: "",
    },
    Bug {
        name: "streak-forgotten",
        what: "I/O that an owner starts while no other waits is not charged in the fair order",
        edits: &[Edit { file: FAIR, from: "self.streak.cost += cost;", to: "" }],
        test: unit("owner::fair::tests::io_that_passes_counts_as_if_it_had_been_queued"),
        says: "",
    },
    Bug {
        name: "weights-ignored",
        what: "each owner has the same weight",
        edits: &[Edit {
            file: FAIR,
            from: "let weight = u64::from(self.weight);",
            to: "let weight = u64::from(self.weight).min(1);",
        }],
        test: unit("owner::fair::tests::service_of_busy_owners_differs_by_an_io_of_each"),
        says: "",
    },
    Bug {
        name: "tags-drift",
        what: "the rest of a division by the weight is dropped",
        edits: &[Edit { file: FAIR, from: "self.rest = scaled % weight;", to: "self.rest = 0;" }],
        test: unit("owner::fair::tests::tags_of_a_busy_owner_are_exact_after_many_ios"),
        says: "",
    },
    Bug {
        name: "taken-node-leaves-gap",
        what: "the node that fills the place of a removed one is not moved up",
        edits: &[Edit {
            file: HEAP,
            from: "let place = sift_up(nodes, ready, place, moved);",
            to: "",
        }],
        test: unit("owner::fair::tests::removal_anywhere_keeps_the_order"),
        says: "",
    },
    Bug {
        name: "goal-of-itself",
        what: "an owner that misses its goal limits owners with the same goal, and itself",
        edits: &[Edit {
            file: GOAL,
            from: "if self.missed_ns < target_ns {",
            to: "if self.missed_ns <= target_ns {",
        }],
        test: unit("owner::latency_goal::tests::random_histories_agree_with_the_model"),
        says: "",
    },
    Bug {
        name: "goal-keeps-samples",
        what: "the I/Os of a window count in the next one too",
        edits: &[Edit {
            file: PEERS,
            from: "self.samples.swap(0, Ordering::Relaxed)",
            to: "self.samples.load(Ordering::Relaxed)",
        }],
        test: unit("owner::peers::tests::windows_that_pass_without_io_give_the_depth_back"),
        says: "",
    },
    Bug {
        name: "depth-of-children-ignored",
        what: "requests of children do not count for the depth of their parent",
        edits: &[Edit {
            file: OUTSTANDING,
            from: "            node.nr += 1;\n            at = node.parent;",
            to: "            node.nr += 1;\n            at = TOP;",
        }],
        test: Test::it(
            "forebay-core",
            "latency_goals::io_of_children_counts_for_the_goal_and_the_depth_of_their_parent",
        ),
        says: "",
    },
    Bug {
        name: "watched-io-stays-in-flight",
        what: "the end of an I/O does not count if no observer is left",
        edits: &[
            Edit {
                file: "crates/forebay-core/src/hctx/admission/owned.rs",
                from: "        if let Some(owner) = self.outstanding.owner(node) {",
                to: "        if let Some(owner) = self.outstanding.owner(node)\n            \
                 && owner.watched().is_watched(now)\n        {",
            },
            Edit {
                file: "crates/forebay-core/src/hctx/admission/owned.rs",
                from: "driver_ns: Option<u64>) {",
                to: "driver_ns: Option<u64>, now: u64) {",
            },
            Edit {
                file: "crates/forebay-core/src/hctx/admission/mod.rs",
                from: "owned.end_watched(node, total_ns, driver_ns);",
                to: "owned.end_watched(node, total_ns, driver_ns, now);",
            },
        ],
        test: Test::it(
            "forebay-core",
            "owner_activity::counts_are_those_of_io_that_started_under_an_observer",
        ),
        says: "",
    },
    Bug {
        name: "depth-exceeded",
        what: "one request more than the depth leaves",
        edits: &[Edit {
            file: OUTSTANDING,
            from: "own.depth().is_some_and(|depth| node.nr >= depth)",
            to: "own.depth().is_some_and(|depth| node.nr > depth)",
        }],
        test: Test::it("forebay-core", "latency_goals::owners_have_their_depth_in_flight"),
        says: "",
    },
];
