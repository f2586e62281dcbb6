//! The figure `sched`: limits, weights and schedulers.
//!
//! - Limits in real time on `null`: the IOPS of one-second windows, beside the limit.
//! - The same limit in three servers, measured by the same job over NBD: `forebay serve`,
//!   qemu-storage-daemon with its filter `throttle`, and, for bytes, nbdkit with its filter `rate`.
//! - Weights: the cost that each owner received.
//! - Schedulers in virtual time (`forebay sim`), where a figure is exact and the same each time.
//!
//! A window begins a second after the job, when the burst is used up.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Options;
use crate::measure::{run, say};
use crate::table::{machine, median};

/// The name that selects this table.
pub(crate) const NAME: &str = "sched";

/// The rates of I/Os per second, of all owners together, and the numbers of owners.
const RATES: [u64; 5] = [100, 1000, 10_000, 100_000, 300_000];
const OWNERS: [u64; 3] = [1, 8, 64];

/// A limit that each server gets.
struct ServerLimit {
    title: &'static str,
    job: &'static str,
    /// The limit as keys of `forebay serve` and of QEMU's `throttle-group`.
    forebay: &'static str,
    qemu: &'static str,
    /// The rate of nbdkit's filter in bits per second, which has no limit of I/Os.
    nbdkit: Option<&'static str>,
    /// I/Os per second that the limit allows.
    iops: f64,
}

const SERVER_LIMITS: [ServerLimit; 4] = [
    ServerLimit {
        title: "500 IOPS, 4k random reads, depth 8",
        job: "--rw=randread --bs=4k --iodepth=8",
        forebay: "iops=500",
        qemu: "limits.iops-total=500",
        nbdkit: None,
        iops: 500.0,
    },
    ServerLimit {
        title: "20,000 IOPS, 4k random reads, depth 32",
        job: "--rw=randread --bs=4k --iodepth=32",
        forebay: "iops=20000",
        qemu: "limits.iops-total=20000",
        nbdkit: None,
        iops: 20_000.0,
    },
    ServerLimit {
        title: "50 MiB/s, 64k sequential writes, depth 8",
        job: "--rw=write --bs=64k --iodepth=8",
        forebay: "write_bps=50m",
        qemu: "limits.bps-write=52428800",
        nbdkit: Some("419430400"),
        iops: 800.0,
    },
    ServerLimit {
        title: "200 MiB/s, 1m sequential reads, depth 4",
        job: "--rw=read --bs=1m --iodepth=4",
        forebay: "read_bps=200m",
        qemu: "limits.bps-read=209715200",
        nbdkit: Some("1677721600"),
        iops: 200.0,
    },
];

/// A job file in virtual time, and the settings that are compared.
struct Virtual {
    title: &'static str,
    device: &'static str,
    text: &'static str,
    settings: &'static [&'static str],
}

/// A disk of 7,200 turns per minute, without NCQ.
const HDD: &str = "hdd:seek_ns=1000000,stroke_ns=13500000,turn_ns=8333333,nr_sorted=1";

