//! The integration tests, as one program: shared helpers are compiled once, and all of them are
//! used.

mod against_fio;
mod backward_beside_fio;
mod bench;
mod calibrate;
#[path = "../../../forebay/tests/support/ceph.rs"]
#[expect(dead_code, reason = "tests of the library use the rest")]
mod ceph;
mod common;
mod compare;
mod data_beside_fio;
mod endings;
mod engines;
mod errors_beside_fio;
mod every_option;
mod everyday;
mod files_beside_fio;
mod histogram_logs;
mod job_files;
mod lab;
mod latency_target;
mod load;
mod manual;
#[path = "../../src/option_examples.rs"]
mod option_examples;
mod pictures;
mod priorities;
mod probes;
mod refusals;
mod replay;
mod replay_trims;
mod run;
mod run_apps;
mod run_flush;
mod run_kill;
mod run_mariadb;
#[path = "../../../forebay/tests/it/seccomp.rs"]
mod seccomp;
mod serve;
mod sharing;
mod sim;
mod sim_faults;
mod sim_notes;
mod sim_recorded;
mod sim_reports;
mod sim_scenarios;
#[path = "../../../forebay/tests/support/skip.rs"]
mod skip_support;
mod steady_beside_fio;
#[path = "../../../forebay/tests/support/storage_daemon.rs"]
mod storage_daemon;
mod takeover;
mod terse;
mod trace;
mod trace_btt;
mod trace_kinds;
mod trace_programs;
mod units;
mod unprivileged;
mod verify_fio;
mod vhost_user;
mod zones;
