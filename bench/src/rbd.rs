//! The figure `rbd`: the driver `rbd` beside fio's rbd engine, on one image of a cluster that it
//! starts.
//!
//! The cluster is that of `contrib/ceph/one-node.sh` with memstore: monitor, OSD and client share
//! this machine. Both sides have `rbd_cache = false` and no read-ahead, except for the loads named
//! "defaults".

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::Options;
use crate::measure::{Sample, run, say};
use crate::table::{self, Aim, Row, What};

/// The name that selects this table.
pub(crate) const NAME: &str = "rbd";

const SCRIPT: &str = "contrib/ceph/one-node.sh";

/// The size of the image.
const SIZE: &str = "512M";

/// A load of both sides.
struct Load {
    title: &'static str,
    options: &'static str,
    conf: Conf,
    /// The aim for the ratio of the IOPS.
    aim: Aim,
}

/// A configuration of the client.
#[derive(Clone, Copy)]
enum Conf {
    /// Without a cache and read-ahead.
    Uncached,
    /// The same, and librbd's scheduler off, which merges writes by itself.
    Unscheduled,
    /// Without a setting of its own.
    Defaults,
}

macro_rules! batches {
    ($rw:literal, $depth:literal) => {
        concat!(
            "--rw=",
            $rw,
            " --iodepth=",
            $depth,
            " --iodepth_batch=16 --iodepth_batch_complete=16"
        )
    };
}

const DURABLE: &str = "--rw=randwrite --numjobs=16 --fsync=1";

const fn load(title: &'static str, options: &'static str, conf: Conf, aim: Aim) -> Load {
    Load { title, options, conf, aim }
}

const EQUAL: Aim = Aim::Reaches(1.0);
const THREE: Aim = Aim::AtLeast(3.0);

const LOADS: [Load; 13] = [
    load("random reads, depth 1", "--rw=randread --iodepth=1", Conf::Uncached, EQUAL),
    load("random reads, depth 32", "--rw=randread --iodepth=32", Conf::Uncached, EQUAL),
    load("random writes, depth 1", "--rw=randwrite --iodepth=1", Conf::Uncached, EQUAL),
    load("random writes, depth 32", "--rw=randwrite --iodepth=32", Conf::Uncached, EQUAL),
    load("sequential reads, batches of 16", batches!("read", "16"), Conf::Uncached, THREE),
    load(
        "sequential reads, batches of 16, depth 64",
        batches!("read", "64"),
        Conf::Uncached,
        THREE,
    ),
    load("sequential writes, batches of 16", batches!("write", "16"), Conf::Uncached, THREE),
    load(
        "sequential writes, batches of 16, depth 64",
        batches!("write", "64"),
        Conf::Uncached,
        THREE,
    ),
    load(
        "sequential writes, batches of 16, without librbd's scheduler",
        batches!("write", "16"),
        Conf::Unscheduled,
        Aim::None,
    ),
    load(
        "sequential writes, batches of 16, depth 64, without librbd's scheduler",
        batches!("write", "64"),
        Conf::Unscheduled,
        Aim::None,
    ),
    load("durable random writes, 16 threads", DURABLE, Conf::Uncached, THREE),
    load(
        "defaults: random reads, depth 32",
        "--rw=randread --iodepth=32",
        Conf::Defaults,
        Aim::None,
    ),
    load("defaults: durable random writes, 16 threads", DURABLE, Conf::Defaults, Aim::None),
];

/// Measures all loads, and returns the table.
pub(crate) fn render(forebay: &Path, options: &Options) -> Result<String> {
    let cluster = Cluster::start()?;
    let mut rows = Vec::new();
    for load in &LOADS {
        let mut pairs: Vec<(Sample, Sample)> = Vec::new();
        // The first pair is a warm-up; its figures do not count.
        for nth in 0..=options.pairs {
            say(&format!("{NAME}: {}: pair {nth} of {}", load.title, options.pairs));
            let ours = cluster.measure_forebay(forebay, load, options)?;
            pairs.push((ours, cluster.measure_fio(load, options)?));
        }
        let row = |what: What, aim| Row {
            title: load.title,
            sides: ["forebay", "fio rbd"],
            what,
            aim,
            pairs: pairs[1..].iter().map(|(a, b)| (what.of(a), what.of(b))).collect(),
        };
        rows.extend([row(What::Iops, load.aim), row(What::P99, Aim::None)]);
    }
    table::render(&rows, options)
}

