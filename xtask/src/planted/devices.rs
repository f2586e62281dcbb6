//! Bugs in the devices for virtual machines: the message channel of vhost-user-blk.

use super::{Bug, Edit, Test};

const CHANNEL: &str = "crates/forebay-vhost-user/src/channel/mod.rs";
const REGIONS: &str = "crates/forebay-vhost-user/src/channel/regions.rs";
const SESSION: &str = "crates/forebay-vhost-user/src/channel/session.rs";

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
];
