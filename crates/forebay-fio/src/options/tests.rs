//! The table is consistent, values arrive where they belong, and refusals say what would do.

use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::job::{Engine, Job, OutputFormat};
use crate::units::Size;

fn apply(name: &str, value: &str) -> Result<(Given, RunOptions), UsageError> {
    let (mut given, mut run) = (Given::default(), RunOptions::default());
    row(name)?.apply(name, value, &mut given, &mut run)?;
    Ok((given, run))
}

fn row(name: &str) -> Result<&'static OptionSpec, UsageError> {
    match lookup(name)? {
        Found::Supported(spec) => Ok(spec),
        found => panic!("{name}: {found:?}"),
    }
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
        assert!(known::find(name).is_none(), "{name} is supported: take it out of options/known");
    }
    for name in known::all().flat_map(|foreign| foreign.names) {
        assert!(seen.insert(name), "{name} twice");
    }
}

#[test]
fn every_default_is_what_a_job_has_without_the_option() {
    let job = |given| Job::new("j".to_owned(), given, Vec::new()).expect("no conflict");
    // A default of several words is a description. The program compares those of settings.
    let is_value = |spec: &&OptionSpec| {
        let is_setting = matches!(spec.kind, Kind::Policy { .. } | Kind::Owner { .. });
        !spec.default.is_empty() && !spec.default.contains(' ') && !is_setting
    };
    for spec in OPTIONS.iter().filter(is_value) {
        let (given, run) = apply(spec.name, spec.default).expect(spec.name);
        assert_eq!(job(given), job(Given::default()), "{}={}", spec.name, spec.default);
        assert_eq!(run, RunOptions::default(), "{}={}", spec.name, spec.default);
    }
}

#[test]
fn help_of_every_option_has_its_default() {
    for spec in OPTIONS.iter().filter(|spec| !matches!(spec.name, "name" | "help")) {
        assert!(!spec.default.is_empty(), "{}", spec.name);
    }
}

#[test]
fn aliases_set_the_same() {
    assert_eq!(given("readwrite", "randrw"), given("rw", "randrw"));
    assert_eq!(given("blocksize", "8k").bs, Some(8192));
    assert_eq!(given("iodepth_batch_submit", "3").iodepth_batch, Some(3));
    assert_eq!(given("iodepth_batch_complete", "4").iodepth_batch_complete_min, Some(4));
    assert_eq!(given("timeout", "2m").runtime, Some(Duration::from_secs(120)));
    assert_eq!(row("output_format").expect("a dash").name, "output-format");
}

#[test]
fn values_arrive_where_they_belong() {
    assert_eq!(given("rwmixwrite", "30").rwmixread, Some(70));
    assert_eq!(given("buffered", "0").direct, Some(true));
    assert_eq!(given("size", "50%").size, Some(Size::Percent(50).into()));
    assert_eq!(given("verify", "0").verify, Some(false));
    assert_eq!(given("verify", "crc32c").verify, Some(true));
    assert_eq!(given("ioengine", "io_uring").ioengine, Some(Engine::IoUring));
    assert_eq!(given("ioengine", "psync").ioengine, Some(Engine::Psync));
    assert_eq!(given("ioengine", "sync").ioengine, Some(Engine::Sync));
    // The name in the header of a report.
    assert_eq!(given("ioengine", "file").ioengine, None);
    for key in
        ["plug", "wake", "run_queue", "nr_requests", "reserved_tags", "tag_set", "flush", "elide"]
    {
        assert_eq!(given(key, "a value").policies, [(key, "a value".to_owned())]);
    }
    let (_, run) = apply("output-format", "json").expect("a format");
    assert_eq!(run.format, OutputFormat::JSON);
}

#[test]
fn unknown_names_get_the_nearest_one() {
    check_error("iodpth", "4", "unknown option --iodpth; did you mean --iodepth?");
    check_error("io-depth", "4", "unknown option --io-depth; did you mean --iodepth?");
    check_error("frobnicate", "4", "unknown option --frobnicate; see forebay bench --help");
}

