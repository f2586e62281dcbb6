//! Unit tests of `side`.

use super::*;
use forebay_fio::cmdline::{Parsed, parse};

fn jobs(args: &str) -> Vec<Job> {
    match parse(args.split(' ').map(Into::into)) {
        Ok(Parsed::Run(command)) => command.jobs,
        other => panic!("{args}: {other:?}"),
    }
}

#[track_caller]
fn check(args: &str, with: &str, expected: &[&str]) {
    let targets = plan(&on_other(&jobs(args), with).expect(with)).expect(with);
    let specs: Vec<_> = targets.iter().map(|target| target.spec.to_string()).collect();
    assert_eq!(specs, expected, "{args} with {with}");
}

#[test]
fn every_job_goes_to_the_other_device() {
    check("--name=a --filename=x --name=b --rw=write", "ram:1M", &["ram:1M", "ram:1M"]);
    check("--name=a --filename=x --numjobs=2", "ram:1M", &["ram:1M", "ram:1M"]);
    check("--name=a --filename=x --plug=none", "ram:1M", &["ram:1M?plug=none"]);
    let with = "ram:1M?plug=per-level";
    check("--name=a --filename=x --plug=none", with, &[with]);
    check("--name=a --rw=write --direct=1", "y?direct=off", &["y?direct=off"]);
    check("--ioengine=null", "ram:1M", &["ram:1M"]);
}

#[test]
fn changed_keys_leave_the_device_as_it_is() {
    check("--filename=ram:1M?plug=none", "?plug=per-level", &["ram:1M?plug=per-level"]);
    check(
        "--filename=ram:1M --plug=none --nomerges=1",
        "?plug=per-level&io_ns=5",
        &["ram:1M?io_ns=5&nomerges=1&plug=per-level"],
    );
    check(
        "--name=a --rw=write --numjobs=2",
        "?kick=per-device",
        &["a.0.0?kick=per-device", "a.1.0?kick=per-device"],
    );
    check("--rw=write --filename=x --direct=1", "?direct=off", &["x?direct=off"]);
}

/// An option that sets the same key as `--compare` must not overwrite it.
#[test]
fn keys_of_the_other_side_override_the_options_of_the_same_setting() {
    let args = "--name=a --rw=write --filename=x";
    check(&format!("{args} --sqthread_poll=1"), "?sqpoll=off", &["x?sqpoll=off"]);
    check(&format!("{args} --sqthread_poll=1"), "y?sqpoll=off", &["y?sqpoll=off"]);
    check(&format!("{args} --direct=1"), "?direct=off", &["x?direct=off"]);
    check(&format!("{args} --fixedbufs=1"), "?fixed_buffers=8k", &["x?fixed_buffers=8k"]);
    // A job with fixedbufs=0 would not use the registered memory.
    for with in ["?fixed_buffers=8k", "y?fixed_buffers=8k"] {
        let other = on_other(&jobs(&format!("{args} --fixedbufs=0")), with).expect(with);
        assert_eq!(other[0].fixedbufs, None, "{with}");
    }
}

#[test]
fn a_device_that_makes_no_sense_is_refused() {
    let error = |with: &str| on_other(&jobs("--name=a"), with).expect_err(with).to_string();
    let message = "--compare=?: missing key; expected ?key=value, such as ?plug=none";
    assert_eq!(error("?"), message);
    assert_eq!(error("?plug"), "--compare=?plug: missing = in `plug`; expected key=value");
    let message = "--compare=?io_ns=5: a: the key `io_ns` needs a job with --filename";
    assert_eq!(error("?io_ns=5"), message);
    assert!(error("nvme:x").starts_with("--compare=nvme:x: "), "{}", error("nvme:x"));
}

#[test]
fn unknown_side_is_refused_with_the_accepted_ones() {
    let error = |with: &str| check_word(with).expect_err(with).to_string();
    let expected = "--compare=spdk: unknown side 'spdk'; expected fio, a device spec such as \
                    ram:1G or /dev/vdb, or ?key=value for the same device with other settings; \
                    for a new file of this name write ./spdk";
    assert_eq!(error("spdk"), expected);
    assert!(error("foi").ends_with("; did you mean 'fio'?"));
    assert!(error("nul").ends_with("; did you mean a disk of the driver `null`, null:...?"));
    for with in ["fio", "./spdk", "x.img", "ram:1M", "?plug=none"] {
        assert!(check_word(with).is_ok(), "{with}");
    }
}

#[test]
fn a_limit_shortens_jobs_and_lengthens_none() {
    let jobs = jobs("--filename=null:1M --name=a --runtime=5 --name=b --runtime=10ms --name=c");
    let side = Side::ours(&jobs, &plan(&jobs).expect("a plan")).expect("a side");
    let limits = |limit| {
        let all = side.arguments(limit);
        let times: Vec<_> = all.iter().filter_map(|word| word.strip_prefix("--runtime=")).collect();
        times.join(" ")
    };
    assert_eq!(limits(None), "5s 10ms");
    assert_eq!(limits(Some(Duration::from_secs(1))), "1s 10ms 1s");
}

#[test]
fn options_of_the_report_are_left_out() {
    let jobs = jobs(
        "--name=a --filename=null:1M --percentile_list=90 --unified_rw_reporting=mixed \
         --loops=2",
    );
    let side = Side::ours(&jobs, &plan(&jobs).expect("a plan")).expect("a side");
    assert!(side.command(None).ends_with("--group_reporting --loops=2"), "{}", side.command(None));
}

#[test]
fn commands_can_be_copied_into_a_shell() {
    let jobs = jobs("--name=a --filename=null:1M?plug=none --rw=randread");
    let side = Side::ours(&jobs, &plan(&jobs).expect("a plan")).expect("a side");
    assert_eq!(
        side.command(None),
        "forebay bench --name=a '--filename=null:1M?plug=none' --rw=randread --bs=4096 \
         --group_reporting"
    );
    assert_eq!(side.title, "forebay, null:1M?plug=none");
    assert_eq!(quoted("a'b c"), r"'a'\''b c'");
}
