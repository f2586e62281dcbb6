//! Figures of `btt` on our traces: those that equal the figures of our report, and those that
//! cannot, because `btt` pairs records in another way.

use serde_json::Value;
use tempfile::TempDir;

use forebay::{Buf, Disk, Io, Trace};

use crate::common::folder;
use crate::trace::{report, tool, traced};

/// Figures of `btt`.
#[derive(Debug)]
pub(crate) struct Btt {
    /// Mean time in seconds, and number, of the I/Os that it has paired with their completions.
    pub(crate) q2c: Option<(f64, u64)>,
    /// The same, since they were issued.
    pub(crate) d2c: Option<(f64, u64)>,
    /// `#Q` and `#D` of its table of merges.
    pub(crate) queued_and_issued: [u64; 2],
}

impl Btt {
    /// Returns the figures of the only disk of the trace `t` of a folder. `None`: the programs are
    /// not installed.
    pub(crate) fn of(folder: &TempDir, test: &str) -> Option<Btt> {
        let devices = std::fs::read_to_string(folder.path().join("t/devices")).expect("a list");
        let name = devices.split('\t').nth(1).expect("a name");
        let args = format!("-D t -i {name} -d merged.bin -q");
        tool(folder.path(), test, "blkparse", &args)?;
        let text = tool(folder.path(), test, "btt", "-i merged.bin")?;
        let mean_and_number = |name: &str| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
            let cells: Vec<_> = line.split_whitespace().collect();
            Some((cells[2].parse().expect("a mean"), cells[4].parse().expect("a number")))
        };
        let row = text.lines().skip_while(|line| !line.contains("#Q       #D   Ratio")).nth(2);
        let cells: Vec<_> = row.expect("a table of merges").split_whitespace().collect();
        Some(Btt {
            q2c: mean_and_number("Q2C"),
            d2c: mean_and_number("D2C"),
            queued_and_issued: [3, 4].map(|at: usize| cells[at].parse().expect(&text)),
        })
    }

    /// Checks that the mean time of an I/O is that of our report within 1 %.
    #[track_caller]
    pub(crate) fn assert_q2c(&self, ours: &Value) {
        let (mean, _) = self.q2c.expect("I/Os that have ended");
        assert_close("Q2C", mean_s(&ours["total_ns"]), mean);
    }
}

fn mean_s(times: &Value) -> f64 {
    times["mean"].as_f64().expect("a number") / 1e9
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no number {name}: {report}"))
}

#[track_caller]
fn assert_close(name: &str, ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 0.01 * theirs.abs(), "{name}: {ours}, in btt {theirs}");
}

#[test]
fn btt_finds_the_times_and_merges_of_our_report() {
    let test = "btt_finds_the_times_and_merges_of_our_report";
    let merged = "--filename=ram:64M?req_ns=20000&io_ns=2000&queue_depth=4";
    let merges = format!(
        "--name=merged {merged} --rw=write --bs=4k --iodepth=32 --iodepth_batch_submit=8 \
         --iodepth_batch_complete=8 --size=8m \
         --name=random --new_group --stonewall {merged} --rw=randread --bs=4k --iodepth=16 \
         --number_ios=2000"
    );
    // Each load, and the counts of our report that show that it has what it is for.
    for (load, counts) in [
        (&*merges, &[("merged", 1001), ("waits", 11)][..]),
        (
            "--name=scheduler --filename=model:nvme?size=64M&queue_depth=4&scheduler=mq-deadline \
             --rw=randrw --bs=4k --iodepth=16 --number_ios=300",
            &[("waits", 100)],
        ),
        (
            "--name=flushes --filename=disk.img --size=1m --rw=randwrite --bs=4k --iodepth=4 \
             --number_ios=100 --fdatasync=10",
            &[("flushes", 9)],
        ),
        (
            "--name=trims --filename=ram:64M?req_ns=20000 --rw=randtrim --bs=4k --iodepth=4 \
             --number_ios=300",
            &[],
        ),
        (
            "--name=limits --filename=ram:64M --rw=randwrite --bs=4k --iodepth=4 --number_ios=200 \
             --throttle_iops=500",
            &[("limit_waits", 1)],
        ),
    ] {
        let folder = folder();
        traced(&folder, load);
        let ours = report(&folder);
        let Some(btt) = Btt::of(&folder, test) else { return };
        assert_eq!(btt.q2c.map(|(_, nr)| nr), ours["total_ns"]["n"].as_u64(), "{load}: {ours}");
        btt.assert_q2c(&ours);
        let (d2c, _) = btt.d2c.expect("requests that have ended");
        assert_close("D2C", mean_s(&ours["stages_ns"]["driver"]), d2c);
        let counts_of_ours = ["queued", "issued"].map(|name| number(&ours, name));
        assert_eq!(btt.queued_and_issued, counts_of_ours, "{load}: {ours}");
        for (name, least) in counts {
            assert!(number(&ours, name) >= *least, "{load}: {ours}");
        }
        for name in ["splits", "requeues", "unfinished", "missing_records", "left_out"] {
            assert_eq!(number(&ours, name), 0, "{name}: {load}: {ours}");
        }
    }
}

