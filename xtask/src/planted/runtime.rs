//! Bugs of the runtime in `forebay` (waiting, holds, forks, shared tags) and of what the core does
//! for it.

use super::{Bug, Edit, Test};

const WAIT: &str = "crates/forebay/src/runtime/wait.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "flush-waiters-not-joined",
        what: "each flush is for one waiter, and none joins another's",
        edits: &[
            Edit {
                file: "crates/forebay-core/src/flush/turn.rs",
                from: "if is_counted && flush.is_running && flush.in_hand >= wanted.up_to() {",
                to: "if false {",
            },
            Edit {
                file: "crates/forebay-core/src/flush/turn.rs",
                from: "core::mem::swap(&mut flush.pending, &mut flush.running);",
                to: "flush.running.push(flush.pending.remove(0));",
            },
        ],
        test: Test::it("forebay-core", "flush::flushes_that_come_while_one_runs_share_the_next"),
        says: "",
    },
    Bug {
        name: "shares-of-tags-ignored",
        what: "a disk may take more than its share of a shared set of tags",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/tag_pool.rs",
            from: "_ => self.shares.share(),",
            to: "_ => u32::MAX,",
        }],
        test: Test::it("forebay", "tags::a_disk_has_its_share_of_the_tags_beside_one"),
        says: "tags::a_disk_has_its_share_of_the_tags_beside_one_that_wants_them_all ... FAILED",
    },
    Bug {
        name: "async-depth-ignored",
        what: "background requests take any number of tags",
        edits: &[
            Edit {
                file: "crates/forebay-core/src/classes.rs",
                from: "(BioFlags::BACKGROUND) && self.nr_background >= self.async_depth",
                to: "(BioFlags::BACKGROUND) && self.nr_background == u32::MAX",
            },
            Edit {
                file: "crates/forebay-core/src/classes.rs",
                from: "true => nr_free.min(self.async_depth.saturating_sub(self.nr_background)),",
                to: "true => nr_free,",
            },
        ],
        test: Test::it("forebay", "tags::background_io_leaves_tags_to_others"),
        says: "",
    },
    Bug {
        name: "freeze-does-not-wait",
        what: "freeze returns while I/O is in flight",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/hctx.rs",
            from: "        self.is_drained.load(Ordering::Relaxed)\n",
            to: "        true\n",
        }],
        test: Test::it("forebay", "holds::a_freeze_waits_for_what_is_in_and_lets_nothing_else_in"),
        says: "",
    },
    Bug {
        name: "fork-not-noticed",
        what: "the child of a fork may use the disks of its parent",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/shared.rs",
            from: "        self.origin.is_elsewhere()\n",
            to: "        false\n",
        }],
        test: Test::it("forebay", "holds::a_child_of_a_fork_is_refused_and_the_parent_goes_on"),
        says: "",
    },
    Bug {
        name: "parks-without-looking-again",
        what: "W2: a follower that announced itself does not check for a leader again",
        edits: &[Edit {
            file: WAIT,
            from: "if !mailbox.is_reached(goal) && hctx.run.has_leader() {\n        mailbox",
            to: "if !mailbox.is_reached(goal) {\n        mailbox",
        }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_at_once"),
        says: "",
    },
    Bug {
        name: "parks-without-a-leader",
        what: "W1: a thread parks on a context with work that has no leader",
        edits: &[Edit {
            file: WAIT,
            from: "let leads = hctx.run.try_lead() || follow(hctx, mailbox, goal);",
            to: "let leads = follow(hctx, mailbox, goal);",
        }],
        test: Test::model("runtime::wait::models::one_thread_and_a_device"),
        says: "",
    },
    Bug {
        name: "baton-not-used",
        what: "W3: a follower that received the baton does not lead",
        edits: &[Edit {
            file: WAIT,
            from: "    end_wait(hctx, mailbox) == Doing::Baton\n",
            to: "    end_wait(hctx, mailbox);\n    false\n",
        }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_at_once"),
        says: "",
    },
    Bug {
        name: "leader-not-kicked",
        what: "W4: a delivery to the blocked leader does not kick it",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/hctx/token.rs",
            from: "        if kick && hctx.is_shared {\n",
            to: "        if kick && !hctx.is_shared {\n",
        }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_silently"),
        says: "",
    },
    Bug {
        name: "woken-for-tags-asks-for-no-turn",
        what: "a thread that was woken for tags does not ask for the turn that gives it some",
        edits: &[Edit {
            file: WAIT,
            from: "        hctx.ask_again(mailbox);\n",
            to: "        let _ = hctx;\n",
        }],
        test: Test::model("models"),
        says: "FAILED",
    },
];
