//! A one-line description of a load, for the headings of reports and pictures.

use std::time::Duration;

use forebay_fio::generator::sizes::SizeRule;
use forebay_fio::job::Job;
use forebay_fio::units::Size;

use super::plan::Target;

/// Maximum number of jobs that are described; for more, only their number is given.
const JOBS_MAX: usize = 2;

/// Returns the options that decide the load: pattern, sizes, depth, direct I/O, jobs and time.
pub(in crate::bench) fn describe(
    jobs: &[Job],
    targets: &[Target],
    limit: Option<Duration>,
) -> String {
    let mut texts: Vec<String> = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let is_direct =
            targets.iter().find(|target| target.job == at).is_some_and(Target::is_direct);
        let text = describe_one(job, is_direct, limit);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.len() {
        0..=JOBS_MAX => texts.join("; "),
        nr => format!("{}; {} and {} more", texts[0], texts[1], nr - JOBS_MAX),
    }
}

fn describe_one(job: &Job, is_direct: bool, limit: Option<Duration>) -> String {
    let mut parts = vec![
        format!("rw={}", job.rw.word()),
        format!("bs={}", sizes(job)),
        format!("iodepth={}", job.iodepth),
    ];
    if job.iodepth_batch > 1 {
        parts.push(format!("iodepth_batch={}", job.iodepth_batch));
    }
    parts.push(format!("direct={}", u8::from(is_direct)));
    parts.push(format!("numjobs={}", job.numjobs));
    let runtime = match (job.runtime, limit) {
        (Some(runtime), Some(limit)) => Some(runtime.min(limit)),
        (runtime, limit) => runtime.or(limit),
    };
    if let Some(size) = job.size {
        parts.push(match size {
            Size::Bytes(bytes) => format!("size={}", short(bytes)),
            Size::Percent(percent) => format!("size={percent}%"),
        });
    }
    match runtime {
        Some(runtime) => parts.push(format!("runtime={}", time(runtime))),
        None => parts.push("one pass".to_owned()),
    }
    parts.join(", ")
}

/// Returns the block sizes of the directions that occur, as `bs` and its like take them.
fn sizes(job: &Job) -> String {
    let text = |rule: &SizeRule| match rule {
        SizeRule::Fixed(bytes) => short((*bytes).into()),
        SizeRule::Range { min, max } => {
            format!("{}-{}", short((*min).into()), short((*max).into()))
        }
        SizeRule::Split(parts) => {
            let part =
                |(bytes, percent): &(u32, u8)| format!("{}/{percent}", short((*bytes).into()));
            parts.iter().map(part).collect::<Vec<_>>().join(":")
        }
    };
    let mut texts: Vec<_> = job.sizes_used().map(text).collect();
    texts.dedup();
    texts.join(",")
}

/// Returns a number of bytes in fio's notation: `4k`, `1m`, `512`.
fn short(bytes: u64) -> String {
    let units = [(1 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

fn time(time: Duration) -> String {
    match time.as_millis() {
        ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::plan;
    use forebay_fio::cmdline::{Parsed, parse};

    #[track_caller]
    fn check(args: &str, expected: &str) {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let targets = plan(&command.jobs).expect(args);
        assert_eq!(describe(&command.jobs, &targets, None), expected, "{args}");
    }

    #[test]
    fn the_load_is_named_by_its_options() {
        check(
            "--filename=x --name=a --rw=randread --iodepth=32 --direct=1 --numjobs=4 --runtime=10",
            "rw=randread, bs=4k, iodepth=32, direct=1, numjobs=4, runtime=10s",
        );
        check(
            "--filename=ram:1M --name=a --rw=randrw --bs=4k,64k --iodepth=8 --iodepth_batch=4 \
             --size=512k",
            "rw=randrw, bs=4k,64k, iodepth=8, iodepth_batch=4, direct=0, numjobs=1, size=512k, one \
             pass",
        );
        check(
            "--filename=ram:1M --name=a --rw=write --bssplit=4k/50:1000/50 --runtime=1500ms",
            "rw=write, bs=4k/50:1000/50, iodepth=1, direct=0, numjobs=1, runtime=1500ms",
        );
    }

    #[test]
    fn only_the_first_of_many_jobs_are_named() {
        let job = |bs: &str| format!("rw=read, bs={bs}, iodepth=1, direct=0, numjobs=1, one pass");
        let expected = format!("{}; {} and 1 more", job("1k"), job("2k"));
        let args = "--filename=ram:1M --name=a --bs=1k --name=b --bs=2k --name=c --bs=4k";
        check(args, &expected);
    }
}
