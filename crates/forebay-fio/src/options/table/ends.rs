//! The rows about the end of a job: those of other jobs, errors that do not end it, and aims
//! that do.

use super::row;
use crate::job::ExitWhat;
use crate::options::{Kind, OptionSpec, values};
use crate::steadystate::Limit;

#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    row("exitall", &[], "0", "end other jobs as soon as any job has ended",
        Kind::Flag { set: |g, on| g.control.exitall = on }),
    row("exitall_on_error", &[], "0", "end other jobs as soon as any job has failed",
        Kind::Flag { set: |g, on| g.control.exitall_on_error = on }),
    row("exit_what", &[], "group",
        "which jobs exitall ends when this one has ended: those of its group, those that run \
         beside it up to the next stonewall, or all",
        Kind::Choice {
            words: &["group", "stonewall", "all"],
            set: |g, word| g.control.exit_what = match word {
                "stonewall" => ExitWhat::Stonewall,
                "all" => ExitWhat::All,
                _ => ExitWhat::Group,
            },
        }),
    row("continue_on_error", &[], "none",
        "kinds of errors that do not end the job: EIO of reads or writes, and bad blocks (unless \
         verify_fatal=1); they are counted and reported",
        Kind::Choice {
            words: &["none", "read", "write", "io", "verify", "all", "0", "1"],
            set: |g, word| g.control.on_error.set_continues(word),
        }),
    row("ignore_error", &[], "no list",
        "errors that do not end the job, for reads, writes and verification; a list replaces EIO \
         and needs no continue_on_error",
        Kind::Parsed { accepts: "names or numbers with colons, as in EAGAIN,ENOSPC:122",
            set: |g, text| {
                g.control.on_error.set_ignored(values::errors(text)?);
                Ok(())
            } }),
    row("error_dump", &[], "0", "print each error that does not end the job, not only the first",
        Kind::Bool { set: |g, on| g.control.on_error.dump = on }),
    row("fill_device", &["fill_fs"], "0",
        "write until no space is left, then end the job without an error",
        Kind::Bool { set: |g, on| g.control.on_error.fill_device = on }),
    row("steadystate", &["ss"], "iops_slope:0.01%",
        "criterion and limit of a steady state, at which the job ends: the largest deviation of \
         IOPS or bandwidth from the mean, or the slope; %: of the mean, else I/Os or bytes per \
         second, with a unit such as k or M (1k = 1024)",
        Kind::Parsed {
            accepts: "iops, iops_slope, bw or bw_slope, with a limit as in iops:2% or bw:10M",
            set: |g, text| {
                let limit = Limit::parse(text)?;
                g.control.steady.limit = Some(limit).filter(|limit| *limit != Limit::default());
                Ok(())
            } }),
    row("steadystate_duration", &["ss_dur"], "0",
        "seconds for which the criterion must hold; 0: no detection",
        Kind::Parsed { accepts: "a number of seconds, or a time such as 10s or 1m",
            set: |g, text| { g.control.steady.samples = values::seconds(text)?; Ok(()) } }),
    row("steadystate_ramp_time", &["ss_ramp"], "0",
        "time before the first sample, in addition to the ramp_time",
        Kind::Time { set: |g, time| g.control.steady.ramp = time }),
    row("latency_target", &[], "no search",
        "latency (without a unit: microseconds): find the greatest depth, up to iodepth, at which \
         the I/Os of a window keep to it; the figures are those of that depth",
        Kind::Parsed { accepts: "a time such as 500, 10ms or 1s",
            set: |g, text| {
                g.control.target.target =
                    Some(values::micros(text)?).filter(|time| !time.is_zero());
                Ok(())
            } }),
    row("latency_window", &[], "0", "time at each depth (without a unit: microseconds)",
        Kind::Parsed { accepts: "a time such as 500000, 500ms or 5s",
            set: |g, text| { g.control.target.window = values::micros(text)?; Ok(()) } }),
    row("latency_percentile", &[], "100", "percentage of the I/Os that must meet the target",
        Kind::Parsed { accepts: "a number from 0 to 100, such as 99.9",
            set: |g, text| {
                let percent = values::percentile(text)?;
                g.control.target.percentile = Some(percent).filter(|&percent| percent < 100.0);
                Ok(())
            } }),
    row("latency_run", &[], "0", "keep running after the depth is found, and keep adjusting it",
        Kind::Bool { set: |g, on| g.control.target.runs_on = on }),
];
