//! The text, parsed by a strict parser of the parts of OpenMetrics that are used.

use std::collections::{BTreeMap, BTreeSet};

use forebay::Disk;

use super::*;
use crate::metrics::CountedExport;
use forebay_front::PollSums;

/// A sample: its name and labels, and its value.
type Samples = BTreeMap<String, f64>;

/// Parses the text as the standard requires: the lines of a family are contiguous, its type
/// precedes its samples, each sample has the suffix of its type, none occurs twice, and the last
/// line is the end marker.
fn parse(text: &str) -> Samples {
    let mut samples = Samples::new();
    let mut families = BTreeSet::new();
    let mut current: Option<(String, String)> = None;
    let body = text.strip_suffix("# EOF\n").expect("the end is marked");
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (word, name) = (words.next().unwrap(), words.next().unwrap());
            let rest = words.next().unwrap();
            match word {
                "TYPE" => {
                    assert!(current.as_ref().is_none_or(|(known, _)| known != name), "{line}");
                    current = Some((name.to_owned(), rest.to_owned()));
                }
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                "HELP" => {
                    assert!(families.insert(name.to_owned()), "{name} occurs twice");
                    assert!(rest.ends_with('.') && !rest.ends_with(".."), "{line}");
                    current = None;
                }
                _ => panic!("{line}"),
            }
            continue;
        }
        let (family, kind) = current.as_ref().expect("a type comes first");
        let (key, value) = line.rsplit_once(' ').expect("a value");
        let name = key.split('{').next().unwrap();
        let suffix = name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line}"));
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => panic!("{kind}"),
        };
        assert!(suffixes.contains(&suffix), "{line}");
        let value: f64 = value.parse().expect(line);
        assert!(value >= 0.0, "{line}");
        assert!(samples.insert(key.to_owned(), value).is_none(), "{key} occurs twice");
    }
    check_histograms(&samples);
    samples
}

/// Checks that buckets never fall, and that the last one equals the count.
fn check_histograms(samples: &Samples) {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (key, value) in samples.iter().filter(|(key, _)| key.contains("_bucket{")) {
        let (start, rest) = key.split_once("le=\"").unwrap();
        let (bound, end) = rest.split_once('"').unwrap();
        let bound = bound.replace("+Inf", "inf").parse().unwrap();
        buckets.entry(format!("{start}{end}")).or_default().push((bound, *value));
    }
    assert!(!buckets.is_empty());
    for (key, mut buckets) in buckets {
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.is_sorted_by_key(|bucket| bucket.1), "{key}: {buckets:?}");
        let count = key.replace("_bucket", "_count").replace(",}", "}").replace("{,", "{");
        let last = buckets.last().unwrap();
        assert_eq!((last.0, samples.get(&count)), (f64::INFINITY, Some(&last.1)), "{count}");
    }
}

fn texts_of(counters: &Arc<Counters>) -> (String, Samples) {
    let text = Exposition::new(Arc::clone(counters), Process::open().unwrap()).text().unwrap();
    let samples = parse(&text);
    (text, samples)
}

#[test]
fn the_names_are_those_of_node_exporter() {
    let disk = Disk::open("ram:1M").unwrap();
    disk.write_at(&[1; 4096], 0).unwrap();
    disk.read_at(&mut [0; 512], 0).unwrap();
    disk.discard(4096, 4096).unwrap();
    disk.write_zeroes(8192, 512).unwrap();
    disk.flush().unwrap();
    let counters = Counters::new(vec![CountedExport::of("disk", disk)]);
    let (_, samples) = texts_of(&counters);
    let value = |name: &str| samples[&format!("forebay_disk_{name}{{device=\"disk\"}}")];
    let exact = [
        ("reads_completed_total", 1.0),
        ("read_bytes_total", 512.0),
        ("writes_completed_total", 2.0),
        ("written_bytes_total", 4608.0),
        ("discards_completed_total", 1.0),
        ("discarded_sectors_total", 8.0),
        ("write_zeroes_completed_total", 1.0),
        ("zeroed_bytes_total", 512.0),
        ("io_now", 0.0),
        ("size_bytes", 1048576.0),
    ];
    for (name, expected) in exact {
        assert_eq!(value(name), expected, "{name}");
    }
    let others = [
        "reads_merged_total",
        "read_time_seconds_total",
        "writes_merged_total",
        "write_time_seconds_total",
        "io_time_seconds_total",
        "io_time_weighted_seconds_total",
        "discards_merged_total",
        "discard_time_seconds_total",
        "flush_requests_total",
        "flush_requests_time_seconds_total",
    ];
    for name in others {
        value(name);
    }
}

