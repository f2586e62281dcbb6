//! Bugs in the `vhost-user` driver.

use super::{Bug, Edit, Test};

const CONFIG: &str = "crates/forebay/src/driver/vhost_user/config.rs";
const NOTIFY: &str = "crates/forebay/src/driver/vhost_user/notify.rs";
const QUEUE: &str = "crates/forebay/src/driver/vhost_user/queue.rs";
const REQUESTS: &str = "crates/forebay/src/driver/vhost_user/requests.rs";
const RING: &str = "crates/forebay/src/driver/vhost_user/ring.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "vhost-user-used-twice",
        what: "a chain that the device uses twice completes a request twice",
        edits: &[Edit {
            file: REQUESTS,
            from: ".filter(|slot| slot.is_in_flight);",
            to: ".filter(|_| true);",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::chain_that_is_used_twice_gives_up_the_device",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-short-read",
        what: "a read whose data the device did not write succeeds",
        edits: &[Edit {
            file: REQUESTS,
            from: "is_read && is_ok && u64::from(used.len) < len_max",
            to: "is_read && is_ok && used.len == 0",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::completion_that_cannot_be_gives_up_the_device",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-used-index-believed",
        what: "any used index of the device is believed",
        edits: &[Edit {
            file: RING,
            from: "if usize::from(nr) > nr_in_flight {",
            to: "if usize::from(nr) > nr_in_flight + 65_536 {",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::used_ring_that_cannot_be_gives_up_the_device",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-kick-for-each-batch",
        what: "the device is kicked although it does not want to be",
        edits: &[Edit {
            file: NOTIFY,
            from: "=> has_passed(element, new, old),",
            to: "=> has_passed(element, new, old) || new != old,",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::batch_costs_one_kick_if_the_device_wants_any",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-loop-not-woken",
        what: "a reap of a polled queue asks for no interrupt",
        edits: &[Edit {
            file: QUEUE,
            from: "self.take_and_arm(done);",
            to: "if self.nr_empty_reaps > 100 {\n self.take_and_arm(done);\n }",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::\
             descriptor_is_readable_for_completions_kicks_and_the_end",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-dead-server-unseen",
        what: "a caller that only reaps does not find the end of the server",
        edits: &[Edit {
            file: QUEUE,
            from: "has_reason || self.nr_empty_reaps >= NR_EMPTY_REAPS",
            to: "has_reason || self.nr_empty_reaps >= NR_EMPTY_REAPS * 16",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::reaps_without_waits_find_the_end_of_the_server",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-write-through-believed",
        what: "no flush reaches a server that says it is write-through",
        edits: &[Edit {
            file: CONFIG,
            from: "has_flush: features.has(VIRTIO_BLK_F_FLUSH),",
            to: "has_flush: features.has(VIRTIO_BLK_F_FLUSH) && wce != Some(0),",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::config::tests::\
             flushes_are_due_even_if_the_cache_is_said_to_be_write_through",
        ),
        says: "",
    },
    Bug {
        name: "vhost-user-armed-without-a-fence",
        what: "U2: a wait asks for an interrupt and looks again without a fence in between",
        edits: &[Edit {
            file: NOTIFY,
            from: "wrapping_sub(1));\n    words.fence();\n",
            to: "wrapping_sub(1));\n",
        }],
        test: Test::model("driver::vhost_user::models::wait_for_one_used_chain_is_never_missed"),
        says: "deadlock",
    },
    Bug {
        name: "vhost-user-sleeps-without-looking-again",
        what: "U2: a wait does not look at the index again after it has asked for an interrupt",
        edits: &[Edit {
            file: NOTIFY,
            from: "words.index().wrapping_sub(taken) >= nr",
            to: "false",
        }],
        test: Test::model("driver::vhost_user::models::wait_for_one_used_chain_is_never_missed"),
        says: "deadlock",
    },
    Bug {
        name: "vhost-user-kick-cleared-by-a-loop",
        what: "an event loop clears the kick of a thread that waits beside it (K8)",
        edits: &[Edit {
            file: QUEUE,
            from: "self.is_acknowledged.store(true, Ordering::Relaxed);",
            to: "self.is_acknowledged.store(true, Ordering::Relaxed);\n self.clear();",
        }],
        test: Test::vhost_user(
            "driver::vhost_user::tests::acknowledged_descriptor_keeps_the_kick_of_a_waiting_thread",
        ),
        says: "",
    },
];