const VIRTUAL: [Virtual; 10] = [
    Virtual {
        title: "A rotational disk without NCQ: 32 random 4k reads in flight, over the whole disk. \
                Aim: 1.5 times",
        device: HDD,
        text: "[reads]\nrw=randread\nbs=4k\niodepth=32\nruntime=60\ntime_based\n",
        settings: &["scheduler=none queue_depth=1", "scheduler=mq-deadline device_depth=1"],
    },
    Virtual {
        title: "The same reads over 900 GB of the disk: seeks are shorter, and sorting gains less",
        device: HDD,
        text: "[reads]\nrw=randread\nbs=4k\niodepth=32\nsize=900g\nruntime=60\n",
        settings: &["scheduler=none queue_depth=1", "scheduler=mq-deadline device_depth=1"],
    },
    Virtual {
        title: "The same disk: a random 4k read at a time beside sequential 64k writes, depth 32",
        device: HDD,
        text: "[global]\nruntime=60\nsize=900g\n[reads]\nrw=randread\nbs=4k\n\
               [writes]\nrw=write\nbs=64k\niodepth=32\n",
        settings: &["scheduler=none queue_depth=1", "scheduler=mq-deadline device_depth=1"],
    },
    Virtual {
        title: "The same beside sequential 8m writes, depth 32. Aims: a tenth of the p99 of the \
                reads, and at most 20 % less of the writes",
        device: HDD,
        text: "[global]\nruntime=60\nsize=900g\n[reads]\nrw=randread\nbs=4k\n\
               [writes]\nrw=write\nbs=8m\niodepth=32\n",
        settings: &[
            "scheduler=none queue_depth=1",
            "scheduler=mq-deadline device_depth=1",
            "scheduler=mq-deadline device_depth=1 fifo_batch=64",
            "scheduler=bfq device_depth=1",
        ],
    },
    Virtual {
        title: "The same disk: random 1m reads of one job, in requests of 128k, with 64 tags",
        device: HDD,
        text: "[reads]\nrw=randread\nbs=1m\nsize=900g\nruntime=60\n",
        settings: &["scheduler=mq-deadline queue_depth=64 max_sectors_kb=128"],
    },
    Virtual {
        title: "The same reads of 64 jobs. Aim: 98 % of the throughput of one job",
        device: HDD,
        text: "[reads]\nrw=randread\nbs=1m\nsize=900g\nruntime=60\nnumjobs=64\n",
        settings: &[
            "scheduler=none queue_depth=64 max_sectors_kb=128",
            "scheduler=mq-deadline queue_depth=64 max_sectors_kb=128",
        ],
    },
    Virtual {
        title: "The same disk: one sequential reader of 128k, alone",
        device: HDD,
        text: "[alone]\nrw=read\nbs=128k\nsize=400g\nruntime=60\n",
        settings: &["scheduler=bfq device_depth=1"],
    },
    Virtual {
        title: "The same disk: two such readers, of weights 1:4. Aims for bfq: bytes 1:4 within \
                5 %, and together at least 85 % of one alone",
        device: HDD,
        text: "[global]\nruntime=60\nsize=400g\nbs=128k\nrw=read\n[light]\nweight=100\n\
               [heavy]\noffset=450g\nweight=400\n",
        settings: &["scheduler=bfq device_depth=1", "scheduler=mq-deadline device_depth=1"],
    },
    Virtual {
        title: "ssd-sas: a random 4k read at a time beside 64 jobs of random 256k writes, depth 8. \
                Aims: a p99 of 2 ms, and at most 5 % less of the writes",
        device: "ssd-sas",
        text: "[global]\nruntime=60\nsize=900g\n[reads]\nrw=randread\nbs=4k\n\
               [writes]\nrw=randwrite\nbs=256k\niodepth=8\nnumjobs=64\n",
        settings: &[
            "scheduler=none",
            "scheduler=kyber",
            "scheduler=kyber write_lat_nsec=500000000",
            "scheduler=kyber device_depth=16 nr_requests=1024",
        ],
    },
    Virtual {
        title: "The same with a latency goal of 2 ms for the reads",
        device: "ssd-sas",
        text: "[global]\nruntime=60\nsize=900g\n[reads]\nrw=randread\nbs=4k\n\
               throttle_latency_target_us=2000\n\
               [writes]\nrw=randwrite\nbs=256k\niodepth=8\nnumjobs=64\n",
        settings: &["scheduler=none"],
    },
];

/// Measures everything, and returns the page.
pub(crate) fn render(forebay: &Path, options: &Options) -> Result<String> {
    let mut text = String::from("# Limits, weights and schedulers\n\n");
    writeln!(text, "Written by `{}`. Machine: {}.\n", options.command(), machine())?;
    limits(&mut text, forebay, options)?;
    servers(&mut text, forebay, options)?;
    weights(&mut text, forebay, options)?;
    virtual_time(&mut text, forebay)?;
    Ok(text)
}

fn limits(text: &mut String, forebay: &Path, options: &Options) -> Result<()> {
    text.push_str(
        "## Limits on `null`, in real time\n\n\
         `bench --throttle_iops`, one clone for each owner, random 4k reads at depth 4. The median \
         of the windows over the limit, with the lowest and the highest. Aim: within 2 %.\n\n\
         | IOPS, all owners | 1 owner | 8 owners | 64 owners |\n|---|---|---|---|\n",
    );
    for rate in RATES {
        write!(text, "| {rate} |")?;
        for owners in OWNERS {
            let each = rate / owners;
            say(&format!("{NAME}: {rate} IOPS, {owners} owners"));
            let job = format!(
                "--name=a --filename=null:1G --rw=randread --iodepth=4 --numjobs={owners} \
                 --throttle_iops={each}"
            );
            let ratios = windows(forebay, &job, options, (each * owners) as f64)?;
            write!(text, " {} |", shown(&ratios, Some(0.02)))?;
        }
        text.push('\n');
    }
    text.push('\n');
    Ok(())
}

