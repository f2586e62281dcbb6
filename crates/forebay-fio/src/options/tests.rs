//! The table is consistent, values arrive where they belong, and refusals say what would do.

use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::job::{Engine, OutputFormat};

fn apply(name: &str, value: &str) -> Result<(Given, RunOptions), UsageError> {
    let (mut given, mut run) = (Given::default(), RunOptions::default());
    lookup(name)?.apply(name, value, &mut given, &mut run)?;
    Ok((given, run))
}

#[track_caller]
fn check_error(name: &str, value: &str, message: &str) {
    assert_eq!(apply(name, value).expect_err(name).to_string(), message);
}

#[track_caller]
fn given(name: &str, value: &str) -> Given {
    apply(name, value).expect(name).0
}

#[test]
fn names_are_unique_and_not_also_listed_as_unsupported() {
    let mut seen = HashSet::new();
    for name in OPTIONS.iter().flat_map(OptionSpec::names) {
        assert!(seen.insert(name), "{name} twice");
        assert!(!known::KNOWN_TO_FIO.contains(&name), "{name} is supported");
    }
}

#[test]
fn every_default_is_a_value_that_the_option_takes() {
    for spec in OPTIONS.iter().filter(|spec| !spec.default.is_empty()) {
        if !matches!(spec.kind, Kind::Policy { .. }) && !spec.default.starts_with("as ") {
            assert_eq!(apply(spec.name, spec.default).err(), None, "{}", spec.name);
        }
    }
}

#[test]
fn aliases_set_the_same() {
    assert_eq!(given("readwrite", "randrw"), given("rw", "randrw"));
    assert_eq!(given("blocksize", "8k").bs, Some(8192));
    assert_eq!(given("iodepth_batch_submit", "3").iodepth_batch, Some(3));
    assert_eq!(given("iodepth_batch_complete", "4").iodepth_batch_complete_min, Some(4));
    assert_eq!(given("timeout", "2m").runtime, Some(Duration::from_secs(120)));
    assert_eq!(lookup("output_format").expect("a dash").name, "output-format");
}

#[test]
fn values_arrive_where_they_belong() {
    assert_eq!(given("rwmixwrite", "30").rwmixread, Some(70));
    assert_eq!(given("buffered", "0").direct, Some(true));
    assert_eq!(given("size", "50%").size, Some(Size::Percent(50)));
    assert_eq!(given("verify", "0").verify, Some(false));
    assert_eq!(given("verify", "crc32c").verify, Some(true));
    assert_eq!(given("ioengine", "io_uring").ioengine, Some(Engine::IoUring));
    assert_eq!(given("ioengine", "psync").ioengine, Some(Engine::Psync));
    assert_eq!(given("ioengine", "sync").ioengine, Some(Engine::Sync));
    assert_eq!(given("plug", "per-level").policies, [("plug", "per-level".to_owned())]);
    let (_, run) = apply("output-format", "json").expect("a format");
    assert_eq!(run.format, OutputFormat::Json);
}

#[test]
fn unknown_names_get_the_nearest_one() {
    check_error("iodpth", "4", "unknown option --iodpth; did you mean --iodepth?");
    check_error("io-depth", "4", "unknown option --io-depth; did you mean --iodepth?");
    check_error("frobnicate", "4", "unknown option --frobnicate; see forebay bench --help");
}

#[test]
fn what_only_fio_knows_is_said_to_be_so() {
    let message = "--rate_min: fio knows it, forebay bench does not support it yet";
    check_error("rate_min", "4k", message);
    let message = "--verify_backlog: fio knows it, forebay bench does not support it yet";
    check_error("verify_backlog", "1", message);
}

#[test]
fn bad_values_name_option_value_and_what_would_do() {
    check_error(
        "bs",
        "4z",
        "--bs=4z: 'z' is not a unit here; accepted: a size such as 4096, 4k, 1m or 1g \
         (k = 1024, ki = 1000), or up to three: read,write,trim",
    );
    check_error(
        "blocksize",
        "0",
        "--blocksize=0: it is below 1; accepted: a size such as 4096, 4k, 1m or 1g \
         (k = 1024, ki = 1000), or up to three: read,write,trim",
    );
    check_error(
        "iodepth",
        "many",
        "--iodepth=many: it does not start with a whole number; accepted: a number from 1 to 65536",
    );
    check_error(
        "rwmixread",
        "120",
        "--rwmixread=120: it is above 100; accepted: a number from 0 to 100",
    );
    check_error("direct", "2", "--direct=2: it is neither 0 nor 1; accepted: 0 or 1");
    check_error(
        "ioengine",
        "mmap",
        "--ioengine=mmap: it is none of the words; accepted: libaio, io_uring, psync, sync, null",
    );
    check_error("filename", "", "--filename=: it is empty; accepted: a text");
}

#[test]
fn the_help_lists_every_option() {
    let help = help();
    for spec in OPTIONS {
        assert!(help.contains(&format!("--{}", spec.name)), "{}", spec.name);
    }
}
