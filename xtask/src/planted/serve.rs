//! Bugs of the NBD server and of `bench`.

use super::{Bug, Edit, Test};

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "serve-flush-answered-at-once",
        what: "FLUSH is answered without a flush of the disk",
        edits: &[Edit {
            file: "crates/forebay-serve/src/worker/disks.rs",
            from: "self.begin_whole(conn, flight, Io::flush()),",
            to: "self.begin_whole(conn, flight, Io::flush_up_to(0)),",
        }],
        test: Test::it("forebay-cli", "serve::"),
        says: "FAILED",
    },
    Bug {
        name: "serve-pool-without-budget",
        what: "a worker lends memory beyond its budget",
        edits: &[Edit {
            file: "crates/forebay-serve/src/pool.rs",
            from: "self.lent_bytes + piece <= self.budget_bytes && (more == 0 ||",
            to: "(more <= left || left < more ||",
        }],
        test: Test::unit("forebay-serve", "pool::tests::greedy_clients_leave_everybody_a_share"),
        says: "",
    },
    Bug {
        name: "serve-handshake-never-cut-off",
        what: "a client may stay in its handshake for ever",
        edits: &[Edit {
            file: "crates/forebay-serve/src/worker/life.rs",
            from: "conn.deadline_ns = Some(self.disks.now_ns + HANDSHAKE_NS);",
            to: "conn.deadline_ns = Some(self.disks.now_ns + 1000 * HANDSHAKE_NS);",
        }],
        test: Test::it("forebay-cli", "hostile::floods::who_chooses_no_export_is_cut_off"),
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
        test: Test::unit("forebay-serve", "metrics::"),
        says: "FAILED",
    },
    Bug {
        name: "serve-stages-not-timed",
        what: "the metrics record 0 ns for every stage of a request",
        edits: &[Edit {
            file: "crates/forebay-serve/src/metrics/registry.rs",
            from: "self.exports[export][stage as usize].record(ns);",
            to: "self.exports[export][stage as usize].record(ns.min(0));",
        }],
        test: Test::unit("forebay-serve", "metrics::registry::"),
        says: "FAILED",
    },
    Bug {
        name: "serve-client-certificate-not-asked-for",
        what: "--tls-verify-peer lets in clients without a certificate",
        edits: &[Edit {
            file: "crates/forebay-serve/src/tls.rs",
            from: "    let builder = if verify_peer {",
            to: "    let builder = if verify_peer && folder.as_os_str().is_empty() {",
        }],
        test: Test::unit("forebay-serve", "tls::tests::"),
        says: "FAILED",
    },
    Bug {
        name: "serve-holes-reported-as-data",
        what: "BLOCK_STATUS reports holes as data",
        edits: &[Edit {
            file: "crates/forebay-serve/src/worker/status.rs",
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
        test: Test::unit("forebay-nbd", "requests::only_fast_zeroes_are_not_supported"),
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
        test: Test::it("forebay-cli", "bench::"),
        says: "FAILED",
    },
];
