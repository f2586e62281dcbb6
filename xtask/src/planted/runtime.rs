//! Bugs in the runtime of `forebay` (waiting, holds, forks, shared tags), and in the core code for
//! it.

use super::{Bug, Edit, Test};

const POLL: &str = "crates/forebay/src/queue/poll.rs";
const DRIVING: &str = "crates/forebay/src/runtime/shared/driving.rs";
const SERVICE: &str = "crates/forebay/src/runtime/service.rs";
const TAG_STEPS: &str = "crates/forebay-core/src/tag/steps.rs";
const TAG_POOL: &str = "crates/forebay/src/tag_pool.rs";
const TOKEN: &str = "crates/forebay/src/runtime/hctx/token.rs";
const LEAD: &str = "crates/forebay-core/src/wait/lead.rs";
const TURN: &str = "crates/forebay-core/src/wait/turn.rs";
const WAIT: &str = "crates/forebay-core/src/wait/shared.rs";

const BUSY_DRIVER: &str = "wakeups::a_plug_or_a_blocking_call_at_a_busy_driver_wakes_the_loop";
const LOST_KICK: &str =
    "runtime::service::models::disk_is_closed_beside_a_thread_that_no_kick_reaches";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "flush-waiters-not-joined",
        what: "each flush is for one waiter, and none joins another's",
        edits: &[
            Edit {
                file: "crates/forebay-core/src/hctx/flush/turn.rs",
                from: "if is_counted && flush.is_running && is_covered {",
                to: "if false {",
            },
            Edit {
                file: "crates/forebay-core/src/hctx/flush/turn.rs",
                from: "core::mem::swap(&mut flush.pending, &mut flush.running);",
                to: "flush.running.push(flush.pending.remove(0));",
            },
        ],
        test: Test::it(
            "forebay",
            "durability::threads_whose_flushes_were_held_back_share_two_at_most",
        ),
        says: "",
    },
    Bug {
        name: "own-call-not-withdrawn",
        what: "wakers run while a request is left to the thread that runs them",
        edits: &[Edit {
            file: "crates/forebay-core/src/wait/context.rs",
            from: "    if at.runs_wakers(&token) {\n",
            to: "    if false {\n",
        }],
        test: Test::it(
            "forebay",
            "futures::waker_in_a_blocking_call_may_wait_for_the_tag_of_that_call",
        ),
        // The waiting thread is aborted: memory is in flight.
        says: "SIGABRT",
    },
    Bug {
        name: "shares-of-tags-ignored",
        what: "a disk may take more than its share of a shared set of tags",
        edits: &[Edit { file: TAG_POOL, from: "_ => self.shares.share(),", to: "_ => u32::MAX," }],
        test: Test::unit(
            "forebay",
            "tag_pool::models::a_disk_that_has_all_tags_keeps_its_share_of_them",
        ),
        says: "",
    },
    Bug {
        name: "async-depth-ignored",
        what: "background requests take any number of tags",
        edits: &[
            Edit {
                file: "crates/forebay-core/src/hctx/admission/classes.rs",
                from: "(BioFlags::BACKGROUND) && self.nr_background >= self.async_depth",
                to: "(BioFlags::BACKGROUND) && self.nr_background == u32::MAX",
            },
            Edit {
                file: "crates/forebay-core/src/hctx/admission/classes.rs",
                from: "true => self.async_depth.saturating_sub(self.nr_background),",
                to: "true => u32::MAX,",
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
            from: "self.last_turn().is_drained()",
            to: "true",
        }],
        test: Test::it("forebay", "holds::a_freeze_waits_for_entered_bios_and_admits_no_more"),
        says: "",
    },
    Bug {
        name: "fork-not-noticed",
        what: "the child of a fork may submit to the queues of its parent",
        edits: &[Edit {
            file: "crates/forebay/src/queue.rs",
            from: "if self.shared.is_after_fork() {\n            \
                   cold_path();\n            \
                   return Err((SubmitErrorKind::Forked, bio, ManuallyDrop::into_inner(buf)));",
            to: "if self.shared.is_after_fork() && buf.is_none() {\n            \
                 return Err((SubmitErrorKind::Forked, bio, ManuallyDrop::into_inner(buf)));",
        }],
        test: Test::it("forebay", "holds::a_child_of_a_fork_is_refused_and_the_parent_goes_on"),
        says: "",
    },
    Bug {
        name: "parks-without-looking-again",
        what: "W2: a follower that announced itself does not check for a leader again",
        edits: &[Edit {
            file: LEAD,
            from: "&& (plants!(ParkBlindly) || host.run_state().has_leader()) {",
            to: "{",
        }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_at_once"),
        says: "",
    },
    Bug {
        name: "parks-without-a-leader",
        what: "W1: a thread parks on a context with work that has no leader",
        edits: &[Edit {
            file: WAIT,
            from: "let leads = host.run_state().try_lead() || follow(host, goal);",
            to: "let leads = follow(host, goal);",
        }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_at_once"),
        says: "",
    },
    Bug {
        name: "baton-not-used",
        what: "W3: a follower that received the baton does not lead",
        edits: &[Edit { file: LEAD, from: "    state == WaitState::Baton\n", to: "    false\n" }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_at_once"),
        says: "",
    },
    Bug {
        name: "leader-not-kicked",
        what: "W4: a delivery to the blocked leader does not kick it",
        edits: &[Edit {
            file: TURN,
            from: "    if kick && at.is_shared() {\n",
            to: "    if kick && !at.is_shared() {\n",
        }],
        test: Test::model("runtime::wait::models::two_threads_whose_bios_complete_at_once"),
        says: "",
    },
    Bug {
        name: "woken-for-tags-asks-for-no-turn",
        what: "a thread that was woken for tags does not ask for the turn that gives it some",
        edits: &[Edit { file: LEAD, from: "        host.ask_for_tags();\n", to: "" }],
        test: Test::model("tag_pool::models::two_threads_wait_for_tags_where_waits_begin_bios"),
        says: "deadlock",
    },
    Bug {
        name: "wait-leaves-no-debt",
        what: "W6: a leader that returns from its wait owes no turn",
        edits: &[Edit { file: LEAD, from: "            owes_turn = true;\n", to: "" }],
        test: Test::model(
            "runtime::hctx::models::request_sent_beside_a_leader_on_a_silent_device_ends",
        ),
        says: "no thread is left to reap it",
    },
    Bug {
        name: "left-to-a-wait-for-ever",
        what: "W5: a leader that stops does not begin what it left to its wait",
        edits: &[Edit {
            file: LEAD,
            from: "    let is_due = host.take_back();\n",
            to: "    let is_due = false;\n",
        }],
        test: Test::model(
            "runtime::wait::take_back_models::\
             a_leader_that_stops_begins_the_requests_left_to_its_wait",
        ),
        says: "",
    },
    Bug {
        name: "wake-up-for-tags-not-donated",
        what: "T5: a wake-up for shared tags is lost with a disk that cannot use it",
        edits: &[Edit {
            file: TAG_STEPS,
            from: "        waits.donate(wait.need, tags.nr_busy(), &mut out);\n",
            to: "        let _ = (tags, out);\n",
        }],
        test: Test::unit(
            "forebay",
            "tag_pool::models::a_wake_up_that_a_quiesced_disk_cannot_use_is_passed_on",
        ),
        says: "",
    },
    Bug {
        name: "put-of-one-tag-wakes-none",
        what: "T2: a single tag that is put into a shared set wakes no disk",
        edits: &[Edit {
            file: TAG_POOL,
            from: "woken }, nr_put);",
            to: "woken }, if nr_put > 1 { nr_put } else { 0 });",
        }],
        test: Test::unit("forebay", "tag_pool::models::each_tag_that_is_put_wakes_one_disk"),
        says: "",
    },
    Bug {
        name: "put-of-tags-wakes-none",
        what: "T2: tags that are put into a shared set wake no disk",
        edits: &[Edit { file: TAG_POOL, from: "woken }, nr_put);", to: "woken }, 0 * nr_put);" }],
        test: Test::unit(
            "forebay",
            "tag_pool::models::a_disk_that_has_all_tags_keeps_its_share_of_them",
        ),
        says: "",
    },
    Bug {
        name: "alarm-not-cleared",
        what: "B1: a turn leaves the alarm of an event loop set",
        edits: &[Edit {
            file: TOKEN,
            from: "            self.token.hctx.alarm.clear();\n",
            to: "",
        }],
        test: Test::it("forebay", BUSY_DRIVER),
        says: "",
    },
    Bug {
        name: "alarm-not-set",
        what: "B2: a turn that leaves work at a busy driver sets no alarm for the event loop",
        edits: &[Edit { file: TOKEN, from: "self.token.hctx.alarm.set(RESOURCE_DELAY);", to: "" }],
        test: Test::it("forebay", BUSY_DRIVER),
        says: "",
    },
    Bug {
        name: "alarm-not-advanced",
        what: "B2: a deadline before that of the running timer starts no timer",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/alarm.rs",
            from: "        if at_ns < self.at_ns.load(Ordering::Relaxed) {\n",
            to: "        if self.at_ns.load(Ordering::Relaxed) == NEVER {\n",
        }],
        test: Test::model("runtime::alarm::models::deadlines_of_two_threads_wake_the_loop"),
        says: "the loop sleeps past a deadline",
    },
    Bug {
        name: "alarm-not-fired",
        what: "B3: a thread that opens a gate wakes no event loop",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/hctx.rs",
            from: "            self.alarm.fire();\n",
            to: "",
        }],
        test: Test::it(
            "forebay",
            "wakeups::a_plug_that_ends_behind_a_gate_wakes_the_loop_when_the_gate_opens",
        ),
        says: "",
    },
    Bug {
        name: "future-starts-no-thread",
        what: "a future on a disk that nothing drives starts no thread",
        edits: &[Edit {
            file: DRIVING,
            from: "            false => self.start_service(seat),\n",
            to: "            false => Ok(()),\n",
        }],
        test: Test::model("future::models::a_future_is_woken_by_the_thread_that_it_starts"),
        says: "",
    },
    Bug {
        name: "loop-end-starts-no-thread",
        what: "V5: no thread takes over from the last event loop",
        edits: &[Edit { file: DRIVING, from: "!seat.ends_at_once {", to: "seat.ends_at_once {" }],
        test: Test::it(
            "forebay",
            "poll_handles::a_thread_takes_over_when_the_last_handle_is_dropped",
        ),
        says: "is not woken",
    },
    Bug {
        name: "service-leads-beside-a-leader",
        what: "V1: the service thread leads although another thread does",
        edits: &[Edit {
            file: SERVICE,
            from: "    let leads = hctxs[SHARED].run.try_lead();\n",
            to: "    hctxs[SHARED].run.try_lead();\n    let leads = true;\n",
        }],
        test: Test::it(
            "forebay",
            "futures::the_thread_that_a_future_starts_follows_a_reader_that_waits_in_the_driver",
        ),
        // libtest captures the message of the token's assertion: only the signal is visible.
        says: "SIGABRT",
    },
    Bug {
        name: "service-not-kicked",
        what: "V3: closing a disk does not kick its service thread",
        edits: &[Edit { file: SERVICE, from: "            token.kick();\n", to: "" }],
        test: Test::model("future::models::a_future_is_woken_by_the_thread_that_it_starts"),
        says: "deadlock",
    },
    Bug {
        name: "service-not-replaced",
        what: "closing a disk waits for a service thread that no kick reaches",
        edits: &[Edit { file: SERVICE, from: "hctx.run.resign_for_blocked()", to: "false" }],
        test: Test::model(LOST_KICK),
        says: "deadlock",
    },
    Bug {
        name: "service-replaced-before-its-wait",
        what: "closing a disk replaces a service thread that has not announced its wait",
        edits: &[Edit {
            file: SERVICE,
            from: "hctx.run.resign_for_blocked();",
            to: "(hctx.run.resign_for_blocked() || (hctx.run.resign() == ()));",
        }],
        test: Test::model(LOST_KICK),
        says: "SIGABRT",
    },
    Bug {
        name: "leader-blocks-before-it-asks",
        what: "a leader without the token announces its wait and requests a turn in two changes",
        edits: &[Edit {
            file: "crates/forebay-core/src/run_state.rs",
            from: "    pub fn block(&self) -> bool {\n",
            to: "    pub fn block(&self) -> bool {\n        \
                   self.change(|word| word | BLOCKED);\n        \
                   if !self.run() {\n            return false;\n        }\n        \
                   if self.unblock() || true {\n            return true;\n        }\n",
        }],
        test: Test::model(LOST_KICK),
        says: "SIGABRT",
    },
    Bug {
        name: "wakers-run-by-the-leader",
        what: "V4: the service thread runs wakers while it leads",
        edits: &[Edit {
            file: LEAD,
            from: "            if host.runs_wakers(token) {\n                \
                   break;\n            }\n",
            to: "",
        }],
        test: Test::it(
            "forebay",
            "futures::a_waker_may_wait_for_a_lock_that_a_thread_holds_during_a_blocking_call",
        ),
        says: "a thread waits forever",
    },
    Bug {
        name: "poll-event-not-cleared",
        what: "the descriptor stays readable after a loop that reaps before it waits has \
               acknowledged it",
        edits: &[Edit { file: POLL, from: "        self.event.clear();\n", to: "" }],
        test: Test::it(
            "forebay",
            "progress::loop_that_reaps_before_it_waits_is_signalled_for_all_later_completions",
        ),
        says: "nothing is there to reap",
    },
    Bug {
        name: "poll-mode-changes-under-a-handle",
        what: "another poll mode begins while a handle of the queue exists",
        edits: &[Edit {
            file: POLL,
            from: "if Arc::strong_count(&self.any) > 1 {",
            to: "if Arc::strong_count(&self.any) > 100 {",
        }],
        test: Test::it(
            "forebay",
            "poll_handles::the_mode_of_a_queue_does_not_change_while_a_handle_exists",
        ),
        says: "its loop reaps by other rules",
    },
    Bug {
        name: "service-start-waits-for-the-former",
        what: "V5: a service thread does not start while the former one runs a waker",
        edits: &[Edit {
            file: DRIVING,
            from: "        let next = service::start(seat.hctxs, seat.waiter)?;\n",
            to: "        if state.service.is_some() {\n            \
                 return Err(io::Error::from_raw_os_error(libc::EAGAIN));\n        }\n        \
                 let next = service::start(seat.hctxs, seat.waiter)?;\n",
        }],
        test: Test::unit(
            "forebay",
            "runtime::shared::driving::tests::a_service_thread_starts_beside_one_that_runs_a_waker",
        ),
        says: "a thread starts",
    },
];
