//! Bugs in the NBD server and in `bench`.

use super::{Bug, Edit, Test};

const REQUESTS: &str = "crates/forebay-front/src/nbd/requests.rs";
const CLIENTS: &str = "crates/forebay-serve/src/clients.rs";
const ROUND: &str = "crates/forebay-front/src/front/mod.rs";

const FUA_OF_EACH_COMMAND: &str =
    "flags::fua_of_each_command_is_a_flush_before_the_reply_and_without_it_there_is_none";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "serve-flush-answered-at-once",
        what: "FLUSH is answered without a flush of the disk",
        edits: &[Edit {
            file: "crates/forebay-serve/src/worker/host.rs",
            from: "(Op::Flush, None) => forebay::Io::flush(),",
            to: "(Op::Flush, None) => forebay::Io::flush_up_to(0),",
        }],
        test: Test::unit(
            "forebay-serve",
            "worker::tests::merges::flushes_of_several_clients_are_one",
        ),
        says: "",
    },
    Bug {
        name: "serve-pool-without-budget",
        what: "a worker lends memory beyond its budget",
        edits: &[Edit {
            file: "crates/forebay-front/src/stream/pool.rs",
            from: "self.lent_bytes + piece <= self.budget_bytes && (more == 0 ||",
            to: "(more <= left || left < more ||",
        }],
        test: Test::unit(
            "forebay-front",
            "stream::pool::tests::greedy_clients_leave_every_client_a_share",
        ),
        says: "",
    },
    Bug {
        name: "serve-handshake-never-cut-off",
        what: "a client may stay in its handshake forever",
        edits: &[Edit {
            file: "crates/forebay-front/src/front/lifecycle.rs",
            from: "link.deadline_ns = Some(now_ns + HANDSHAKE_NS);",
            to: "link.deadline_ns = Some(now_ns + 1000 * HANDSHAKE_NS);",
        }],
        test: Test::it(
            "forebay-cli",
            "serve::hostile::floods::client_without_an_export_is_disconnected",
        ),
        says: "",
    },
    Bug {
        name: "serve-bytes-counted-twice",
        what: "the metrics count the bytes of a read twice",
        edits: &[Edit {
            file: "crates/forebay-serve/src/metrics/traffic.rs",
            from: "RequestKind::Read => self.read_bytes.add(bytes),",
            to: "RequestKind::Read => self.read_bytes.add(2 * bytes),",
        }],
        test: Test::unit(
            "forebay-serve",
            "metrics::registry::tests::counts_of_a_connection_stay_with_its_export",
        ),
        says: "",
    },
    Bug {
        name: "serve-stages-not-timed",
        what: "the metrics record 0 ns for every stage of a request",
        edits: &[Edit {
            file: "crates/forebay-serve/src/metrics/registry.rs",
            from: "self.0[stage as usize].record(ns, nr);",
            to: "self.0[stage as usize].record(ns.min(0), nr);",
        }],
        test: Test::unit(
            "forebay-serve",
            "metrics::registry::tests::times_of_all_workers_are_added_up",
        ),
        says: "",
    },
    Bug {
        name: "serve-client-certificate-not-asked-for",
        what: "--tls-verify-peer lets in clients without a certificate",
        edits: &[Edit {
            file: "crates/forebay-serve/src/tls.rs",
            from: "    let builder = if verify_peer {",
            to: "    let builder = if verify_peer && folder.as_os_str().is_empty() {",
        }],
        test: Test::unit(
            "forebay-serve",
            "tls::tests::peers::with_verification_only_clients_with_a_valid_certificate_are_served",
        ),
        says: "",
    },
    Bug {
        name: "serve-holes-reported-as-data",
        what: "BLOCK_STATUS reports holes as data",
        edits: &[Edit {
            file: "crates/forebay-serve/src/block_status.rs",
            from: "ExtentKind::Hole => (extent.len, STATE_HOLE | STATE_ZERO),",
            to: "ExtentKind::Hole => (extent.len, (STATE_HOLE | STATE_ZERO) & 0),",
        }],
        test: Test::it("forebay-cli", "serve::libnbd::the_map_shows_data_and_holes"),
        says: "",
    },
    Bug {
        name: "nbd-fast-zero-ignored",
        what: "FAST_ZERO is accepted and ignored",
        edits: &[Edit {
            file: "crates/forebay-nbd/src/server/transmission.rs",
            from: "let fast = flags & CMD_FLAG_FAST_ZERO != 0;",
            to: "let fast = false;",
        }],
        test: Test::unit(
            "forebay-nbd",
            "server::tests::requests::only_fast_zeroes_are_not_supported",
        ),
        says: "",
    },
    Bug {
        name: "bench-latency-doubled",
        what: "bench reports twice the completion latency",
        edits: &[Edit {
            file: "crates/forebay-cli/src/bench/tally.rs",
            from: "self.stats.record_complete(op.direction, moved, clat_ns, lat_ns),",
            to: "self.stats.record_complete(op.direction, moved, 2 * clat_ns, lat_ns),",
        }],
        test: Test::it(
            "forebay-cli",
            "bench::completion_latency_is_the_total_less_the_submission_latency",
        ),
        says: "",
    },
    Bug {
        name: "serve-without-plug",
        what: "a worker submits without a plug, so nothing is merged",
        edits: &[
            Edit {
                file: ROUND,
                from: "            let _plug = self.desk.host.plug();\n            look",
                to: "            look",
            },
            Edit {
                file: ROUND,
                from: "                let _plug = self.desk.host.plug();\n                moved",
                to: "                moved",
            },
        ],
        test: Test::unit(
            "forebay-serve",
            "worker::tests::merges::neighbours_that_one_client_sends_together_are_one_request",
        ),
        says: "",
    },
    Bug {
        name: "serve-write-fua-dropped",
        what: "FUA of WRITE has no effect",
        edits: &[Edit {
            file: "crates/forebay-front/src/nbd/writes.rs",
            from: ".fua_if(is_fua);",
            to: ".fua_if(is_fua && mark > u64::MAX - 1);",
        }],
        test: Test::clients(FUA_OF_EACH_COMMAND),
        says: "command 1 of 4096 bytes asked for no flush",
    },
    Bug {
        name: "serve-trim-fua-dropped",
        what: "FUA of TRIM has no effect",
        edits: &[Edit {
            file: REQUESTS,
            from: "self.begin_whole(conn, flight, io.fua_if(fua))",
            to: "self.begin_whole(conn, flight, io.fua_if(fua && rq.len == 0))",
        }],
        test: Test::clients(FUA_OF_EACH_COMMAND),
        says: "command 4 of 65536 bytes asked for no flush",
    },
    Bug {
        name: "serve-write-zeroes-fua-dropped",
        what: "FUA of WRITE_ZEROES has no effect",
        edits: &[Edit {
            file: REQUESTS,
            from: "Io::range(op, rq.offset, rq.len).fua_if(fua))",
            to: "Io::range(op, rq.offset, rq.len).fua_if(fua && rq.len == 0))",
        }],
        test: Test::clients(FUA_OF_EACH_COMMAND),
        says: "command 6 of 65536 bytes asked for no flush",
    },
    Bug {
        name: "serve-no-hole-ignored",
        what: "NO_HOLE has no effect",
        edits: &[Edit {
            file: REQUESTS,
            from: "let op = match !no_hole && self.common.facts[export].discards_to_zeroes {",
            to: "let op = match (no_hole, self.common.facts[export].discards_to_zeroes).1 {",
        }],
        test: Test::clients("flags::no_hole_keeps_the_space_and_without_it_the_range_is_discarded"),
        says: "",
    },
    Bug {
        name: "serve-not-confined",
        what: "Landlock fails to be set up",
        edits: &[Edit {
            file: "crates/forebay-cli/src/serve/sandbox.rs",
            from: "        .handle_access(AccessFs::from_all(KNOWN))?\n",
            to: "        .handle_access(BitFlags::<AccessFs>::empty())?\n",
        }],
        test: Test::it(
            "forebay-cli",
            "serve::confinement::a_server_is_confined_by_the_landlock_of_the_kernel",
        ),
        says: "",
    },
    Bug {
        name: "bench-times-exchanged",
        what: "the report of bench exchanges user and system time",
        edits: &[Edit {
            file: "crates/forebay-fio/src/report/mod.rs",
            from: "(percent(stats.usage.user_us), percent(stats.usage.system_us))",
            to: "(percent(stats.usage.system_us), percent(stats.usage.user_us))",
        }],
        test: Test::it("forebay-cli", "bench::user_time_and_system_time_are_not_exchanged"),
        says: "",
    },
    Bug {
        name: "serve-owner-of-gone-client-removed-early",
        what: "the owner of a closed connection is removed while its I/O is in flight",
        edits: &[Edit {
            file: CLIENTS,
            from: "let is_over = former.nr_draining == 0 && (",
            to: "let is_over = (",
        }],
        test: Test::unit(
            "forebay-serve",
            "tenant::tests::owner_is_kept_until_the_last_io_of_its_client_has_ended",
        ),
        says: "",
    },
    Bug {
        name: "serve-new-burst-for-each-connection",
        what: "a client that connects again gets another burst",
        edits: &[Edit {
            file: CLIENTS,
            from: "match former.iter().rposition(is_same) {",
            to: "match former.iter().rposition(is_same).filter(|_| false) {",
        }],
        test: Test::unit(
            "forebay-serve",
            "tenant::tests::a_client_that_connects_again_gets_no_new_burst",
        ),
        says: "",
    },
    Bug {
        name: "serve-debts-of-other-addresses",
        what: "a client pays the debts of clients from other addresses",
        edits: &[Edit {
            file: CLIENTS,
            from: "it.address == client.place.address;",
            to: "it.address == it.address;",
        }],
        test: Test::unit(
            "forebay-serve",
            "tenant::tests::clients_from_other_addresses_pay_no_debts_of_each_other",
        ),
        says: "",
    },
    Bug {
        name: "serve-io-lost-by-a-panic-not-reported",
        what: "the end of I/O that a panic has lost is not reported, so its owner is kept for ever",
        edits: &[Edit {
            file: "crates/forebay-front/src/front/completions.rs",
            from: "(0..flight.in_disk).for_each(",
            to: "(1..flight.in_disk).for_each(",
        }],
        test: Test::unit(
            "forebay-front",
            "front::tests::panic_ends_one_client_and_the_others_go_on",
        ),
        says: "",
    },
];
