//! One trace with every kind of request, for each program that reads such files.

use std::collections::BTreeMap;
use std::path::Path;

use forebay::{Buf, Disk, Io, Limits, Rate, Trace};
use serde_json::Value;

use crate::common::folder;
use crate::trace::tool;
use crate::trace_btt::Btt;

/// A disk with few tags, a scheduler, small requests, a read that finds the driver busy every
/// second time, and a write that fails.
const DISK: &str = "fault:model:sata?size=64M&queue_depth=4&max_sectors_kb=64&scheduler=mq-deadline\
                    &rule=read:busy:range=16M+4k:nth=2&rule=write:medium:range=32M+4k";

/// Submits I/Os, and waits until all have succeeded.
fn submitted(disk: &Disk, ios: impl IntoIterator<Item = Io>) {
    let mut queue = disk.queue();
    let nr = ios.into_iter().map(|io| queue.submit(io).expect("room")).count();
    let mut ended = Vec::new();
    queue.reap(nr, nr, &mut ended);
    assert!(ended.iter().all(|completion| completion.result.is_ok()), "{ended:?}");
}

/// The I/Os of the trace.
fn every_kind(disk: &Disk) {
    let block = |nth: u64| nth * 4096;
    disk.read_at(&mut [0; 4096], block(0)).expect("it is read");
    disk.write_at(&[1; 4096], block(1)).expect("it is written");
    disk.discard(block(2), 8192).expect("it is discarded");
    disk.write_zeroes(block(16), 4096).expect("it is written");
    for io in [
        Io::write(Buf::new(4096), block(20)).fua(),
        Io::write(Buf::new(4096), block(21)),
        Io::flush(),
        Io::write(Buf::new(4096), block(22)).preflush(),
    ] {
        submitted(disk, [io]);
    }
    // Neighbours in one plug: one request, which grows at both ends.
    let plug = forebay::plug();
    let mut queue = disk.queue();
    for nth in [41, 42, 40] {
        queue.submit(Io::write(Buf::new(4096), block(nth))).expect("room");
    }
    drop(plug);
    queue.reap(3, 3, &mut Vec::new());
    // More than the disk has tags.
    submitted(disk, (0..12).map(|nth| Io::read(Buf::new(4096), block(100 + 2 * nth))));
    // Three requests.
    disk.read_at(&mut [0; 160 << 10], 8 << 20).expect("it is read");
    // The second read finds the driver busy once.
    for _ in 0..2 {
        disk.read_at(&mut [0; 4096], 16 << 20).expect("it is read");
    }
    disk.write_at(&[1; 4096], 32 << 20).expect_err("the rule");
    let owner = disk.owner("slow").expect("an owner");
    let mut limits = Limits::default();
    limits.both.iops = Rate::per_s(20);
    owner.set_limits(&limits).expect("it is possible");
    for nth in 0..6 {
        owner.write_at(&[1; 4096], block(200 + nth)).expect("it is written");
    }
}

/// A record that `blkparse` has printed.
#[derive(Debug)]
struct Record {
    letter: String,
    kind: String,
    has_sectors: bool,
}

/// Returns the records in the output of `blkparse`. The kind of a message is its first word.
fn records(text: &str) -> Vec<Record> {
    let record = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (major, _) = words.first()?.split_once(',')?;
        major.parse::<u32>().ok()?;
        let letter = (*words.get(5)?).to_owned();
        let kind = words.get(if letter == "m" { 7 } else { 6 }).map_or("", |word| word);
        // The start and the number of sectors, or the sectors on both sides of a split.
        let has_sectors = matches!(words.get(8), Some(&"+" | &"/"));
        Some(Record { letter, kind: kind.to_owned(), has_sectors })
    };
    text.lines().filter_map(record).collect()
}

/// Checks that `blkrawverify` finds no invalid record, and returns the number of valid ones.
fn verified(dir: &Path, test: &str, name: &str) -> Option<u64> {
    tool(dir, test, "blkrawverify", name)?;
    let verdict = std::fs::read_to_string(dir.join(format!("{name}.verify.out")));
    let verdict = verdict.expect("the output of blkrawverify");
    let sums: Vec<_> = verdict.lines().filter(|line| line.contains(" invalid (")).collect();
    assert!(sums.iter().all(|line| line.contains(" 0 invalid (100.0%)")), "{verdict}");
    let valid = |line: &&str| line.split_whitespace().next()?.parse::<u64>().ok();
    Some(sums.iter().map(|line| valid(line).expect("a number")).sum())
}

