//! Unit tests of `text`.

use super::super::samples::comparison;
use super::*;

const TERMINAL: &str = "\
5 pairs of runs, A and B in turn, on A Processor, 2 processors, Linux 6.1

  Load: rw=randread, bs=4k
  A: forebay, disk.img?direct=on
  B: fio-3.33, io_uring, x

                            medians of runs            A/B, pair by pair
                                 A       B  median   interval      range  better    limit  verdict
  IOPS                      102.0k  100.0k    1.02  0.90-1.10  0.90-1.10  higher  >= 0.97  undecided
  bandwidth, MiB/s           398.4   390.6    1.02  0.90-1.10  0.90-1.10  higher  >= 0.97  undecided
  latency mean, us            9.80   10.00    0.98  0.91-1.11  0.91-1.11   lower
  latency p50, us             7.84    8.00    0.98  0.91-1.11  0.91-1.11   lower  <= 1.05  undecided
  latency p99, us            20.40   20.00    1.02  0.90-1.10  0.90-1.10   lower  <= 1.15  ok
  latency p99.9, us           1500    1500    1.00  1.00-1.00  1.00-1.00   lower
  CPU per I/O, us            3.000   5.000    0.60  0.60-0.60  0.60-0.60   lower
  system calls per I/O       2.000   2.500    0.80          -  0.80-0.80   lower
  context switches per I/O   0.500   0.500    1.00  1.00-1.00  1.00-1.00   lower

A, B: the median of the runs of each side. ";

const MARKDOWN: &str = "\
# Comparison

5 pairs of runs, A and B in turn, on A Processor, 2 processors, Linux 6.1

- Load: rw=randread, bs=4k
- A: forebay, disk.img?direct=on
- B: fio-3.33, io_uring, x

|  | A, median | B, median | A/B, median of the pairs | its interval | range of the pairs | better \
| limit | verdict |
|---|---:|---:|---:|---:|---:|---|---|---|
| IOPS | 102.0k | 100.0k | 1.02 | 0.90-1.10 | 0.90-1.10 | higher | >= 0.97 | undecided |
| bandwidth, MiB/s | 398.4 | 390.6 | 1.02 | 0.90-1.10 | 0.90-1.10 | higher | >= 0.97 | undecided |
| latency mean, us | 9.80 | 10.00 | 0.98 | 0.91-1.11 | 0.91-1.11 | lower |  |  |
";

#[test]
fn the_table_for_a_terminal() {
    let text = render(&comparison(), false);
    assert!(text.starts_with(TERMINAL), "{text}");
    assert!(text.lines().take(16).all(|line| line.len() <= 100), "{text}");
    let level = "\ninterval: it contains the median of all possible pairs with a probability \
                 of 93.8 % (order\n  statistics of 5 pairs).\n";
    assert!(text.contains(level), "{text}");
}

#[test]
fn the_table_in_markdown() {
    let text = markdown(&comparison());
    assert!(text.starts_with(MARKDOWN), "{text}");
    assert!(text.ends_with("\n```console\nforebay bench --name=a\nfio --thread --name=a\n```\n"));
}

#[test]
fn notes_for_the_reader_come_first() {
    let mut comparison = comparison();
    comparison.nr_asked = 7;
    comparison.rows[0].ratio = comparison.rows[0].ratio.map(|mut ratio| {
        ratio.max = 2.0;
        ratio
    });
    let text = render(&comparison, false);
    let note = "\nNOTE: Interrupted: 5 of 7 pairs are complete.\nNOTE: The ratios of IOPS \
                range from 0.90 to 2.00: the machine or the device was not quiet.\n  Take more \
                pairs or longer runs.\nA, B: ";
    assert!(text.contains(note), "{text}");
}

#[test]
fn rows_with_fewer_ratios_name_their_number() {
    let mut comparison = comparison();
    let row = &mut comparison.rows[4];
    row.pairs[0][1] = None;
    assert_eq!(cells(row)[0], "latency p99, us (4 of 5 pairs)");
    // The level of the legend is that of the other rows.
    comparison.rows.rotate_left(4);
    assert_eq!(comparison.level(), Some(93.75));
}

#[test]
fn only_worse_has_a_colour_and_only_if_it_may() {
    let mut comparison = comparison();
    comparison.rows[0].verdict = Some(Verdict::Worse);
    assert!(render(&comparison, true).contains("  \x1b[31mworse\x1b[0m\n"));
    assert!(!render(&comparison, false).contains('\x1b'));
}

#[test]
fn unknown_figure_is_a_dash() {
    let mut comparison = comparison();
    comparison.rows.retain(|row| row.title() == "system calls per I/O");
    comparison.rows[0].medians[1] = None;
    comparison.rows[0].ratio = None;
    assert_eq!(cells(&comparison.rows[0])[1..6], ["2.000", "-", "-", "-", "-"]);
}
