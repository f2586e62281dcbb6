//! Bugs in the devices for virtual machines: the message channel of vhost-user-blk, and the
//! notifications of its rings.

use super::{Bug, Edit, Test};

const CHANNEL: &str = "crates/forebay-vhost-user/src/channel/mod.rs";
const REGIONS: &str = "crates/forebay-vhost-user/src/channel/regions.rs";
const NOTIFY: &str = "crates/forebay-vhost-user/src/ring/notify.rs";
const SESSION: &str = "crates/forebay-vhost-user/src/channel/session.rs";

const SLEEPING_DEVICE: &str = "ring::models::device_that_sleeps_misses_no_available_entry";
const SLEEPING_DRIVER: &str = "ring::models::driver_that_sleeps_misses_no_used_entry";

const fn channel(name: &'static str) -> Test {
    Test::unit("forebay-vhost-user", name)
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "device-ring-changes-while-it-runs",
        what: "a front end changes the size of a ring that runs",
        edits: &[Edit {
            file: SESSION,
            from: "true => Err(refuse(format_args!(\"ring {ring} runs: GET_VRING_BASE",
            to: "true => Ok(ring), _ => Err(refuse(format_args!(\"ring {ring} runs: GET_VRING_BASE",
        }],
        test: channel("channel::tests::messages_with_wrong_numbers_are_refused"),
        says: "",
    },
    Bug {
        name: "device-region-behind-its-file",
        what: "a memory region longer than its file is mapped",
        edits: &[Edit {
            file: REGIONS,
            from: "if found.len() < offset + len {",
            to: "if found.len() < offset {",
        }],
        test: channel("channel::tests::memory_that_cannot_be_used_is_refused"),
        says: "",
    },
    Bug {
        name: "device-ring-moves",
        what: "a new memory table moves a ring that runs",
        edits: &[Edit {
            file: SESSION,
            from: "if after != state.guest_addresses(&self.regions)? {",
            to: "if after != after {",
        }],
        test: channel("channel::tests::memory_that_cannot_be_used_is_refused"),
        says: "",
    },
    Bug {
        name: "device-cache-stays-off",
        what: "a front end that switched the write cache off leaves it off for the next one",
        edits: &[Edit { file: CHANNEL, from: "cache.set(true);", to: "cache.set(cache.is_on());" }],
        test: channel("channel::tests::driver_switches_the_write_cache"),
        says: "",
    },
    Bug {
        name: "device-ring-outlives-its-connection",
        what: "the rings of a front end that is gone go on",
        edits: &[Edit { file: CHANNEL, from: "session.stop_all();", to: "let _ = &mut session;" }],
        test: channel(
            "channel::tests::ring_starts_with_its_kick_descriptor_and_stops_with_its_base",
        ),
        says: "",
    },
    Bug {
        name: "device-sleeps-without-a-fence",
        what: "Z1: a device asks for a notification and looks again without a fence in between",
        edits: &[Edit {
            file: NOTIFY,
            from: "Ordering::Relaxed);\n    words.fence();\n",
            to: "Ordering::Relaxed);\n",
        }],
        test: Test::device_model(SLEEPING_DEVICE),
        says: "deadlock",
    },
    Bug {
        name: "device-sleeps-without-looking-again",
        what: "Z1: a device does not look at the index again after it has asked for a notification",
        edits: &[Edit {
            file: NOTIFY,
            from: "    words.load(Word::AvailableIndex, Ordering::Relaxed) != next\n",
            to: "    false\n",
        }],
        test: Test::device_model(SLEEPING_DEVICE),
        says: "deadlock",
    },
    Bug {
        name: "device-reads-entries-early",
        what: "an available entry may be read before its index",
        edits: &[Edit {
            file: NOTIFY,
            from: "words.load(Word::AvailableIndex, Ordering::Acquire)",
            to: "words.load(Word::AvailableIndex, Ordering::Relaxed)",
        }],
        test: Test::device_model(SLEEPING_DEVICE),
        says: "assertion",
    },
    Bug {
        name: "device-interrupts-without-a-fence",
        what: "Z2: a device loads the driver's wish without a fence after the used index",
        edits: &[Edit {
            file: NOTIFY,
            from: "    words.fence();\n    if !words",
            to: "    if !words",
        }],
        test: Test::device_model(SLEEPING_DRIVER),
        says: "deadlock",
    },
    Bug {
        name: "device-publishes-entries-late",
        what: "a used index may be visible before its entry",
        edits: &[Edit {
            file: NOTIFY,
            from: "words.store(Word::UsedIndex, index, Ordering::Release)",
            to: "words.store(Word::UsedIndex, index, Ordering::Relaxed)",
        }],
        test: Test::device_model(SLEEPING_DRIVER),
        says: "assertion",
    },
];