/// Returns the numbers of reads, writes, trims and syncs that fio replays from a file of
/// `blkparse`. The engine `null` performs none of them.
fn replayed(dir: &Path, test: &str) -> Option<[u64; 4]> {
    let args = "--name=replay --read_iolog=merged.bin --replay_redirect=none --ioengine=null \
                --replay_no_stall=1 --output-format=json";
    let text = tool(dir, test, "fio", args)?;
    let text = &text[text.find('{').expect("JSON")..];
    let replay: Value = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
    let job = &replay["jobs"][0];
    assert_eq!(job["error"], 0, "{text}");
    Some(
        ["read", "write", "trim", "sync"].map(|kind| {
            job[kind]["total_ios"].as_u64().unwrap_or_else(|| panic!("no {kind}: {text}"))
        }),
    )
}

#[test]
fn blkparse_blkrawverify_btt_and_fio_read_every_kind_of_request() {
    let test = "blkparse_blkrawverify_btt_and_fio_read_every_kind_of_request";
    let folder = folder();
    let dir = folder.path().join("t");
    let disk = Disk::open(DISK).expect("it opens");
    let trace = Trace::create(&dir).expect("an empty directory");
    trace.add(&disk).expect("it is not traced");
    every_kind(&disk);
    let stats = trace.finish().expect("the files are written");
    assert_eq!(stats.lost, 0);
    let devices = std::fs::read_to_string(dir.join("devices")).expect("a list");
    let name = devices.split('\t').nth(1).expect("a name");

    let Some(text) = tool(&dir, test, "blkparse", &format!("-i {name}")) else { return };
    let records = records(&text);
    let mut counts = BTreeMap::<(&str, &str), u64>::new();
    for record in &records {
        *counts.entry((&record.letter, &record.kind)).or_default() += 1;
    }
    let nr = |letter: &str, kind: &str| counts.get(&(letter, kind)).copied().unwrap_or(0);
    for (letter, kind, expected) in [
        ("Q", "R", 16),
        ("Q", "W", 13),
        ("Q", "WF", 1),
        ("Q", "D", 1),
        ("Q", "FW", 2),
        ("M", "W", 1),
        ("F", "W", 1),
        ("P", "N", 1),
        ("U", "N", 1),
        ("X", "R", 2),
        ("R", "R", 1),
    ] {
        assert_eq!(nr(letter, kind), expected, "{letter} {kind}: {counts:?}\n{text}");
    }
    for (letter, kind) in [("S", "R"), ("I", "R"), ("I", "W"), ("m", "flush:"), ("m", "limit:")] {
        assert!(nr(letter, kind) > 0, "{letter} {kind}: {counts:?}\n{text}");
    }
    assert!(text.contains("[-61]") || text.contains("[65475]"), "the failure:\n{text}");

    let nr_all = |letter: &str| records.iter().filter(|it| it.letter == letter).count() as u64;
    // It skips messages.
    let Some(nr_valid) = verified(&dir, test, name) else { return };
    assert_eq!(nr_valid + nr_all("m"), stats.records, "{text}");
    assert_eq!(records.len() as u64, stats.records, "{text}");

    let Some(btt) = Btt::of(&folder, test) else { return };
    let with_sectors = |letter: &str| {
        records.iter().filter(|it| it.letter == letter && it.has_sectors).count() as u64
    };
    // All but the I/O that was split.
    assert_eq!(btt.q2c.map(|(_, nr)| nr), Some(with_sectors("Q") - 1), "{btt:?}\n{text}");
    let nr_issued = with_sectors("D");
    let nr_queued = (with_sectors("Q") + nr_all("R")).max(nr_issued);
    assert_eq!(btt.queued_and_issued, [nr_queued, nr_issued], "{text}");

    let Some(nr_ios) = replayed(folder.path(), test) else { return };
    // fio takes the write with PREFLUSH for a flush.
    assert_eq!(nr_ios, [16, 14, 1, 2], "{text}");
    assert_eq!(nr_ios.iter().sum::<u64>(), nr_all("Q"), "{text}");
}
