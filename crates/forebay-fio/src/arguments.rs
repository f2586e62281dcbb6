//! Arguments of a job: the way back from [`Job`] to fio's options.
//!
//! With them another program can run the job, or this one on another device. Nothing may get lost,
//! so [`of`] takes a job apart field by field: a new field does not compile until it is handled
//! here. Options with default values are left out, because people read these lines.

use std::time::Duration;

use crate::job::{Given, Job};
use crate::units::Size;

/// Returns the arguments of `job` for fio and `forebay bench`: `--name=...` and the options after
/// it, without the settings of the layer ([`policies`]), which fio does not know.
///
/// ```
/// use forebay_fio::arguments;
/// use forebay_fio::cmdline::{self, Parsed};
///
/// let args = ["--bs=8k", "--name=a", "--rw=randread", "--time_based", "--runtime=500ms"];
/// let Parsed::Run(command) = cmdline::parse(args.map(Into::into))? else { unreachable!() };
/// let args = arguments::of(&command.jobs[0]).join(" ");
/// assert_eq!(args, "--name=a --rw=randread --bs=8192 --runtime=500ms --time_based");
/// # Ok::<(), forebay_fio::cmdline::CommandErrors>(())
/// ```
pub fn of(job: &Job) -> Vec<String> {
    #[rustfmt::skip]
    let Job {
        name, rw, rwmixread, bs, size, io_size, offset, iodepth, iodepth_batch,
        iodepth_batch_complete_min, iodepth_batch_complete_max, iodepth_low, numjobs, runtime,
        time_based, direct, filename, ioengine, invalidate, allow_mounted_write, fsync, end_fsync,
        randseed, norandommap, randrepeat, verify, do_verify, group_reporting, fixedbufs,
        sqthread_poll, stonewall, new_group, policies: _, owner: _, texts,
        // They follow from the jobs before.
        group: _, stage: _,
        // They follow from the texts.
        files: _, control: _, placement: _, remote: _, sizes: _, variety: _,
        loops: _, pace: _, serialize_overlap: _, max_latency_ns: _,
        priorities: _, ramp_time: _, start_delay: _, measures,
        fdatasync: _, logs: _, replay, recording: _, checks, warnings: _,
        // The options as given, not their effects.
        options: _, zone_size_is_from_device: _,
    } = job;
    // The job without other options: its depths depend on the depth.
    let bare = Given { iodepth: Some(*iodepth), ioengine: *ioengine, ..Given::default() };
    // A job of defaults has no options that contradict each other.
    let bare = Job::new(String::new(), bare, Vec::new()).unwrap_or_else(|_| job.clone());
    let min = *iodepth_batch_complete_min;
    let mut list = List(vec![format!("--name={name}")]);
    list.some("filename", filename.as_ref());
    list.some("ioengine", ioengine.map(|engine| engine.word()));
    // A log determines pattern and sizes.
    let is_replay = replay.read.is_some();
    if !is_replay {
        list.put("rw", rw.word());
    }
    list.unless("rwmixread", rwmixread, &bare.rwmixread);
    if !is_replay {
        list.put("bs", bs);
    }
    list.some("size", size.map(size_text));
    list.some("io_size", io_size.map(size_text));
    list.unless("offset", &size_text(*offset), &size_text(bare.offset));
    list.unless("iodepth", iodepth, &1);
    list.unless("iodepth_batch", iodepth_batch, &bare.iodepth_batch);
    list.unless("iodepth_batch_complete_min", &min, &bare.iodepth_batch_complete_min);
    list.unless("iodepth_batch_complete_max", iodepth_batch_complete_max, &min.max(1));
    list.unless("iodepth_low", iodepth_low, &bare.iodepth_low);
    list.unless("numjobs", numjobs, &1);
    list.some("runtime", runtime.map(time_text));
    list.flag("time_based", *time_based);
    list.some("direct", direct.map(u8::from));
    list.switch("invalidate", *invalidate, bare.invalidate);
    list.switch("allow_mounted_write", *allow_mounted_write, bare.allow_mounted_write);
    list.unless("fsync", fsync, &bare.fsync);
    list.switch("end_fsync", *end_fsync, bare.end_fsync);
    list.unless("randseed", randseed, &bare.randseed);
    list.flag("norandommap", *norandommap);
    list.switch("randrepeat", *randrepeat, bare.randrepeat);
    list.some("verify", verify.then(|| checks.method.word()));
    list.switch("do_verify", *do_verify, bare.do_verify);
    list.flag("group_reporting", *group_reporting);
    list.some("fixedbufs", fixedbufs.map(u8::from));
    list.some("sqthread_poll", sqthread_poll.map(u8::from));
    list.flag("stonewall", *stonewall);
    list.flag("new_group", *new_group);
    // gtod_reduce says all four, so the order in which they were given counts.
    list.flag("disable_lat=1", measures.disable_lat);
    list.flag("disable_clat=1", measures.disable_clat);
    list.flag("disable_slat=1", measures.disable_slat);
    list.flag("disable_bw=1", measures.disable_bw);
    texts.iter().for_each(|(name, text)| list.put(name, text));
    list.0
}

/// Returns the arguments for the settings of the layer and for the job as an owner of I/O, which
/// only `forebay bench` has.
pub fn policies(job: &Job) -> Vec<String> {
    let given = job.policies.iter().chain(&job.owner);
    given.map(|(name, value)| format!("--{name}={value}")).collect()
}