/// Returns the IOPS of each window over those that are allowed.
fn windows(forebay: &Path, job: &str, options: &Options, allowed: f64) -> Result<Vec<f64>> {
    let mut arguments: Vec<String> = vec!["bench".to_owned()];
    arguments.extend(job.split(' ').map(str::to_owned));
    let timing = format!(
        "--group_reporting --time_based --ramp_time=1 --runtime={} --output-format=json",
        options.seconds
    );
    arguments.extend(timing.split(' ').map(str::to_owned));
    (0..options.pairs).map(|_| Ok(run(forebay, &arguments)?.iops / allowed)).collect()
}

/// Returns the median with the range, and whether it is within the aim of 1.
fn shown(ratios: &[f64], aim: Option<f64>) -> String {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = median(&sorted);
    let met = match aim {
        Some(aim) if (middle - 1.0).abs() > aim => " **not met**",
        _ => "",
    };
    format!("{middle:.4} ({:.4}-{:.4}){met}", sorted[0], sorted[sorted.len() - 1])
}

fn servers(text: &mut String, forebay: &Path, options: &Options) -> Result<()> {
    text.push_str(
        "## The same limit in three servers, over NBD\n\n\
         The IOPS of a job of `forebay bench` over those that the limit allows, and the processor \
         time of the server for each I/O, us. The disk of each server needs no time.\n\n\
         | limit and job | forebay serve | qemu-storage-daemon, throttle | nbdkit, rate |\n\
         |---|---|---|---|\n",
    );
    for limit in &SERVER_LIMITS {
        write!(text, "| {} |", limit.title)?;
        for server in [Program::Forebay, Program::Qemu, Program::Nbdkit] {
            let Some(running) = Server::start(server, forebay, limit)? else {
                text.push_str(" no such limit |");
                continue;
            };
            say(&format!("{NAME}: {}: {server:?}", limit.title));
            let job = format!("--name=a --filename={} --size=1g {}", running.uri(), limit.job);
            let before = crate::process::cpu_time(running.child.id())?;
            let ratios = windows(forebay, &job, options, limit.iops)?;
            let cpu = crate::process::cpu_time(running.child.id())? - before;
            // The ramp of a second costs as much as a second of the window.
            let seconds = (f64::from(options.seconds) + 1.0) * options.pairs as f64;
            let each_us = cpu.as_secs_f64() * 1e6 / (seconds * limit.iops);
            write!(text, " {}; {each_us:.1} us |", shown(&ratios, None))?;
        }
        text.push('\n');
    }
    text.push('\n');
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Forebay,
    Qemu,
    Nbdkit,
}

