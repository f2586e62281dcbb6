//! Defaults, values that are brought into line, regions, and contradictions.

use super::*;
use crate::generator::skew::Distribution;

fn job(given: Given) -> Job {
    Job::new("j".to_owned(), given, Vec::new()).expect("no conflict")
}

#[test]
fn the_defaults_are_those_of_fio() {
    let job = job(Given::default());
    assert_eq!((job.rw.word(), job.bs, job.iodepth), ("read", 4096, 1));
    assert_eq!((job.iodepth_batch, job.iodepth_low, job.numjobs), (1, 1, 1));
    assert_eq!((job.iodepth_batch_complete_min, job.iodepth_batch_complete_max), (1, 1));
    assert_eq!((job.runtime, job.time_based, job.direct), (None, false, None));
    assert_eq!((job.randseed, job.randrepeat, job.do_verify), (0x89, true, true));
    assert_eq!((job.invalidate, job.allow_mounted_write), (true, false));
    assert_eq!(job.default_filenames(2), ["j.2.0"]);
}

#[test]
fn depths_are_brought_into_line() {
    let depths = |batch, min, max, low| {
        let job = job(Given {
            iodepth: Some(32),
            iodepth_batch: batch,
            iodepth_batch_complete_min: min,
            iodepth_batch_complete_max: max,
            iodepth_low: low,
            ..Given::default()
        });
        (
            job.iodepth_batch,
            job.iodepth_batch_complete_min,
            job.iodepth_batch_complete_max,
            job.iodepth_low,
        )
    };
    assert_eq!(depths(None, None, None, None), (1, 1, 1, 32));
    assert_eq!(depths(Some(64), Some(64), Some(64), Some(64)), (32, 32, 32, 32));
    assert_eq!(depths(Some(0), Some(0), None, Some(0)), (32, 0, 1, 32));
    assert_eq!(depths(Some(8), Some(16), None, Some(4)), (8, 16, 16, 4));
    assert_eq!(depths(Some(8), Some(16), Some(8), None), (8, 16, 16, 32));
    assert_eq!(depths(Some(8), Some(1), Some(20), None), (8, 1, 20, 32));
}