/// Returns the jobs as one line for a shell. It needs no job file and no defaults.
pub fn line(jobs: &[Job]) -> String {
    let words = jobs.iter().flat_map(|job| of(job).into_iter().chain(policies(job)));
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// Returns a word as it is written in a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/%+@".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Arguments that grow.
#[derive(Debug)]
struct List(Vec<String>);

impl List {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name}={value}"));
    }

    fn some(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn unless<T: PartialEq + std::fmt::Display>(&mut self, name: &str, value: &T, default: &T) {
        if value != default {
            self.put(name, value);
        }
    }

    fn switch(&mut self, name: &str, value: bool, default: bool) {
        self.unless(name, &u8::from(value), &u8::from(default));
    }

    fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.0.push(format!("--{name}"));
        }
    }
}

fn size_text(size: Size) -> String {
    match size {
        Size::Bytes(bytes) => bytes.to_string(),
        Size::Percent(percent) => format!("{percent}%"),
    }
}

/// Formats a time in the largest unit that loses nothing: options have whole microseconds.
fn time_text(time: Duration) -> String {
    let us = time.as_micros();
    match us {
        _ if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        _ if us.is_multiple_of(1000) => format!("{}ms", us / 1000),
        _ => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmdline::{Parsed, parse};
    use crate::options::{Kind, OPTIONS};
    use proptest::prelude::*;

    fn jobs(args: impl IntoIterator<Item = String>) -> Vec<Job> {
        match parse(args.into_iter().map(Into::into)) {
            Ok(Parsed::Run(command)) => command.jobs,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the arguments of all jobs give the same jobs.
    #[track_caller]
    fn check(args: &str) {
        let before = jobs(args.split_whitespace().map(str::to_owned));
        let again = jobs(before.iter().flat_map(|job| of(job).into_iter().chain(policies(job))));
        let strip = |job: &Job| Job { options: Vec::new(), warnings: Vec::new(), ..job.clone() };
        let strip = |jobs: &[Job]| jobs.iter().map(strip).collect::<Vec<_>>();
        assert_eq!(strip(&before), strip(&again), "{args}");
    }

    #[test]
    fn a_job_comes_back_from_its_arguments() {
        check("");
        check("--name=a");
        check("--filename=x:y --name=a --rw=randrw --rwmixread=70 --name=b --bs=512 --direct=0");
        check(
            "--name=a --rw=read --iodepth=128 --iodepth_batch=16 --iodepth_batch_complete=16 \
             --runtime=100 --direct=1 --filename=disk.img --ioengine=libaio --thread \
             --group_reporting --time_based",
        );
        check("--name=a --ioengine=psync --iodepth=8 --numjobs=3 --plug=none --queue_depth=4");
        check("--name=a --iodepth=8 --iodepth_batch_complete_min=0 --iodepth_batch_complete_max=4");
        check("--name=a --rw=write --size=10% --offset=5% --verify=crc32c --do_verify=0");
        check("--name=a --rw=write --fsync=7 --end_fsync=1 --randseed=0 --invalidate=0");
        check("--name=a --rw=randrw:8 --bs=4k,8k --bsrange=,4k-8k, --random_distribution=zipf:1.2");
        check("--name=a --rw=write --verify=pattern --verify_pattern=%o12 --loops=2 --rate=1m,2m");
        check("--name=a --gtod_reduce=1 --disable_lat=0 --percentile_list=50:99 --write_bw_log=x");
        check("--kb_base=1000 --name=a --bs=4k,8k --rw=randread:8k --size=1m --unit_base=1");
        check("--name=a --prio=3 --prioclass=1 --cmdprio_percentage=20,40 --cmdprio=,2 --rw=rw");
        check("--name=a --prio=0 --prioclass=0");
        check("--prioclass=1 --name=a --prioclass=0 --cmdprio_percentage=5 --cmdprio_class=3");
        check("--name=a --runtime=1500us --randrepeat=0 --norandommap --allow_mounted_write=1");
    }

    /// Returns a valid value of an option, chosen by a number.
    fn value(kind: &Kind, n: u64) -> Option<String> {
        match kind {
            Kind::Int { min, max, .. } | Kind::Bytes { min, max, .. } => {
                Some((min + n % (max.min(&5000) - min + 1)).to_string())
            }
            Kind::Size { .. } if n.is_multiple_of(2) => Some(format!("{}%", n % 100 + 1)),
            Kind::Size { .. } | Kind::Text { .. } => Some((n % 1_000_000).to_string()),
            Kind::Time { .. } => Some(format!("{}us", n % 10_000_000 + 1)),
            Kind::Bool { .. } | Kind::Flag { .. } => Some((n % 2).to_string()),
            Kind::Choice { words, .. } => Some(words[n as usize % words.len()].to_owned()),
            Kind::Policy { .. } | Kind::Owner { .. } => Some(n.to_string()),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn every_option_survives(drawn in proptest::collection::vec(any::<(usize, u64)>(), 0..12)) {
            let mut args = vec!["--name=a".to_owned()];
            // Each option once: an option that causes a warning and is then overridden still causes
            // the warning, and is not among the arguments made from the job.
            let mut names = std::collections::HashSet::new();
            for (at, n) in drawn {
                let option = &OPTIONS[at % OPTIONS.len()];
                if !names.insert(option.name) {
                    continue;
                }
                let value = value(&option.kind, n);
                args.extend(value.map(|value| format!("--{}={value}", option.name)));
            }
            // Options that contradict each other are refused, and that is not the question here.
            if parse(args.iter().map(Into::into)).is_ok() {
                check(&args.join(" "));
            }
        }
    }
}
