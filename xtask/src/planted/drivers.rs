//! Bugs in the drivers, in the handling of open files, and in durable calls.

use super::{Bug, Edit, Test};

const CALL: &str = "crates/forebay/src/driver/psync/call.rs";
const SYSCALL: &str = "crates/forebay/src/driver/syscall.rs";
const COMMANDS: &str = "crates/forebay/src/driver/file/commands.rs";
const DURABLE: &str = "crates/forebay/src/durable.rs";
const FUA: &str = "crates/forebay-core/src/hctx/flush/fua.rs";
const LIST: &str = "crates/forebay/src/driver/kit/list.rs";
const STALL: &str = "crates/forebay/src/driver/backend/stall.rs";
const PLACE: &str = "crates/forebay/src/claim/place.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "kick-before-the-wait-lost",
        what: "a kick that comes before the wait of a driver with a completion list is lost",
        edits: &[Edit { file: LIST, from: "        state.is_kicked = true;\n", to: "" }],
        test: Test::model(
            "driver::kit::list::models::kick_ends_the_wait_of_a_thread_without_completions",
        ),
        says: "deadlock",
    },
    Bug {
        name: "completion-before-the-wait-lost",
        what: "a wait for completions sleeps although they are in the list",
        edits: &[Edit {
            file: LIST,
            from: "        if state.done.len() >= nr || state.is_kicked {",
            to: "        if state.is_kicked {",
        }],
        test: Test::model("driver::kit::list::models::waiter_gets_each_push_of_two_threads_once"),
        says: "deadlock",
    },
    Bug {
        name: "backend-request-dropped-silently",
        what: "a request that a thread of a back end drops in a panic does not fail the disk",
        edits: &[Edit {
            file: "crates/forebay/src/driver/backend/request.rs",
            from: "    if !std::thread::panicking() {",
            to: "    if true {",
        }],
        test: Test::it(
            "forebay",
            "backends::misbehaving::request_on_a_dying_thread_fails_the_disk",
        ),
        says: "",
    },
    Bug {
        name: "backend-caught-panic-forgotten",
        what: "a panic that a back end catches in submit does not fail the disk",
        edits: &[Edit {
            file: "crates/forebay/src/driver/backend/driver.rs",
            from: "self.fail_dropped(!thread::panicking())",
            to: "self.fail_dropped(false)",
        }],
        test: Test::it(
            "forebay",
            "backends::misbehaving::caught_panic_that_drops_a_request_fails_the_disk",
        ),
        says: "",
    },
    Bug {
        name: "rbd-fua-under-every-policy",
        what: "a durable write of rbd has no flush, although librbd's cache ignores FUA",
        edits: &[Edit {
            file: "crates/forebay/src/driver/rbd/cache.rs",
            from: "if !self.policy.is(\"writearound\") {",
            to: "if self.policy.text().is_empty() {",
        }],
        test: Test::rbd(
            "driver::rbd::cache::tests::\
             only_writes_under_the_write_around_policy_are_durable_by_themselves",
        ),
        says: "writeback",
    },
    Bug {
        name: "driver-completes-twice",
        what: "a second completion of a custom driver is not detected",
        edits: &[Edit {
            file: "crates/forebay/src/driver/contract/checked.rs",
            from: "Some(0) => Err(Broken::NotInFlight(tag)),",
            to: "Some(0) => Ok(()),",
        }],
        test: Test::unit("forebay", "driver::contract::checked::tests::"),
        says: "NotInFlight",
    },
    Bug {
        name: "driver-descriptor-kick-lost",
        what: "a kick does not end the wait for the descriptor of a driver",
        edits: &[Edit {
            file: "crates/forebay/src/driver/contract/wait.rs",
            from: "            kick.signal();\n",
            to: "",
        }],
        test: Test::unit("forebay", "driver::contract::wait::tests::"),
        says: "a kick before the wait",
    },
    Bug {
        name: "psync-flush-does-nothing",
        what: "a flush of psync makes no fdatasync",
        edits: &[Edit {
            file: SYSCALL,
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
        name: "own-fua-dropped",
        what: "a thread that waits makes its FUA write as a plain write",
        edits: &[Edit {
            file: "crates/forebay/src/driver/own_call.rs",
            from: "_ if fua => write_durable(fd,",
            to: "_ if fua && fd < 0 => write_durable(fd,",
        }],
        test: Test::it("forebay", "fallback::durable_write_of_a_waiting_thread_syncs_its_data"),
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
        test: Test::unit(
            "forebay",
            "driver::file::tests::entries::one_stretch_of_memory_takes_no_vector",
        ),
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
            "driver::file::tests::inline::partial_blocks_and_durable_writes_use_the_ring",
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
            file: "crates/forebay/src/settings/mod.rs",
            from: "        self.exclusive == Some(true)\n",
            to: "        false\n",
        }],
        test: Test::it(
            "forebay",
            "claims::a_file_that_is_open_for_one_disk_is_refused_to_others_by_name",
        ),
        says: "",
    },
    Bug {
        name: "aio-fua-dropped",
        what: "a FUA write of aio is a plain write",
        edits: &[Edit {
            file: "crates/forebay/src/driver/aio/driver.rs",
            from: "iocb.rw_flags = if slot.fua { libc::RWF_DSYNC } else { 0 };",
            to: "iocb.rw_flags = 0;",
        }],
        test: Test::unit(
            "forebay",
            "driver::aio::tests::a_durable_write_says_so_in_its_control_block",
        ),
        says: "",
    },
    Bug {
        name: "nbd-fua-not-sent",
        what: "the NBD driver sends no FUA",
        edits: &[Edit {
            file: "crates/forebay/src/driver/nbd/queue.rs",
            from: "Op::Write => Command::Write { fua: rq.fua },",
            to: "Op::Write => Command::Write { fua: false },",
        }],
        test: Test::it("forebay", "nbd::flags::a_durable_write_has_the_flag_and_no_flush"),
        says: "",
    },
    Bug {
        name: "rings-not-restricted",
        what: "the rings of a disk are not restricted",
        edits: &[Edit {
            file: "crates/forebay/src/driver/file/restrictions.rs",
            from: "        result = submitter\n            \
                   .register_restrictions(&mut list(opcodes, registers))\n            \
                   .map(|()| nr_opcodes == NEW_OPCODES.len());\n",
            to: "        let _ = list(opcodes, registers);\n        \
                 result = io::Result::Ok(nr_opcodes == NEW_OPCODES.len());\n",
        }],
        test: Test::it("forebay", "rings::each_ring_of_an_open_disk_is_restricted"),
        says: "",
    },
    Bug {
        name: "owned-ring-for-all-threads",
        what: "the ring of an owned context is not for its thread alone",
        edits: &[Edit {
            file: "crates/forebay/src/driver/file/device.rs",
            from: "        .setup_single_issuer()\n        .setup_defer_taskrun()\n        \
                   .setup_taskrun_flag()\n",
            to: "",
        }],
        test: Test::it("forebay", "rings::the_ring_of_an_owned_context_is_its_threads_alone"),
        says: "",
    },
    Bug {
        name: "failed-fua-loses-nothing",
        what: "F8: a FUA write that fails is not recorded as a failed flush",
        edits: &[Edit {
            file: FUA,
            from: "        self.note_failure(result.err().unwrap_or(BlockStatus::Io));\n",
            to: "",
        }],
        test: Test::it(
            "forebay-core",
            "fua::failed_fua_write_is_a_failed_flush_whatever_its_status",
        ),
        says: "",
    },
    Bug {
        name: "short-fua-succeeds",
        what: "F8: a FUA write whose sync failed after some bytes goes on and succeeds",
        edits: &[Edit {
            file: "crates/forebay-core/src/hctx/complete.rs",
            from: "            Ok(_) if is_lost => self.fail(tag, rq, BlockStatus::Io),\n",
            to: "",
        }],
        test: Test::it(
            "forebay-core",
            "fua::short_fua_write_fails_since_its_first_bytes_may_be_lost",
        ),
        says: "",
    },
    Bug {
        name: "flush-ends-before-fua",
        what: "F8: a flush ends while FUA writes that were at the device with it are still there",
        edits: &[Edit {
            file: FUA,
            from: "if flush.is_settling && !flush.fua.is_waited_for() {",
            to: "if flush.is_settling {",
        }],
        test: Test::it("forebay-core", "fua::flush_ends_after_each_of_the_fua_writes_beside_it"),
        says: "",
    },
    Bug {
        name: "two-syncs-of-a-page-cache",
        what: "F8: a native FUA write is issued beside another sync of a page cache",
        edits: &[Edit {
            file: FUA,
            from: "match is_enough {",
            to: "match self.hctx.limits.fua_is_sync || is_alone {",
        }],
        test: Test::it("forebay-core", "fua::one_sync_of_a_page_cache_is_at_the_device_at_a_time"),
        says: "",
    },
    Bug {
        name: "place-checked-by-a-late-file",
        what: "O1: a place checks for lost writes by a file that it opens for the check",
        edits: &[Edit {
            file: PLACE,
            from: "        let file = self.writable.get().unwrap_or(&self.file);\n",
            to: "        let path = format!(\"/proc/self/fd/{}\", \
                 std::os::fd::AsRawFd::as_raw_fd(&self.file));\n        \
                 let file = &File::open(path).expect(\"the file opens again\");\n",
        }],
        test: Test::it(
            "forebay",
            "write_back::flush_of_a_second_disk_does_not_hide_an_error_another_program_got",
        ),
        says: "",
    },
    Bug {
        name: "late-file-not-checked",
        what: "O2: a context that opens the file later makes no check for lost writes",
        edits: &[Edit {
            file: "crates/forebay/src/runtime/shared.rs",
            from: "                self.check_after_open();\n",
            to: "",
        }],
        test: Test::it(
            "forebay",
            "write_back::flush_through_a_file_opened_later_does_not_hide_an_error_another_\
             program_got",
        ),
        says: "",
    },
    Bug {
        name: "loss-recorded-after-the-lock",
        what: "O3: a check releases the lock before it records the loss",
        edits: &[Edit {
            file: "crates/forebay/src/claim/check.rs",
            from: "        if finds_error(&mut probe) {\n",
            to: "        let is_found = finds_error(&mut probe);\n        drop(probe);\n        \
                 if is_found {\n",
        }],
        test: Test::model(
            "claim::check::models::loss_is_recorded_before_another_check_finds_nothing",
        ),
        says: "the loss is recorded",
    },
    Bug {
        name: "stall-not-reported",
        what: "a wait for requests that a back end does not end is not reported",
        edits: &[Edit {
            file: STALL,
            from: "let is_due = nr_requests > 0 &&",
            to: "let is_due = nr_requests == 0 &&",
        }],
        test: Test::unit("forebay", "driver::backend::tests::wait_without_an_end_is_reported_once"),
        // A panic in the test drops the driver, which aborts for its request.
        says: "SIGABRT",
    },
    Bug {
        name: "wait-ends-at-the-stall-time",
        what: "a wait with a time limit returns when its stall is reported",
        edits: &[Edit { file: STALL, from: " || is_last {\n", to: " || !is_last {\n" }],
        test: Test::unit(
            "forebay",
            "driver::backend::tests::wait_lasts_longer_than_the_stall_time",
        ),
        // A panic in the test drops the driver, which aborts for its request.
        says: "SIGABRT",
    },
];
