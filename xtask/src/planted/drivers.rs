//! Bugs of the drivers and of the durable calls in `forebay`.

use super::{Bug, Edit, Test};

const CALL: &str = "crates/forebay/src/driver/psync/call.rs";
const COMMANDS: &str = "crates/forebay/src/driver/file/commands.rs";
const DURABLE: &str = "crates/forebay/src/durable.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "psync-flush-does-nothing",
        what: "a flush of psync makes no fdatasync",
        edits: &[Edit {
            file: CALL,
            from: "    let call = if metadata { libc::fsync } else { libc::fdatasync };",
            to: "    if !metadata {\n        return Ok(0);\n    }\n    let call = libc::fsync;",
        }],
        test: Test::it("forebay", "fallback::a_flush_leaves_out_metadata_and_an_fsync_does_not"),
        says: "",
    },
    Bug {
        name: "psync-fua-dropped",
        what: "a FUA write of psync is a plain write",
        edits: &[Edit { file: CALL, from: "(_, _) if fua =>", to: "(_, _) if fua && nr < 0 =>" }],
        test: Test::it("forebay", "fallback::without_a_durable_write_a_flush_follows_the_write"),
        says: "",
    },
    Bug {
        name: "uring-fua-dropped",
        what: "a FUA write of one vector is a plain write on io_uring",
        edits: &[Edit {
            file: COMMANDS,
            from: "_mut(command.addr);\n        \
                   let flags = if command.fua { libc::RWF_DSYNC } else { 0 };",
            to: "_mut(command.addr);\n        let flags = 0;",
        }],
        test: Test::unit("forebay", "entries::one_stretch_of_memory_takes_no_vector"),
        says: "",
    },
    Bug {
        name: "uring-fua-made-inline",
        what: "the submitting thread makes FUA writes by itself, without syncing them",
        edits: &[Edit {
            file: "crates/forebay/src/driver/file/inline.rs",
            from: "if !is_whole || rq.fua {",
            to: "if !is_whole {",
        }],
        test: Test::unit(
            "forebay",
            "inline::parts_of_blocks_and_what_is_to_be_durable_go_by_the_ring",
        ),
        says: "",
    },
    Bug {
        name: "durable-write-without-fua",
        what: "write_durable_at does not ask for FUA",
        edits: &[Edit {
            file: DURABLE,
            from: "flags: BioFlags::FUA, ..range",
            to: "flags: BioFlags::NONE, ..range",
        }],
        test: Test::it("forebay", "durability::a_durable_write_needs_no_flush_or_one"),
        says: "",
    },
    Bug {
        name: "durable-wait-does-nothing",
        what: "Durable::wait returns before its point is durable",
        edits: &[Edit {
            file: DURABLE,
            from: "false => self.disk.run_without_memory(Bio::flush_up_to(self.point)),",
            to: "false => Ok(()),",
        }],
        test: Test::it("forebay", "durability::a_write_is_durable_once_its_point_was_waited_for"),
        says: "",
    },
    Bug {
        name: "exclusive-ignored",
        what: "exclusive=on has no effect",
        edits: &[Edit {
            file: "crates/forebay/src/settings.rs",
            from: "        self.exclusive == Some(true)\n",
            to: "        false\n",
        }],
        test: Test::it("forebay", "claims::a_file_that_is_open_for_one_disk_is_refused_to_others"),
        says: "claims::a_file_that_is_open_for_one_disk_is_refused_to_others_by_name ... FAILED",
    },
];