/// A cluster with an image. The script ends it, and deletes its data, when the script's input ends:
/// also if this program is killed.
struct Cluster {
    folder: PathBuf,
    script: Child,
}

impl Cluster {
    fn start() -> Result<Cluster> {
        let folder = std::env::temp_dir().join(format!("figures-rbd-{}", std::process::id()));
        say(&format!("{NAME}: starting a cluster in {}", folder.display()));
        let mut script = Command::new(SCRIPT);
        script.arg("run").arg(&folder).arg("memstore");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().context(SCRIPT)?;
        let mut line = String::new();
        let output = script.stdout.take().context("the script has a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        let cluster = Cluster { folder, script };
        ensure!(line.starts_with("started: "), "{SCRIPT} could not start a cluster");
        let text = std::fs::read_to_string(cluster.conf(Conf::Defaults))?;
        let text = format!("{text}\nrbd_cache = false\nrbd_readahead_max_bytes = 0\n");
        std::fs::write(cluster.conf(Conf::Uncached), &text)?;
        let text = format!("{text}rbd_io_scheduler = none\n");
        std::fs::write(cluster.conf(Conf::Unscheduled), text)?;
        cluster.rbd(&["create", "rbd/bench", "--size", SIZE, "--image-feature", "layering"])?;
        // A read of a part that was never written would not reach the device.
        let fill = ["bench", "--io-type", "write", "--io-size", "1M", "--io-total", SIZE];
        cluster.rbd(&[&fill[..], &["rbd/bench"]].concat())?;
        Ok(cluster)
    }

    fn conf(&self, conf: Conf) -> PathBuf {
        self.folder.join(match conf {
            Conf::Uncached => "uncached.conf",
            Conf::Unscheduled => "unscheduled.conf",
            Conf::Defaults => "ceph.conf",
        })
    }

    fn rbd(&self, arguments: &[&str]) -> Result<()> {
        let conf = self.conf(Conf::Defaults);
        succeed(Command::new("rbd").arg("--conf").arg(conf).args(arguments))
    }

    fn measure_forebay(&self, forebay: &Path, load: &Load, options: &Options) -> Result<Sample> {
        let spec = format!("--filename=rbd:rbd/bench?conf={}", self.conf(load.conf).display());
        run(forebay, &[&["bench".to_owned(), spec][..], &arguments(load, options)].concat())
    }

    /// fio's engine has no option for the configuration, so the environment names it.
    fn measure_fio(&self, load: &Load, options: &Options) -> Result<Sample> {
        let conf = format!("CEPH_CONF={}", self.conf(load.conf).display());
        let engine = "fio --ioengine=rbd --clientname=admin --pool=rbd --rbdname=bench --thread";
        let engine: Vec<_> = engine.split(' ').map(str::to_owned).collect();
        run(Path::new("env"), &[&[conf][..], &engine, &arguments(load, options)].concat())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        // Its status changes nothing: the programs may have ended by themselves.
        let _ = self.script.wait();
    }
}

/// Returns the options that both programs take.
fn arguments(load: &Load, options: &Options) -> Vec<String> {
    let fixed = format!(
        "--name=a --size={SIZE} --bs=4k --time_based --runtime={} --group_reporting \
         --output-format=json",
        options.seconds
    );
    fixed.split(' ').chain(load.options.split(' ')).map(str::to_owned).collect()
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name}: is it installed?"))?;
    ensure!(
        output.status.success(),
        "{name} failed with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
