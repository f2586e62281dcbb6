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
    Sample { now_ns: now_ms * 1_000_000, clat_ns, lat_ns: clat_ns + 10, has_slat: true }
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
fn unmeasured_figures_are_not_logged() {
    let mut measures = Measures::default();
    measures.reduce(true);
    let mut logs = Logs::new(&options(0, false), &measures).expect("logs");
    logs.record(op(Direction::Read), 4096, sample(7, 0));
    let texts: Vec<_> = logs.files(1).into_iter().map(|file| file.1).collect();
    assert_eq!(texts, ["", "", "", "", "7, 1, 0, 4096, 0\n"]);
}
