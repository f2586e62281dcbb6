//! Bugs in the core's flush machine. Short histories in the simulator find each by the rule that it
//! breaks.

use super::{Bug, Edit, Test};

const TURN: &str = "crates/forebay-core/src/hctx/flush/turn.rs";

const HISTORIES: Test = Test::it("forebay-sim", "histories::");

const P2: &str = "broken rule: P2";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "flush-of-low-class-first",
        what: "a flush of a low class goes before queued requests of a higher one",
        edits: &[Edit {
            file: TURN,
            from: "self.passes_flush(class, since_ns)",
            to: "self.passes_flush(class, since_ns) && false",
        }],
        test: Test::it("forebay-core", "priority_flush::"),
        says: "assertion",
    },
    Bug {
        name: "late-flush-joins",
        what: "a late flush joins the running one",
        edits: &[Edit {
            file: TURN,
            from: "if is_counted && flush.is_running && is_covered {",
            to: "if flush.is_running {",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "one-elided-too-many",
        what: "one flush too many is elided",
        edits: &[Edit {
            file: TURN,
            from: "if is_counted && durable >= wanted.up_to() {",
            to: "if is_counted && durable + 1 >= wanted.up_to() {",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "ends-during-flush-durable",
        what: "a write that ends during a flush counts as durable",
        edits: &[Edit {
            file: TURN,
            from: "device.durability.flushed(flush.in_hand)",
            to: "device.durability.flushed(device.durability.point())",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "merges-across-fua",
        what: "a write merges with a FUA write",
        edits: &[Edit {
            file: "crates/forebay-core/src/merge.rs",
            from: "!rq.nomerge && !new.nomerge && rq.op == new.op && rq.flags == new.flags",
            to: "rq.op == new.op",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "queue-stays-held",
        what: "the queue stays held after its flush has ended",
        edits: &[Edit {
            file: TURN,
            from: "return flush.holds && dispatch.is_empty();\n        }",
            to: "return flush.holds && dispatch.is_empty();\n        }\n        \
             if flush.holds && flush.nr_in_a_row > 0 {\n            return true;\n        }",
        }],
        test: HISTORIES,
        says: "broken rule: F5",
    },
    Bug {
        name: "failed-flush-ends-none",
        what: "a failed flush ends no waiter",
        edits: &[Edit {
            file: TURN,
            from: "                Err(status) => Err(status),\n            };",
            to: "                Err(_) => continue,\n            };",
        }],
        test: HISTORIES,
        says: "broken rule: F7",
    },
    Bug {
        name: "failed-flush-succeeds",
        what: "a failed flush succeeds for its waiters",
        edits: &[Edit {
            file: TURN,
            from: "                Err(status) => Err(status),\n            };",
            to: "                Err(_) => Ok(()),\n            };",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "loss-forgotten",
        what: "the loss of a failed flush is not recorded",
        edits: &[Edit { file: TURN, from: "device.flush_failed(status);", to: "" }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "in-flight-at-failure-safe",
        what: "a write in flight at a failed flush counts as safe",
        edits: &[Edit {
            file: TURN,
            from: "queued.is_in_doubt = true;",
            to: "queued.is_in_doubt = false;",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "good-flush-fails",
        what: "a flush that succeeds fails its waiters",
        edits: &[Edit {
            file: TURN,
            from: "                Ok(_) if is_safe() => Ok(()),",
            to: "                Ok(_) if is_safe() => Err(BlockStatus::Io),",
        }],
        test: HISTORIES,
        says: "broken rule: F3",
    },
    Bug {
        name: "fua-flushes-earlier-point",
        what: "the flush after an emulated FUA write covers an earlier point",
        edits: &[Edit {
            file: TURN,
            from: "return Wanted::Point(self.hctx.ended_point(is_in_doubt));",
            to: "return Wanted::Point(self.hctx.device.durability.durable());",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "preflush-forgotten",
        what: "PREFLUSH is ignored",
        edits: &[Edit {
            file: "crates/forebay-core/src/request/steps.rs",
            from: "if op == Op::Flush || flags.contains(BioFlags::PREFLUSH) {",
            to: "if op == Op::Flush {",
        }],
        test: HISTORIES,
        says: P2,
    },
    Bug {
        name: "flush-ends-first-waiter-only",
        what: "a flush takes only its first waiter",
        edits: &[Edit {
            file: TURN,
            from: "core::mem::swap(&mut flush.pending, &mut flush.running);",
            to: "flush.running.push(flush.pending.remove(0));",
        }],
        test: HISTORIES,
        says: "broken rule: F6",
    },
];