/// A server with a limit. Dropping it ends the program.
struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts a server. Returns `None` if it has no such limit.
    fn start(program: Program, forebay: &Path, limit: &ServerLimit) -> Result<Option<Server>> {
        let folder = std::env::temp_dir().join(format!("figures-sched-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("nbd");
        let _ = std::fs::remove_file(&socket);
        let path = socket.display();
        let (name, line) = match program {
            Program::Forebay => (
                forebay.display().to_string(),
                format!("serve null:1G --nbd unix:{path} --limits {}", limit.forebay),
            ),
            Program::Qemu => (
                "qemu-storage-daemon".to_owned(),
                format!(
                    "--object throttle-group,id=limits,{} \
                     --blockdev driver=null-co,node-name=null,size=1073741824,read-zeroes=off \
                     --blockdev driver=throttle,node-name=disk,throttle-group=limits,file=null \
                     --nbd-server addr.type=unix,addr.path={path},max-connections=0 \
                     --export type=nbd,id=export,node-name=disk,name=,writable=on",
                    limit.qemu
                ),
            ),
            Program::Nbdkit => match limit.nbdkit {
                None => return Ok(None),
                Some(rate) => (
                    "nbdkit".to_owned(),
                    format!("-f -U {path} --filter=rate null size=1G rate={rate}"),
                ),
            },
        };
        let mut command = Command::new(&name);
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{name}: is it installed?"))?;
        let mut server = Server { child, folder };
        let until = Instant::now() + Duration::from_secs(10);
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            if server.child.try_wait()?.is_some() || Instant::now() > until {
                bail!("{name} {line}: it does not listen");
            }
            sleep(Duration::from_millis(20));
        }
        Ok(Some(server))
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.folder.join("nbd").display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The cost of an I/O of the default model, us: 10 for each request, and 1 ns for each byte.
fn cost_us(bytes: u64) -> f64 {
    10.0 + bytes as f64 / 1000.0
}

fn weights(text: &mut String, forebay: &Path, options: &Options) -> Result<()> {
    text.push_str(
        "## Weights, in real time\n\n\
         `model:ssd-sas` with 8 tags; three jobs of random reads at depth 16, of weights 100, 200 \
         and 400. The last one reads 1 MiB, the others 4 KiB. The cost that each received over \
         that of the first: the median of the runs of 4 s. Aims: 2 and 4, within 3 %.\n\n\
         | weight 200 | weight 400 |\n|---|---|\n",
    );
    let job = "bench --filename=model:ssd-sas?nr_requests=8 --rw=randread --iodepth=16 \
               --time_based --ramp_time=1 --runtime=4 --output-format=json \
               --name=light --weight=100 --name=mid --weight=200 \
               --name=heavy --weight=400 --bs=1m";
    let mut shares = [Vec::new(), Vec::new()];
    for _ in 0..options.pairs {
        say(&format!("{NAME}: weights"));
        let report = json(Command::new(forebay).args(job.split_whitespace()))?;
        let cost = |nth: usize, bytes| {
            let iops = report["jobs"][nth]["read"]["iops"].as_f64();
            iops.map(|iops| iops * cost_us(bytes)).context("a report of three jobs")
        };
        let first = cost(0, 4096)?;
        shares[0].push(cost(1, 4096)? / first / 2.0);
        shares[1].push(cost(2, 1 << 20)? / first / 4.0);
    }
    let [mid, heavy] = shares.map(|ratios| shown(&ratios, Some(0.03)));
    writeln!(text, "| 2 x {mid} | 4 x {heavy} |\n")?;
    Ok(())
}

fn virtual_time(text: &mut String, forebay: &Path) -> Result<()> {
    text.push_str("## Schedulers, in virtual time\n");
    let file = std::env::temp_dir().join(format!("figures-sched-{}.fio", std::process::id()));
    for Virtual { title, device, text: jobs, settings } in &VIRTUAL {
        std::fs::write(&file, jobs)?;
        write!(text, "\n{title}.\n\n| | job | IOPS | MB/s | p50, ms | p99, ms |\n")?;
        text.push_str("|---|---|---|---|---|---|\n");
        for setting in *settings {
            say(&format!("{NAME}: {title}: {setting}"));
            let mut command = Command::new(forebay);
            command.args(["sim", "--seed=1", "--json", "--device", device]).arg(&file);
            setting.split(' ').for_each(|pair| _ = command.args(["--set", pair]));
            for job in sim_jobs(&json(&mut command)?)? {
                writeln!(text, "| {setting} | {job} |")?;
            }
        }
    }
    let _ = std::fs::remove_file(&file);
    Ok(())
}

/// Returns the cells of each job of a report of `forebay sim`.
fn sim_jobs(report: &Value) -> Result<Vec<String>> {
    let jobs = report["jobs"].as_array().context("a report with jobs")?;
    // Clones are jobs of the same name, one after another.
    let name = |job: &Value| job["jobname"].as_str().unwrap_or_default().to_owned();
    let cells = |clones: &[Value]| {
        let parts: Vec<&Value> = clones.iter().filter_map(part).collect();
        let sum = |key: &str| parts.iter().filter_map(|part| part[key].as_f64()).sum::<f64>();
        let ms = |key: &str| {
            let values =
                parts.iter().filter_map(|part| part["clat_ns"]["percentile"][key].as_f64());
            values.fold(0.0, f64::max) / 1e6
        };
        let (iops, mb) = (sum("iops"), sum("bw_bytes") / 1e6);
        let (p50, p99) = (ms("50.000000"), ms("99.000000"));
        format!("{} | {iops:.0} | {mb:.1} | {p50:.2} | {p99:.2}", name(&clones[0]))
    };
    Ok(jobs.chunk_by(|a, b| name(a) == name(b)).map(cells).collect())
}

/// Returns the direction of a job that has I/Os.
pub(crate) fn part(job: &Value) -> Option<&Value> {
    let has_ios = |part: &&Value| part["total_ios"].as_u64().is_some_and(|nr| nr > 0);
    ["read", "write"].into_iter().map(|key| &job[key]).find(has_ios)
}

/// Runs a command that prints JSON.
pub(crate) fn json(command: &mut Command) -> Result<Value> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let start = output.stdout.iter().position(|byte| *byte == b'{').unwrap_or(0);
    serde_json::from_slice(&output.stdout[start..])
        .with_context(|| format!("{command:?}: not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_outside_of_the_aim_is_marked() {
        assert_eq!(shown(&[1.01, 0.99, 1.0], Some(0.02)), "1.0000 (0.9900-1.0100)");
        assert_eq!(shown(&[0.97], Some(0.02)), "0.9700 (0.9700-0.9700) **not met**");
        assert_eq!(shown(&[0.5], None), "0.5000 (0.5000-0.5000)");
    }
}
