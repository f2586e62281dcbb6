//! The reports of made-up figures: the normal one line by line, the JSON by its figures.

use super::*;

fn report() -> Report {
    let mut stats = JobStats::new(0);
    for io in 0..1000_u64 {
        let direction = if io % 4 == 0 { Direction::Write } else { Direction::Read };
        stats.record_submit(1, 1 + (io % 8) as u32);
        stats.record_slat(direction, 3_000 + io);
        stats.record_complete(direction, 4096, 20_000 + io * 100, 23_000 + io * 101);
        stats.record_reap(1);
        stats.tick(io * 1_500_000);
    }
    stats.record_sync(1, 70_000);
    stats.record_sync(1, 150_000);
    stats.directions[0].runtime_ms = 1500;
    stats.directions[1].runtime_ms = 1500;
    stats.job_runtime_ms = 1500;
    stats.usage = crate::stats::Usage {
        user_us: 150_000,
        system_us: 300_000,
        voluntary_switches: 9,
        involuntary_switches: 3,
        major_faults: 0,
        minor_faults: 34,
    };
    Report {
        version: "forebay-0.1.0".to_owned(),
        timestamp_ms: 1_795_226_586_895,
        global_options: vec![("bs".to_owned(), "4k".to_owned())],
        jobs: vec![JobReport {
            name: "job1".to_owned(),
            jobs: 1,
            pid: 77,
            elapsed_s: 2,
            options: vec![("name".to_owned(), "job1".to_owned())],
            iodepth: 8,
            stats,
            ..JobReport::default()
        }],
        disk_util: vec![DiskUtil {
            name: "disk.img".to_owned(),
            read_ios: 47,
            write_ios: 250,
            read_merges: 703,
            read_ticks_ms: 5,
            write_ticks_ms: 6,
            in_queue_ms: 11,
            util_percent: 97.5,
            ..DiskUtil::default()
        }],
        forebay: vec![serde_json::json!({ "bios": 1000 })],
        extra: vec![String::new(), "forebay (disk.img): bios=1000".to_owned()],
    }
}

/// The whole of it, so that a reader sees the shape; fio's own lines are compared in `tests/`.
#[test]
fn normal_output_reads_like_that_of_fio() {
    let expected = "
job1: (groupid=0, jobs=1): err= 0: pid=77: Sat Nov 21 02:03:06 2026
  read: IOPS=500, BW=2000KiB/s (2048kB/s)(3000KiB/1500msec)
    slat (nsec): min=3001, max=3999, avg=3500.00, stdev=288.87
    clat (usec): min=20, max=119, avg=70.00, stdev=28.89
     lat (usec): min=23, max=123, avg=73.50, stdev=29.18
    clat percentiles (usec):
     |  1.00th=[   22],  5.00th=[   25], 10.00th=[   30], 20.00th=[   40],
     | 30.00th=[   50], 40.00th=[   60], 50.00th=[   71], 60.00th=[   81],
     | 70.00th=[   90], 80.00th=[  100], 90.00th=[  111], 95.00th=[  116],
     | 99.00th=[  120], 99.50th=[  120], 99.90th=[  121], 99.95th=[  121],
     | 99.99th=[  121]
   bw (  KiB/s): min= 1996, max= 2003, per=99.97%, avg=1999.50, stdev= 4.95, samples=2
   iops        : min=  499, max=  500, avg=499.50, stdev= 0.71, samples=2
  write: IOPS=166, BW=667KiB/s (683kB/s)(1000KiB/1500msec); 0 zone resets
";
    let text = normal::render(&report());
    let head: String = text.split_inclusive('\n').take(expected.lines().count()).collect();
    assert_eq!(head, expected);

    let expected = "
  lat (usec)   : 50=30.00%, 100=50.00%, 250=20.00%
  fsync/fdatasync/sync_file_range:
    sync (usec): min=70, max=150, avg=110.00, stdev=56.57
    sync percentiles (usec):
     |  1.00th=[   71],  5.00th=[   71], 10.00th=[   71], 20.00th=[   71],
     | 30.00th=[   71], 40.00th=[   71], 50.00th=[   71], 60.00th=[  151],
     | 70.00th=[  151], 80.00th=[  151], 90.00th=[  151], 95.00th=[  151],
     | 99.00th=[  151], 99.50th=[  151], 99.90th=[  151], 99.95th=[  151],
     | 99.99th=[  151]
  cpu          : usr=10.00%, sys=20.00%, ctx=12, majf=0, minf=34
  IO depths    : 1=12.7%, 2=25.0%, 4=50.0%, 8=12.5%, 16=0.0%, 32=0.0%, >=64=0.0%
     submit    : 0=0.0%, 4=100.0%, 8=0.0%, 16=0.0%, 32=0.0%, 64=0.0%, >=64=0.0%
     complete  : 0=0.0%, 4=100.0%, 8=0.0%, 16=0.0%, 32=0.0%, 64=0.0%, >=64=0.0%
     issued rwts: total=750,250,0,2 short=0,0,0,0 dropped=0,0,0,0
     latency   : target=0, window=0, percentile=100.00%, depth=8

Run status group 0 (all jobs):
   READ: bw=2000KiB/s (2048kB/s), 2000KiB/s-2000KiB/s (2048kB/s-2048kB/s), \
io=3000KiB (3072kB), run=1500-1500msec
  WRITE: bw=667KiB/s (683kB/s), 667KiB/s-667KiB/s (683kB/s-683kB/s), \
io=1000KiB (1024kB), run=1500-1500msec

Disk stats (read/write):
  disk.img: ios=47/250, merge=703/0, ticks=5/6, in_queue=11, util=97.50%

forebay (disk.img): bios=1000
";
    let at = text.find("\n  lat (usec)   :").expect("the bands");
    assert_eq!(&text[at..], expected);
}

