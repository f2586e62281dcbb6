//! Names, sizes and parts of the files of a job.

use super::*;
use crate::cmdline::{Parsed, parse};

fn job(args: &str) -> Job {
    let args = format!("--name=a {args}");
    match parse(args.split_whitespace().map(Into::into)) {
        Ok(Parsed::Run(command)) => command.jobs[0].clone(),
        other => panic!("{args}: {other:?}"),
    }
}

#[test]
fn names_are_separated_by_colons() {
    assert_eq!(split_names("a"), ["a"]);
    assert_eq!(split_names(r"a:b\:c::d"), ["a", "b:c", "d"]);
}

#[test]
fn generated_names_are_those_of_fio() {
    assert_eq!(job("").default_filenames(2), ["a.2.0"]);
    let named = job("--nrfiles=2 --filename_format=$jobname-$jobnum-$filenum");
    assert_eq!(named.default_filenames(1), ["a-1-0", "a-1-1"]);
    let spread = job("--directory=x:y");
    let directories: Vec<_> = (0..3).filter_map(|clone| spread.directory(clone)).collect();
    assert_eq!(directories, ["x", "y", "x"]);
    assert_eq!(job("--directory=x:y --filename=f").directory(1).as_deref(), Some("x"));
}

#[test]
fn options_of_generated_names_have_no_effect_beside_a_filename() {
    let warnings = |args: &str| {
        let job = job(args);
        job.files.warnings(job.filename.as_deref())
    };
    let all = warnings("--nrfiles=3 --filename_format=$jobname-$filenum --filename=a:b");
    let void = "has no effect: --filename names the files";
    let expected =
        [format!("--nrfiles=3 {void}"), format!("--filename_format=$jobname-$filenum {void}")];
    assert_eq!(all, expected);
    for args in [
        "--nrfiles=2 --filename=a:b",
        "--nrfiles=3 --filename_format=$jobname-$filenum",
        "--filename_format=$jobname.$jobnum.$filenum --filename=a",
    ] {
        assert!(warnings(args).is_empty(), "{args}");
    }
}

#[track_caller]
fn check(args: &str, clone: u32, length: Option<u64>, expected: (u64, Option<u64>)) {
    let extent = job(args).extent(clone, 0, 3, length);
    let size = extent.size.map(|size| size.of(1 << 20));
    assert_eq!((extent.start(1 << 20), size), expected, "{args}");
}

#[test]
fn size_is_divided_and_filesize_is_not() {
    check("", 0, None, (0, None));
    check("--size=40k", 0, None, (0, Some(13_653)));
    check("--filesize=16k", 0, None, (0, Some(16_384)));
    check("--filesize=16k --size=20k", 0, Some(65_536), (0, Some(16_384)));
    check("--filesize=16k-64k", 0, Some(20_000), (0, Some(20_000)));
    check("--size=30k --offset=4k --offset_increment=8k", 2, None, (20_480, Some(10_240)));
    check("--size=30k --offset_increment=10%", 1, None, (104_857, Some(10_240)));
    check("--size=30k --offset=4k --file_append=1", 2, Some(5000), (5000, Some(10_240)));
    check("--filesize=16k --offset=4k", 0, None, (4096, Some(12_288)));
}

#[test]
fn percentages_are_of_the_length_of_the_file_and_rounded_up_to_a_block() {
    check("--size=30k --offset=10%", 0, Some(0), (0, Some(10_240)));
    check("--size=30k --offset=10%", 0, Some(65_536), (8192, Some(10_240)));
    check("--bs=12k,4k --size=30k --offset=10%", 0, Some(65_536), (8192, Some(10_240)));
    check("--size=30k --offset=1 --offset_increment=10%", 2, Some(50_000), (12_288, Some(10_240)));
    check("--filesize=16k --offset=50%", 0, Some(0), (0, Some(16_384)));
    check("--filesize=64k --offset=50%", 0, Some(32_768), (16_384, Some(49_152)));
    check("--filesize=16k-64k --offset=50%", 0, Some(32_768), (16_384, Some(16_384)));
}

#[test]
fn length_that_depends_on_the_file_is_fixed_by_its_length() {
    let size = |args: &str, capacity| {
        let extent = job(args).extent(0, 0, 1, Some(capacity)).with_fixed_size(capacity);
        extent.size
    };
    assert_eq!(size("--offset=8k", 65_536), Some(Size::Bytes(57_344)));
    assert_eq!(size("--offset=8k --size=50%", 65_536), Some(Size::Bytes(32_768)));
    assert_eq!(size("--offset=75% --size=50%", 65_536), Some(Size::Bytes(16_384)));
    assert_eq!(size("--offset=8k --size=1m", 65_536), Some(Size::Bytes(1 << 20)));
    assert_eq!(size("--offset=8k", 8192), None);
    assert_eq!(size("--size=50%", 0), Some(Size::Percent(50)));
}

#[test]
fn sizes_of_a_range_are_drawn_by_the_seed() {
    let job = job("--filesize=16k-1m");
    let size = |clone, file| job.extent(clone, file, 3, None).size;
    assert_eq!(size(0, 1), size(0, 1));
    let all: Vec<_> = (0..9).map(|at| size(at / 3, at % 3)).collect();
    assert!(all.iter().any(|one| *one != all[0]), "{all:?}");
    for size in all.into_iter().flatten() {
        assert!((16_384..=1 << 20).contains(&size.of(0)) && size.of(0).is_multiple_of(4096));
    }
}