#[track_caller]
fn check_region(
    offset: Option<Size>,
    size: Option<Size>,
    capacity: u64,
    expected: Result<(u64, u64), &str>,
) {
    let (offset, size) = (offset.map(Into::into), size.map(Into::into));
    let job = job(Given { offset, size, ..Given::default() });
    let region = job.region(capacity).map(|region| (region.offset, region.len));
    match (region, expected) {
        (Ok(region), Ok(expected)) => assert_eq!(region, expected),
        (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
        (region, expected) => panic!("{region:?} instead of {expected:?}"),
    }
}

#[test]
fn the_region_is_cut_to_whole_blocks() {
    let bytes = |n| Some(Size::Bytes(n));
    let percent = |n| Some(Size::Percent(n));
    check_region(None, None, 1 << 20, Ok((0, 1 << 20)));
    check_region(None, bytes(10_240), 1 << 20, Ok((0, 8192)));
    // The capacity of a file of 1000000 bytes under direct I/O.
    check_region(None, bytes(1_000_000), 999_936, Ok((0, 244 * 4096)));
    check_region(bytes(8192), None, 1 << 20, Ok((8192, (1 << 20) - 8192)));
    check_region(percent(99), percent(1), 1 << 20, Ok((1_040_384, 8192)));
    check_region(percent(50), percent(75), 1 << 20, Ok((1 << 19, 1 << 19)));
    check_region(None, bytes(1 << 21), 1 << 20, Err("beyond the end"));
    check_region(bytes(1 << 21), None, 1 << 20, Err("beyond the end"));
    check_region(None, None, 4095, Err("the block size (4096 bytes) is larger"));
    check_region(bytes(1 << 20), None, 1 << 20, Err("is larger than the region (0 bytes)"));
}

#[test]
fn the_smallest_io_of_every_direction_must_fit() {
    let load = Load { bs: Some([Some(4096), Some(65_536), None]), ..Load::default() };
    let given =
        |word| Given { rw: Pattern::from_word(word), load: load.clone(), ..Given::default() };
    let error = job(given("rw")).region(32_768).expect_err("too small").to_string();
    assert!(error.starts_with("j: the block size (65536 bytes) is larger"), "{error}");
    assert!(job(given("read")).region(32_768).is_ok(), "it does not write");
    assert!(job(given("randrw")).region(65_536).is_ok());
}

#[test]
fn writes_to_zones_use_whole_zones_of_a_bounded_number() {
    let region = |word, capacity| {
        let mut load = Load::default();
        (load.zones.mode, load.zones.size) = (ZoneMode::Zbd, 65_536);
        let offset = Some(Size::Bytes(4096).into());
        let given = Given { rw: Pattern::from_word(word), load, offset, ..Given::default() };
        job(given).region(capacity).map_err(|error| error.to_string())
    };
    assert_eq!(region("write", 200_000), Ok(Region { offset: 65_536, len: 131_072 }));
    assert_eq!(region("read", 200_000), Ok(Region { offset: 4096, len: 192_512 }));
    for capacity in [100_000, 60_000] {
        let error = region("write", capacity).expect_err("an error");
        let region = format!("j: the region from 4096 to {capacity}");
        let text = format!("{region} contains no whole zone of 65536 bytes");
        assert!(error.starts_with(&text), "{error}");
    }
    assert!(region("read", 1 << 60).is_err_and(|error| error.contains("at most 16777216")));
}

/// Returns the job of a command line.
fn parsed(args: &str) -> Result<Job, String> {
    match crate::cmdline::parse(format!("--name=j {args}").split(' ').map(Into::into)) {
        Ok(crate::cmdline::Parsed::Run(command)) => Ok(command.jobs[0].clone()),
        Ok(other) => panic!("{other:?}"),
        Err(errors) => Err(format!("{errors:?}")),
    }
}

#[test]
fn sizes_may_be_numbers_of_zones() {
    let sizes = "--size=4z --offset=2Z --io_size=3z --offset_increment=1z";
    for mode in ["zbd", "strided"] {
        let job = parsed(&format!("--zonemode={mode} --zonesize=64k {sizes}")).expect("a job");
        assert_eq!((job.size, job.offset), (Some(Size::Bytes(4 << 16)), Size::Bytes(2 << 16)));
        assert_eq!(job.io_size, Some(Size::Bytes(3 << 16)));
        assert_eq!(job.files.offset_increment, Some(Size::Bytes(1 << 16)));
    }
    for option in sizes.split(' ') {
        for zones in ["", "--zonesize=64k "] {
            let error = parsed(&format!("{zones}{option}")).expect_err(option);
            let text = format!("{} is a number of zones", option.to_lowercase());
            assert!(error.contains(&text) && error.contains("--zonemode"), "{error}");
        }
    }
    assert!(parsed("--zonemode=zbd --zonesize=64k --size=4y").is_err());
}

#[test]
fn zones_without_a_size_are_refused_when_the_region_is_determined() {
    for args in ["--rw=write --verify=crc32c --size=1G", "--max_open_zones=3 --zonecapacity=4k"] {
        let job = parsed(&format!("--zonemode=zbd {args}")).expect(args);
        let text = "j: --zonemode=zbd needs --zonesize: its zones are emulated, so no device \
                    reports their size";
        assert_eq!(job.region(1 << 30).map_err(|error| error.to_string()), Err(text.to_owned()));
        assert_eq!(job.zoned(), None);
    }
    assert!(parsed("--zonemode=strided").is_err_and(|error| error.contains("needs --zonesize")));
}

#[test]
fn reads_of_zones_warn_unless_a_job_writes_to_zones_of_the_same_file() {
    let warns = |args: &str| -> Result<Vec<bool>, String> {
        let args = format!("--zonemode=zbd --zonesize=64k --filename=ram:1M {args}");
        match crate::cmdline::parse(args.split(' ').map(Into::into)) {
            Ok(crate::cmdline::Parsed::Run(command)) => {
                let of_zones = |text: &String| text.starts_with("emulated zones are empty");
                let has_one = |job: &Job| job.warnings.iter().any(of_zones);
                Ok(command.jobs.iter().map(has_one).collect())
            }
            Ok(other) => panic!("{other:?}"),
            Err(errors) => Err(errors.to_string()),
        }
    };
    let writes_first = "--name=w --rw=write --name=r --stonewall --rw=read";
    for (args, expected) in [
        ("--name=r --rw=read", &[true][..]),
        ("--name=r --rw=randread --read_beyond_wp=1", &[false]),
        ("--name=m --rw=rw", &[false]),
        (writes_first, &[false, false]),
        ("--name=w --rw=rw --name=r --rw=read", &[false, false]),
        ("--name=r --rw=read --name=s --rw=read", &[true, true]),
        ("--name=w --rw=write --name=r --rw=read --filename=ram:2M", &[false, true]),
        ("--name=w --rw=write --zonemode=none --name=r --rw=read --zonemode=zbd", &[false, true]),
    ] {
        assert_eq!(warns(args).as_deref(), Ok(expected), "{args}");
    }
    assert!(warns(&format!("--warnings-fatal {writes_first}")).is_ok());
    let error = warns("--warnings-fatal --name=r --rw=read").expect_err("a warning");
    assert!(error.starts_with("r: emulated zones are empty"), "{error}");
}

#[test]
fn percentage_of_io_size_counts_skipped_bytes() {
    let has_io_bytes = |args: &str| {
        let job = parsed(&format!("--rw=write --zonemode=zbd --zonesize=64k {args}"));
        job.expect(args).zoned().expect("zones").has_io_bytes
    };
    assert!(has_io_bytes("--io_size=1m") && has_io_bytes("--io_size=3z"));
    assert!(!has_io_bytes("--io_size=100%") && !has_io_bytes("--io_size=0"));
}

#[test]
fn region_that_is_rounded_to_whole_zones_has_a_note() {
    let note = |args: &str, capacity| {
        let job = parsed(&format!("--zonemode=zbd --zonesize=64k {args}")).expect(args);
        let extent = job.extent(0, 0, 1, Some(capacity));
        let region = job.region_of(&extent, capacity).expect("a region");
        job.note_of_rounding(&extent, capacity, region)
    };
    let text = note("--rw=write --offset=100k --size=500k", 1 << 20).expect("a note");
    assert!(
        text.ends_with("offset 102400 up to 131072, and its end 614400 down to 589824"),
        "{text}"
    );
    let text = note("--rw=write", (1 << 20) + 4096).expect("a note");
    assert!(text.ends_with("its end 1052672 down to 1048576") && !text.contains("offset"));
    for args in ["--rw=write --offset=64k --size=128k", "--rw=read --offset=100k --size=500k"] {
        assert_eq!(note(args, 1 << 20), None, "{args}");
    }
}

#[test]
fn single_block_size_uses_the_plain_generator() {
    let variety = |load: Load, word| {
        let given = Given { rw: Pattern::from_word(word), load, ..Given::default() };
        job(given).variety.is_some()
    };
    assert!(!variety(Load::default(), "randrw"));
    let each = |read, write| Load { bs: Some([Some(read), Some(write), None]), ..Load::default() };
    assert!(!variety(each(4096, 8192), "randread"), "only one of them occurs");
    assert!(variety(each(4096, 8192), "randrw"));
    assert!(!variety(each(4096, 4096), "randrw"));
    let zipf = Load { random_distribution: Some(Distribution::Zipf(1.1)), ..Load::default() };
    assert!(variety(zipf.clone(), "randread") && !variety(zipf, "read"));
    assert!(variety(Load { number_ios: Some(1), ..Load::default() }, "read"));
}

#[test]
fn io_size_is_one_pass_unless_given_or_time_based() {
    let region = Region { offset: 0, len: 8192 };
    let io_size = |given| job(given).workload(region, 0, 0).io_size;
    assert_eq!(io_size(Given::default()), Some(8192));
    let given = Given { io_size: Some(Size::Bytes(100).into()), ..Given::default() };
    assert_eq!(io_size(given), Some(100));
    let given = Given { io_size: Some(Size::Percent(50).into()), ..Given::default() };
    assert_eq!(io_size(given), Some(4096));
    let runtime = Some(Duration::from_secs(1));
    let given = Given { runtime, time_based: Some(true), ..Given::default() };
    assert_eq!(io_size(given), None);
}

#[test]
fn chance_enters_the_seed_only_when_wanted() {
    let region = Region { offset: 0, len: 8192 };
    let seed = |randrepeat| {
        let given = Given { randrepeat, randseed: Some(3), ..Given::default() };
        job(given).workload(region, 0, 4).seed
    };
    assert_eq!(seed(None), 3);
    assert_eq!(seed(Some(false)), 7);
}

#[test]
fn contradictions_are_refused() {
    let error =
        |given| Job::new("j".to_owned(), given, Vec::new()).expect_err("a conflict").to_string();
    let given = Given { time_based: Some(true), ..Given::default() };
    assert_eq!(error(given), "j: --time_based needs --runtime");
    let checks = |interval, header_at| Checks {
        method: Method::from_word("md5"),
        interval,
        header_at,
        ..Checks::default()
    };
    let given = |bs, checks| Given { verify: Some(true), bs: Some(bs), checks, ..Given::default() };
    assert_eq!(
        error(given(32, checks(None, 0))),
        "j: --verify=md5 needs blocks of more than 56 bytes, and the smallest has 32; raise --bs \
         or --verify_interval"
    );
    assert_eq!(
        error(given(512, checks(Some(128), 80))),
        "j: --verify_offset=80 does not fit: --verify=md5 needs 56 bytes before and after it, in \
         blocks of 128 bytes"
    );
    let given = Given { verify: Some(true), rw: Pattern::from_word("trim"), ..Given::default() };
    assert_eq!(error(given), "j: --verify does not work with trims");
}

#[test]
fn headers_are_as_far_apart_as_in_fio() {
    let interval = |load: Load, word, interval| {
        let checks = Checks { method: Method::from_word("crc32c"), interval, ..Checks::default() };
        let rw = Pattern::from_word(word);
        job(Given { rw, load, checks, ..Given::default() }).format().interval
    };
    let each = |read, write| Load { bs: Some([Some(read), Some(write), None]), ..Load::default() };
    let split = |sizes: &[u32]| Load {
        bssplit: Some(
            [(); 3].map(|()| Some(SizeRule::Split(sizes.iter().map(|&size| (size, 0)).collect()))),
        ),
        ..Load::default()
    };
    assert_eq!(interval(each(4096, 4096), "write", None), 4096);
    assert_eq!(interval(each(4096, 4096), "write", Some(512)), 512);
    assert_eq!(interval(each(4096, 4096), "write", Some(8192)), 4096);
    assert_eq!(interval(each(4096, 4096), "write", Some(3072)), 4096, "no factor of 4096");
    assert_eq!(interval(each(1024, 4096), "rw", Some(2048)), 1024);
    assert_eq!(interval(each(1024, 4096), "write", Some(2048)), 2048);
    assert_eq!(interval(split(&[4096, 8192]), "write", None), 4096);
    assert_eq!(interval(split(&[4096, 6144, 10_240]), "write", None), 2048);
    let unaligned = Load { bs_unaligned: true, ..split(&[4096, 8192]) };
    assert_eq!(interval(unaligned, "write", None), 0, "one header in each I/O");
}

#[test]
fn blocking_calls_have_depth_one_and_say_so() {
    let blocking = |iodepth| {
        let ioengine = Some(Engine::Sync);
        job(Given { iodepth, ioengine, ..Given::default() })
    };
    let deep = blocking(Some(32));
    assert_eq!(deep.iodepth, 1);
    let warning = "--iodepth=32 has no effect: --ioengine=sync makes blocking calls, one at a time";
    assert_eq!(deep.warnings, [warning]);
    assert!(blocking(Some(1)).warnings.is_empty() && blocking(None).warnings.is_empty());
}

#[test]
fn a_stonewall_begins_a_stage_and_a_new_group_only_a_group() {
    let stonewall = || job(Given { stonewall: Some(true), ..Given::default() });
    let new_group = || job(Given { new_group: Some(true), ..Given::default() });
    let plain = || job(Given::default());
    let mut jobs = [stonewall(), plain(), new_group(), plain(), stonewall(), stonewall()];
    number_groups(&mut jobs);
    let numbers = jobs.each_ref().map(|job| (job.group, job.stage));
    assert_eq!(numbers, [(0, 0), (0, 0), (1, 0), (1, 0), (2, 1), (3, 2)]);
}
