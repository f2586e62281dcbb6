//! I/O buffers, and a check before they are allocated that there is enough memory. Running out of
//! memory aborts the process, without a message about the option that is too large.

use forebay::{Buf, Disk};
use forebay_fio::generator::{Direction, Region};
use forebay_fio::job::Job;
use forebay_fio::random::Xoshiro256;
use forebay_fio::report::number::bytes;

use super::plan::Target;
use super::written::Written;
use crate::failure::Failure;

/// Refuses jobs that need more memory than the machine has available. Stages run one after another,
/// so the largest one counts.
pub(super) fn check(jobs: &[Job], targets: &[Target], regions: &[Region]) -> Result<(), Failure> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    check_within(jobs, targets, regions, available_bytes(&meminfo))
}

fn check_within(
    jobs: &[Job],
    targets: &[Target],
    regions: &[Region],
    available: u64,
) -> Result<(), Failure> {
    let needs = targets.iter().zip(regions).map(|(target, &region)| {
        let job = &jobs[target.job];
        // A clone has one set of buffers for all its files, unless they are registered.
        let has_own = target.file == 0 || job.fixedbufs == Some(true);
        let buffers = if has_own { buffer_bytes(job) } else { 0 };
        (job, buffers, bitmap_bytes(job, region))
    });
    let needs: Vec<_> = needs.collect();
    let total = |stage: &[(&Job, u64, u64)]| {
        let of_clones = stage.iter().map(|(_, buffers, bitmap)| buffers.saturating_add(*bitmap));
        of_clones.fold(0_u64, u64::saturating_add)
    };
    let stages = needs.chunk_by(|(a, ..), (b, ..)| a.stage == b.stage);
    let Some((total, stage)) = stages
        .map(|stage| (total(stage), stage))
        .max_by_key(|(total, _)| *total)
        .filter(|(total, _)| *total > available)
    else {
        return Ok(());
    };
    let largest = stage.iter().max_by_key(|(_, buffers, bitmap)| buffers.saturating_add(*bitmap));
    let Some(&(job, buffers, bitmap)) = largest else { return Ok(()) };
    let what = if buffers >= bitmap {
        format!(
            "its buffers need --bs={} x --iodepth={} x --numjobs={}; lower one of them",
            job.buffer_bytes(),
            job.iodepth,
            job.numjobs
        )
    } else {
        format!(
            "--verify needs a map of the written blocks, one bit for each of --bs={} in --size, \
             for --numjobs={}; raise --bs, lower the others, or set --do_verify=0",
            job.bs, job.numjobs
        )
    };
    Err(Failure::Run(format!(
        "{}: not enough memory: {} needed, {} available; {what}",
        job.name,
        bytes(total),
        bytes(available)
    )))
}

fn buffer_bytes(job: &Job) -> u64 {
    u64::from(job.buffer_bytes()) * u64::from(job.iodepth)
}

fn bitmap_bytes(job: &Job, region: Region) -> u64 {
    let written = match job.verify && job.do_verify && job.rw.has(Direction::Write) {
        true => Written::bytes(region, job),
        false => 0,
    };
    written.saturating_add(job.workload(region, 0, 0).map_bytes())
}

/// Allocates one buffer per I/O; none for a job that only trims. Registers the buffers with the
/// disk, if it does that, and fills them if the job writes them unchanged.
pub(super) fn buffers(job: &Job, disk: &Disk) -> Vec<Buf> {
    let len_bytes = job.buffer_bytes() as usize;
    if len_bytes == 0 {
        return Vec::new();
    }
    let mut draws = Xoshiro256::new(job.randseed, u64::MAX);
    let buffer = |_| {
        let buf = match job.fixedbufs {
            Some(false) => Buf::new(len_bytes),
            _ => disk.buf(len_bytes),
        };
        with_data(buf, job, &mut draws)
    };
    (0..job.iodepth).map(buffer).collect()
}

/// Allocates a buffer in place of one that an I/O did not return: the device may still use the
/// memory of an I/O that has exceeded its time limit. It is not registered.
#[cold]
pub(super) fn replacement(job: &Job) -> Buf {
    let buf = Buf::new(job.buffer_bytes() as usize);
    with_data(buf, job, &mut Xoshiro256::new(job.randseed, u64::MAX - 1))
}

/// Fills a buffer if the job writes it unchanged.
fn with_data(mut buf: Buf, job: &Job, draws: &mut Xoshiro256) -> Buf {
    let is_written = job.rw.has(Direction::Write) && !job.verify;
    match &job.checks.buffer_pattern {
        _ if !is_written || job.checks.zero_buffers => {}
        Some(pattern) => pattern.fill(&mut buf, 0),
        None => draws.fill(&mut buf),
    }
    buf
}

/// Returns `MemAvailable` of `/proc/meminfo` in bytes, or no limit if it is missing.
fn available_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;
    use crate::bench::plan::plan;

    #[track_caller]
    fn check(args: &str, available: u64, expected: Option<&str>) {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let targets = plan(&command.jobs).expect(args);
        let regions = vec![Region { offset: 0, len: 1 << 30 }; targets.len()];
        let result = check_within(&command.jobs, &targets, &regions, available);
        assert_eq!(result.err().map(|error| error.to_string()).as_deref(), expected, "{args}");
    }

    #[test]
    fn buffers_of_all_clones_count() {
        let args = "--filename=ram:1G --name=a --bs=1m --iodepth=4 --numjobs=2 --name=b";
        check(args, (8 << 20) + 4096, None);
        let message = "a: not enough memory: 8196KiB needed, 8192KiB available; its \
                       buffers need --bs=1048576 x --iodepth=4 x --numjobs=2; lower one of them";
        check(args, 8 << 20, Some(message));
        check("--filename=ram:1G --name=a --rw=trim --bs=1g", 0, None);
    }

    #[test]
    fn largest_stage_counts() {
        let args = "--filename=ram:1G --bs=1m --name=a --iodepth=4 --name=b --iodepth=8 \
                    --stonewall --name=c --iodepth=2 --stonewall";
        check(args, 8 << 20, None);
        let message = "b: not enough memory: 8192KiB needed, 7168KiB available; its buffers need \
                       --bs=1048576 x --iodepth=8 x --numjobs=1; lower one of them";
        check(args, 7 << 20, Some(message));
    }

    #[test]
    fn bits_of_verify_count() {
        let args = "--filename=ram:1G --name=a --rw=write --bs=512 --verify=crc32c";
        check(args, (1 << 18) + 4096 + 64 + 8 + 512, None);
        let message = "a: not enough memory: 261KiB needed, 256KiB available; --verify \
                       needs a map of the written blocks, one bit for each of --bs=512 in --size, \
                       for --numjobs=1; raise --bs, lower the others, or set --do_verify=0";
        check(args, 1 << 18, Some(message));
        check(&format!("{args} --do_verify=0"), 512, None);
    }

    #[test]
    fn the_kernels_figure_is_read() {
        let meminfo = "MemTotal:       24684096 kB\nMemAvailable:   23068672 kB\nBuffers: 1 kB\n";
        assert_eq!(available_bytes(meminfo), 22 << 30);
        assert_eq!(available_bytes(""), u64::MAX);
    }
}