#[test]
fn traffic_and_failures_are_reported_with_labels() {
    let disks = ["null:1M", "null:2M"].map(|spec| Disk::open(spec).unwrap());
    let [one, two] = disks;
    let counters = Counters::new(vec![
        CountedExport::of("", one),
        // The operator chooses the names, so they may be odd.
        CountedExport::of("a \"b\"\n\\c", two),
    ]);
    let connection = counters.open_connection();
    connection.set_export(1);
    connection.begin(RequestKind::Read);
    connection.begin(RequestKind::Trim);
    connection.end(RequestKind::Read, 4096);
    connection.received(56);
    connection.sent(4112);
    let _negotiating = counters.open_connection();
    counters.server().refuse(ConnectionRefusal::TooMany);
    counters.server().fail_handshake(HandshakeFailure::Tls);
    counters.server().panics.count();
    counters.times(1).record(Stage::Disk, 3_000, 1);
    for (polled_ns, nr_found, nr_missed) in [(1_000, 2, 0), (2_000, 0, 1)] {
        counters.worker().record_polling(PollSums { polled_ns, nr_found, nr_missed });
    }
    let (text, samples) = texts_of(&counters);
    let odd = r#"device="a \"b\"\n\\c""#;
    let exact = [
        ("forebay_build_info{version=\"0.1.0\"}".to_owned(), 1.0),
        ("forebay_connections_accepted_total".to_owned(), 2.0),
        ("forebay_connections_negotiating".to_owned(), 1.0),
        ("forebay_connections_refused_total{reason=\"connections\"}".to_owned(), 1.0),
        ("forebay_connections_refused_total{reason=\"descriptors\"}".to_owned(), 0.0),
        ("forebay_handshake_failures_total{reason=\"tls\"}".to_owned(), 1.0),
        ("forebay_panics_total".to_owned(), 1.0),
        ("forebay_poll_seconds_total".to_owned(), 3e-6),
        ("forebay_polls_total{end=\"found\"}".to_owned(), 2.0),
        ("forebay_polls_total{end=\"slept\"}".to_owned(), 1.0),
        ("forebay_connections{device=\"\"}".to_owned(), 0.0),
        (format!("forebay_connections{{{odd}}}"), 1.0),
        (format!("forebay_export_requests_total{{{odd},op=\"trim\"}}"), 1.0),
        (format!("forebay_export_read_bytes_total{{{odd}}}"), 4096.0),
        (format!("forebay_disk_io_now{{{odd}}}"), 1.0),
        (format!("forebay_connection_requests_total{{connection=\"1\",{odd}}}"), 2.0),
        (format!("forebay_connection_in_flight{{connection=\"1\",{odd}}}"), 1.0),
        (format!("forebay_connection_sent_bytes_total{{connection=\"1\",{odd}}}"), 4112.0),
        (format!("forebay_request_stage_seconds_count{{{odd},stage=\"disk\"}}"), 1.0),
        (format!("forebay_request_stage_seconds_sum{{{odd},stage=\"disk\"}}"), 3e-6),
    ];
    for (key, expected) in exact {
        assert_eq!(samples.get(&key), Some(&expected), "{key}\n{text}");
    }
    for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "threads"] {
        assert!(samples.contains_key(&format!("process_{name}")), "{name}");
    }
    drop(connection);
    let (_, samples) = texts_of(&counters);
    assert!(!samples.keys().any(|key| key.contains("connection=")), "the connection has ended");
    assert_eq!(samples[&format!("forebay_export_sent_bytes_total{{{odd}}}")], 4112.0);
}

#[test]
fn rings_of_an_export_are_numbered_and_count_as_its_traffic() {
    let disk = Disk::open("null:1M").unwrap();
    let counters = Counters::new(vec![CountedExport::of("vm", disk)]);
    let (text, _) = texts_of(&counters);
    assert!(!text.contains("forebay_ring"), "without a device there are no rings");
    let rings = [(); 3].map(|()| counters.ring(0));
    rings[2].traffic().begin(RequestKind::Write);
    rings[2].traffic().end(RequestKind::Write, 4096);
    rings[1].traffic().begin(RequestKind::Read);
    rings[1].traffic().fail();
    rings[0].kicked();
    rings[0].notified();
    rings[0].suppressed();
    rings[1].bounced(4096);
    rings[1].bounced(512);
    rings[2].set_registered(3);
    let (_, samples) = texts_of(&counters);
    let of = |name: &str, ring: u8| {
        samples[&format!("forebay_ring_{name}_total{{device=\"vm\",ring=\"{ring}\"}}")]
    };
    assert_eq!((of("requests", 2), of("written_bytes", 2), of("errors", 1)), (1.0, 4096.0, 1.0));
    assert_eq!((of("kicks", 0), of("kicks", 1)), (1.0, 0.0));
    assert_eq!((of("notifications", 0), of("notifications_suppressed", 0)), (1.0, 1.0));
    assert_eq!((of("bounced_requests", 1), of("bounced_bytes", 1)), (2.0, 4608.0));
    assert_eq!((of("bounced_requests", 0), of("registered_requests", 2)), (0.0, 3.0));
    let written = "forebay_export_written_bytes_total{device=\"vm\"}";
    assert_eq!(samples[written], 4096.0);
}