#[test]
fn a_terse_line_has_the_figures_in_the_order_of_fio() {
    let mut report = report();
    report.jobs[0].measures.description = Some("a text".to_owned());
    report.jobs[0].measures.percentile_list = Some(vec![50.0, 99.0]);
    let zeros = "0%=0;".repeat(18);
    let expected = format!(
        "3;forebay-0.1.0;job1;0;0;3000;2000;500;1500;3;3;3.500000;0.288867;20;119;70.000000;\
         28.886662;50.000000%=70;99.000000%=119;{zeros}23;123;73.500000;29.175529;1996;2003;\
         99.975000%;1999.500000;4.949747;1000;666;166;1500;3;3;3.498000;0.289252;20;119;69.800000;\
         28.925191;50.000000%=69;99.000000%=119;{zeros}23;123;73.298000;29.214443;670;670;\
         100.000000%;670.000000;0.000000;10.000000%;20.000000%;12;0;34;12.7%;25.0%;50.0%;12.5%;\
         0.0%;0.0%;0.0%;0.00%;0.00%;0.00%;0.00%;30.00%;50.00%;20.00%;0.00%;0.00%;0.00%;0.00%;\
         0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;disk.img;47;250;703;0;\
         5;6;11;97.50%;a text\n"
    );
    assert_eq!(terse::render(&report, crate::job::TerseVersion::V3), expected);
}

#[test]
fn a_failed_job_says_why() {
    let mut report = report();
    let message = "read at offset 4096: media error".to_owned();
    report.jobs[0].error = Some(JobError { errno: 5, message });
    let text = normal::render(&report);
    let line = "job1: (groupid=0, jobs=1): err= 5 (read at offset 4096: media error): pid=77: ";
    assert!(text.contains(line), "{text}");
    assert_eq!(json::value(&report, false)["jobs"][0]["error"], 5);
}

#[test]
fn json_has_figures_in_the_units_of_fio() {
    let value = json::value(&report(), false);
    let job = &value["jobs"][0];
    assert_eq!(value["fio version"], "forebay-0.1.0");
    assert_eq!(value["time"], "Sat Nov 21 02:03:06 2026");
    assert_eq!(value["global options"]["bs"], "4k");
    assert_eq!(job["read"]["io_bytes"], 3_072_000);
    assert_eq!(job["read"]["bw"], 2000);
    assert_eq!(job["read"]["iops"], 500.0);
    assert_eq!(job["read"]["clat_ns"]["N"], 750);
    assert_eq!(job["read"]["clat_ns"]["percentile"]["99.000000"], 119_296);
    assert!(job["trim"]["clat_ns"].get("percentile").is_none());
    assert_eq!(job["usr_cpu"], 10.0);
    assert_eq!(job["sync"]["total_ios"], 2);
    assert_eq!(value["disk_util"][0]["read_merges"], 703);
    assert_eq!(value["forebay"][0]["bios"], 1000);
}

#[test]
fn json_text_is_one_value() {
    let text = json::render(&report(), false);
    assert_eq!(text.parse::<serde_json::Value>().expect("JSON"), json::value(&report(), false));
    assert!(text.ends_with("}\n"));
}

#[test]
fn merged_clones_count_themselves() {
    let mut report = report();
    let mut clone = report.jobs[0].clone();
    clone.error = Some(JobError { errno: 28, message: "full".to_owned() });
    clone.nr_zone_resets = 3;
    report.jobs[0].nr_zone_resets = 4;
    report.jobs[0].merge(clone);
    let job = &report.jobs[0];
    assert_eq!(job.nr_zone_resets, 7);
    assert_eq!((job.jobs, job.stats.total_ios()), (2, 2000));
    assert_eq!(job.error.as_ref().map(|error| error.errno), Some(28));
}
