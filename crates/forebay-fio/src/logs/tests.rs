//! Lines have fio's columns; windows have means; nothing is lost.

use super::*;
use crate::generator::Direction;

fn options(avg_msec: u64, offset: bool) -> LogOptions {
    let name = |text: &str| Some(text.to_owned());
    LogOptions {
        bw: name("x"),
        lat: name("y"),
        iops: name("z"),
        avg_msec,
        offset,
        ..LogOptions::default()
    }
}

fn op(direction: Direction) -> Op {
    Op { direction, file: 0, offset: 8192, len: 4096 }
}

fn sample(now_ms: u64, clat_ns: u64) -> Sample {
    Sample { now_ns: now_ms * 1_000_000, clat_ns, lat_ns: clat_ns + 10, has_slat: true, ioprio: 0 }
}

#[test]
fn every_io_has_a_line_as_in_fio() {
    let mut logs = Logs::new(&options(0, false), &Measures::default()).expect("logs");
    logs.record(op(Direction::Write), 4096, sample(7, 20));
    let files = logs.files(2);
    let names: Vec<_> = files.iter().map(|file| file.0.as_str()).collect();
    assert_eq!(
        names,
        ["x_bw.2.log", "y_slat.2.log", "y_clat.2.log", "y_lat.2.log", "z_iops.2.log"]
    );
    let texts: Vec<_> = files.iter().map(|file| file.1.as_str()).collect();
    assert_eq!(texts[0], "7, 204800000, 1, 4096, 0\n");
    assert_eq!(texts[1..4], ["7, 10, 1, 4096, 0\n", "7, 20, 1, 4096, 0\n", "7, 30, 1, 4096, 0\n"]);
    assert_eq!(texts[4], "7, 1, 1, 4096, 0\n");
}

#[test]
fn offsets_have_a_column_of_their_own() {
    let mut logs =
        Logs::new(&LogOptions { shared: true, ..options(0, true) }, &Measures::default())
            .expect("logs");
    logs.record(op(Direction::Read), 4096, sample(7, 20));
    assert_eq!(logs.files(1)[4], ("z_iops.log".to_owned(), "7, 1, 0, 4096, 8192, 0\n".to_owned()));
}

#[test]
fn windows_have_means_and_rates() {
    let mut logs = Logs::new(&options(500, false), &Measures::default()).expect("logs");
    assert_eq!(logs.window_end_ns(), 500_000_000);
    for (at, ns) in [(10, 100), (20, 300)] {
        logs.record(op(Direction::Read), 4096, sample(at, ns));
    }
    logs.close_window(500_000_000, false);
    logs.record(op(Direction::Read), 4096, sample(600, 50));
    logs.close_window(700_000_000, true);
    let files = logs.files(1);
    assert_eq!(files[0].1, "500, 16, 0, 0, 0\n");
    assert_eq!(files[2].1, "500, 200, 0, 0, 0\n700, 50, 0, 0, 0\n");
    assert_eq!(files[4].1, "500, 4, 0, 0, 0\n");
}

#[test]
fn room_is_made_ahead_and_nothing_is_lost() {
    let mut logs = Logs::new(&options(0, false), &Measures::default()).expect("logs");
    let ios = CHUNK + 3;
    for io in 0..ios {
        logs.make_room(1);
        logs.record(op(Direction::Read), 4096, sample(io as u64, 20));
    }
    assert_eq!(logs.files(1)[4].1.lines().count(), ios);
    logs.restart(5_000_000);
    logs.record(op(Direction::Read), 4096, sample(7, 20));
    assert_eq!(logs.files(1)[4].1, "2, 1, 0, 4096, 0\n");
    assert!(Logs::new(&LogOptions::default(), &Measures::default()).is_none());
}

#[test]
fn histograms_count_each_io_of_an_interval_once() {
    let options = |coarseness| LogOptions {
        hist: Some("x".to_owned()),
        hist_msec: 100,
        hist_coarseness: coarseness,
        ..LogOptions::default()
    };
    for (coarseness, columns, bucket) in [(0, 1856, 20), (3, 232, 2), (6, 29, 0)] {
        let mut logs = Logs::new(&options(coarseness), &Measures::default()).expect("logs");
        assert_eq!(logs.window_end_ns(), 100_000_000);
        (0..3).for_each(|_| logs.record(op(Direction::Read), 4096, sample(50, 20)));
        logs.close_window(100_000_000, false);
        assert_eq!(logs.window_end_ns(), 200_000_000);
        logs.record(op(Direction::Write), 4096, sample(150, 20));
        logs.close_window(150_000_000, true);
        let files = logs.files(2);
        assert_eq!(files[0].0, "x_clat_hist.2.log");
        let rows: Vec<Vec<u64>> = files[0]
            .1
            .lines()
            .map(|line| line.split(", ").map(|field| field.parse().expect(line)).collect())
            .collect();
        assert_eq!((&rows[0][..3], &rows[1][..3]), (&[100, 0, 4096][..], &[150, 1, 4096][..]));
        for (row, count) in rows.iter().zip([3, 1]) {
            assert_eq!((row.len(), row[3 + bucket]), (3 + columns, count));
            assert_eq!(row[3..].iter().sum::<u64>(), count);
        }
    }
    let measures = Measures { disable_clat: true, ..Measures::default() };
    let mut logs = Logs::new(&options(0), &measures).expect("logs");
    logs.record(op(Direction::Read), 4096, sample(50, 20));
    logs.close_window(100_000_000, true);
    assert_eq!(logs.files(1)[0].1, "", "the latency is not measured");
}

#[test]
fn means_and_histograms_have_windows_of_their_own() {
    let options = LogOptions { hist: Some("h".to_owned()), hist_msec: 30, ..options(20, false) };
    let mut logs = Logs::new(&options, &Measures::default()).expect("logs");
    for ms in [10, 20, 30, 40, 50, 60] {
        logs.record(op(Direction::Read), 4096, sample(ms, 20));
        if ms * 1_000_000 >= logs.window_end_ns() {
            logs.close_window(ms * 1_000_000, false);
        }
    }
    let starts = |text: &str| {
        let first = |line: &str| line.split(", ").next().map(str::to_owned);
        text.lines().filter_map(first).collect::<Vec<_>>()
    };
    let files = logs.files(1);
    assert_eq!(starts(&files[2].1), ["20", "40", "60"]);
    assert_eq!(starts(&files[5].1), ["30", "60"]);
}

#[test]
fn unmeasured_figures_are_not_logged() {
    let mut measures = Measures::default();
    measures.reduce(true);
    let mut logs = Logs::new(&options(0, false), &measures).expect("logs");
    logs.record(op(Direction::Read), 4096, sample(7, 0));
    let texts: Vec<_> = logs.files(1).into_iter().map(|file| file.1).collect();
    assert_eq!(texts, ["", "", "", "", "7, 1, 0, 4096, 0\n"]);
}

#[test]
fn lines_have_the_priority_of_the_io() {
    for (prio, expected) in [(false, ["1", "0", "0"]), (true, ["0x2003", "0x6000", "0x0000"])] {
        let mut logs =
            Logs::new(&LogOptions { prio, ..options(0, false) }, &Measures::default()).expect("l");
        for ioprio in [0x2003, 0x6000, 0] {
            logs.record(op(Direction::Read), 4096, Sample { ioprio, ..sample(7, 20) });
        }
        for (name, text) in logs.files(1) {
            let last = |line: &str| line.rsplit(", ").next().map(str::to_owned);
            assert_eq!(text.lines().filter_map(last).collect::<Vec<_>>(), expected, "{name}");
        }
    }
}
