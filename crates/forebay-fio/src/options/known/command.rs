//! fio's options of the command line alone.

use super::{Foreign, flag, ignored, refused};

const ONE_MACHINE: &str = "run forebay on that machine, for instance through ssh";
const TRIGGER: &str = "send SIGINT to forebay, which ends the run and prints the report";

#[rustfmt::skip]
pub(super) static OPTIONS: &[Foreign] = &[
    ignored(&["debug"], "it adds nothing to the report"),
    ignored(&["alloc-size"], "there is no memory pool"),
    ignored(&["max-jobs"], "jobs are threads; the system sets the limit"),
    ignored(&["eta-interval"], "the progress line is renewed every second"),
    ignored(&["aux-path"], "no state files are written"),
    flag(refused(&["merge-blktrace-only"], "use fio to merge traces")),
    flag(refused(&["bandwidth-log"], "use --write_bw_log")),
    flag(refused(&["version"], "use forebay --version")),
    flag(refused(&["cpuclock-test"], "use fio to test the clock")),
    flag(refused(&["crctest", "memcpytest"], "use fio for these tests")),
    flag(refused(&["cmdhelp", "enghelp"], "use --help=OPTION, such as --help=verify")),
    flag(refused(&["server"], ONE_MACHINE)),
    refused(&["client", "remote-config", "daemonize"], ONE_MACHINE),
    refused(&["idle-prof"], "use perf stat -a"),
    refused(&["inflate-log"], "use fio to inflate its logs"),
    refused(&["trigger-file", "trigger-timeout", "trigger", "trigger-remote"], TRIGGER),
];