/// `btt` pairs a completion with the I/Os that lie inside its range, and no part of a split request
/// contains the whole I/O. Its `#Q` is raised to `#D`.
#[test]
fn btt_pairs_no_completion_with_a_split_io() {
    let test = "btt_pairs_no_completion_with_a_split_io";
    let disk = "--filename=ram:64M?max_sectors_kb=64 --rw=randread";
    let folder = folder();
    traced(
        &folder,
        &format!(
            "--name=split {disk} --bs=128k --size=32m --number_ios=200 \
             --name=whole {disk} --bs=4k --offset=32m --size=32m --number_ios=100"
        ),
    );
    let ours = report(&folder);
    let counts = ["queued", "issued", "splits"].map(|name| number(&ours, name));
    assert_eq!((counts, &ours["total_ns"]["n"]), ([300, 500, 200], &300.into()), "{ours}");
    let Some(btt) = Btt::of(&folder, test) else { return };
    let nr_paired = [btt.q2c, btt.d2c].map(|figure| figure.map(|(_, nr)| nr));
    assert_eq!(nr_paired, [Some(100); 2], "{btt:?}");
    assert_eq!(btt.queued_and_issued, [500, 500], "{btt:?}");
}

/// `btt` adds each requeued request to `#Q`, and takes D2C from the last time that a request was
/// issued. Our report takes the first.
#[test]
fn btt_counts_a_requeued_request_as_another_io() {
    let test = "btt_counts_a_requeued_request_as_another_io";
    let busy = folder();
    traced(
        &busy,
        "--name=busy --filename=fault:ram:64M?rule=read:busy:nth=5 --rw=randread --bs=4k \
         --number_ios=200",
    );
    let ours = report(&busy);
    let nr_requeues = number(&ours, "requeues");
    assert!(nr_requeues >= 40 && number(&ours, "issued") == 200, "{ours}");
    let Some(btt) = Btt::of(&busy, test) else { return };
    assert_eq!(btt.queued_and_issued, [200 + nr_requeues; 2], "{ours}");
    btt.assert_q2c(&ours);
    let (d2c, nr) = btt.d2c.expect("requests that have ended");
    assert!(nr == 200 && d2c < mean_s(&ours["stages_ns"]["driver"]), "{btt:?}: {ours}");
    // A device that accepts a flush only by itself is busy until its writes have ended. A flush has
    // no sectors, so `#D` leaves it out.
    let flushes = folder();
    traced(
        &flushes,
        "--name=flushes --filename=model:sata?size=64M --rw=randwrite --bs=4k --iodepth=4 \
         --number_ios=100 --fdatasync=10",
    );
    let ours = report(&flushes);
    let nr_requeues = number(&ours, "requeues");
    assert!(nr_requeues >= 5, "{ours}");
    let Some(btt) = Btt::of(&flushes, test) else { return };
    assert_eq!(btt.queued_and_issued, [100 + nr_requeues, 100], "{ours}");
    btt.assert_q2c(&ours);
}

/// The completion of a FUA write is that of its data, and `btt` stops there. Our report includes
/// the flush that makes the data durable.
#[test]
fn btt_leaves_out_the_flush_after_a_fua_write() {
    let test = "btt_leaves_out_the_flush_after_a_fua_write";
    let folder = folder();
    let disk = Disk::open("model:sata?size=1M").expect("it opens");
    let trace = Trace::create(folder.path().join("t")).expect("an empty directory");
    trace.add(&disk).expect("it is not traced");
    let mut queue = disk.queue();
    for nth in 0..5 {
        queue.submit(Io::write(Buf::new(4096), nth * 4096).fua()).expect("room");
        queue.reap(1, 1, &mut Vec::new());
    }
    trace.finish().expect("the files are written");
    let ours = report(&folder);
    let Some(btt) = Btt::of(&folder, test) else { return };
    let (q2c, nr) = btt.q2c.expect("I/Os that have ended");
    let flush = mean_s(&ours["stages_ns"]["flush"]);
    // A flush of this model takes more than a millisecond.
    assert!(nr == 5 && flush > 0.001, "{btt:?}: {ours}");
    assert_close("Q2C", mean_s(&ours["total_ns"]) - flush, q2c);
}
