//! What fio takes on its command line alone.

use super::{Foreign, ignored, refused};

const ONE_MACHINE: &str = "run it on that machine, for instance through ssh";
const TRIGGER: &str = "send it SIGINT, which ends the run and prints the report";
const FORMAT: &str = "use --output-format=normal or --output-format=json";

#[rustfmt::skip]
pub(super) static OPTIONS: &[Foreign] = &[
    ignored(&["debug"], "it adds nothing to the report"),
    ignored(&["alloc-size"], "there is no such pool"),
    ignored(&["max-jobs"], "jobs are threads; the system sets the limit"),
    ignored(&["eta-interval"], "the progress line stays one line"),
    ignored(&["aux-path"], "no state files are written"),
    refused(&["merge-blktrace-only"], "traces are not merged; fio does it"),
    refused(&["bandwidth-log"], "use --write_bw_log"),
    refused(&["minimal", "append-terse"], FORMAT),
    refused(&["terse-version"], FORMAT),
    refused(&["version"], "use forebay --version"),
    refused(&["cpuclock-test"], "fio tests the clock"),
    refused(&["crctest", "memcpytest"], "fio tests them"),
    refused(&["cmdhelp", "enghelp"], "use forebay bench --help"),
    refused(&["server"], ONE_MACHINE),
    refused(&["client", "remote-config", "daemonize"], ONE_MACHINE),
    refused(&["idle-prof"], "use perf stat beside it"),
    refused(&["inflate-log"], "fio inflates its logs"),
    refused(&["trigger-file", "trigger-timeout", "trigger", "trigger-remote"], TRIGGER),
];