#[test]
fn options_of_fio_alone_are_refused_with_a_remedy() {
    let error =
        UsageError::NotSupported { name: "wait_for".to_owned(), instead: "use --stonewall" };
    let message = "--wait_for: forebay does not support this fio option; use --stonewall";
    assert_eq!(error.to_string(), message);
    let refused = known::all().filter_map(|foreign| match foreign.verdict {
        Verdict::Refused(instead) => Some((foreign.names[0], instead)),
        Verdict::Ignored(_) => None,
    });
    for (name, instead) in refused {
        let found = lookup(name).expect(name);
        assert!(matches!(found, Found::Refused(_, hint) if hint == instead), "{name}: {found:?}");
        for word in instead.split([' ', ',', ';', ':']).filter_map(|w| w.strip_prefix("--")) {
            let advised = word.split('=').next().unwrap_or(word);
            assert!(advised == "version" || lookup(advised).is_ok(), "{name}: {instead}");
        }
    }
}

#[test]
fn ignored_options_have_a_reason() {
    let Ok(Found::Ignored(foreign, why)) = lookup("clocksource") else { panic!("it is ignored") };
    assert_eq!((foreign.names, why), (&["clocksource"][..], "the clock is always CLOCK_MONOTONIC"));
    let flags = ["userspace_reap"];
    for name in flags {
        assert!(lookup(name).expect(name).is_flag(), "{name}");
    }
}

#[test]
fn bad_values_are_refused_by_option_value_and_accepted_ones() {
    check_error(
        "bs",
        "4z",
        "--bs=4z: unknown unit 'z' (accepted: a size such as 4096, 4k, 1m or 1g, where k = 1024 \
         and kib = 1000, or up to three: read,write,trim)",
    );
    check_error(
        "blocksize",
        "0",
        "--blocksize=0: below the minimum, 1 (accepted: a size such as 4096, 4k, 1m or 1g, where k \
         = 1024 and kib = 1000, or up to three: read,write,trim)",
    );
    check_error(
        "iodepth",
        "many",
        "--iodepth=many: not a whole number (accepted: a number from 1 to 65536)",
    );
    check_error(
        "rwmixread",
        "120",
        "--rwmixread=120: above the maximum, 100 (accepted: a number from 0 to 100)",
    );
    check_error("direct", "2", "--direct=2: neither 0 nor 1 (accepted: 0 or 1)");
    check_error(
        "ioengine",
        "iouring",
        "--ioengine=iouring: unknown value 'iouring'; did you mean 'io_uring'? (accepted: libaio, \
         io_uring, psync, sync, vsync, pvsync, pvsync2, mmap, posixaio, null, nbd, rbd, file)",
    );
    check_error(
        "ioengine",
        "libaoi",
        "--ioengine=libaoi: unknown value 'libaoi'; did you mean 'libaio'? (accepted: libaio, \
         io_uring, psync, sync, vsync, pvsync, pvsync2, mmap, posixaio, null, nbd, rbd, file)",
    );
    check_error(
        "ioengine",
        "ram",
        "--ioengine=ram: ram is a driver: name the disk by --filename=ram:..., without --ioengine \
         (accepted: libaio, io_uring, psync, sync, vsync, pvsync, pvsync2, mmap, posixaio, null, \
         nbd, rbd, file)",
    );
    check_error("filename", "", "--filename=: empty value (accepted: any text)");
}

#[test]
fn the_help_lists_every_option() {
    let help = help();
    for spec in OPTIONS {
        assert!(help.contains(&format!("--{}", spec.name)), "{}", spec.name);
    }
}

#[test]
fn words_are_those_of_lists_only() {
    let words =
        |name: &str| OPTIONS.iter().find(|option| option.name == name).expect(name).kind.words();
    assert_eq!(words("wake"), ["fair", "batch", "stash", "single"]);
    assert_eq!(words("direct"), ["0", "1"]);
    assert_eq!(words("output-format"), ["normal", "terse", "json", "json+"]);
    assert!(words("rw").contains(&"randrw"));
    for name in ["bs", "iodepth", "tag_set", "verify_pattern", "random_distribution", "weight"] {
        assert!(words(name).is_empty(), "{name}: {:?}", words(name));
    }
}

#[test]
fn refused_times_in_microseconds_name_the_reason() {
    let not_whole = "not a whole number of microseconds";
    for (value, reason) in [
        ("1.5", not_whole),
        ("99999999999999999999", "too large"),
        ("-5", "not a whole number"),
        (
            "1.5s",
            "a fraction, which fio does not read (it ignores the point and everything after it): \
             write 1500ms",
        ),
    ] {
        let message = apply("thinktime", value).expect_err(value).to_string();
        assert!(message.contains(reason), "{value}: {message}");
        assert_eq!(message.contains(not_whole), reason == not_whole, "{value}: {message}");
    }
}
