//! The records of each kind of request, as `blkparse` prints them.

use forebay::{Buf, Disk, Io, Limits, Rate, Trace};

use crate::common::{bench, folder, forebay, json, skip_unless_required, stderr, stdout};
use crate::trace::tool;

/// Traces what `work` does on a disk of this spec. Returns the records as `blkparse` prints them:
/// letter, kind and range, or the text of a message. Returns `None`, and skips the test, without
/// it.
fn printed(test: &str, spec: &str, work: impl FnOnce(&Disk)) -> Option<Vec<String>> {
    let folder = folder();
    let dir = folder.path().join("t");
    let disk = Disk::open(spec).expect("it opens");
    let trace = Trace::create(&dir).expect("an empty directory");
    trace.add(&disk).expect("it is not traced");
    work(&disk);
    trace.finish().expect("the files are written");
    let devices = std::fs::read_to_string(dir.join("devices")).expect("a list");
    let name = devices.split('\t').nth(1).expect("a name");
    let text = tool(folder.path(), test, "blkparse", &format!("-D t -i {name}"))?;
    Some(text.lines().filter_map(record).collect())
}

/// Returns the record of a line of `blkparse`: without device, processor, number, time and process,
/// and without the times of a message.
fn record(line: &str) -> Option<String> {
    let (major, _) = line.trim_start().split_once(',')?;
    major.parse::<u32>().ok()?;
    let words: Vec<_> = line.split_whitespace().skip(5).collect();
    let words = words.into_iter().take_while(|word| !word.starts_with('['));
    let mut words: Vec<_> = words.collect();
    if words.first() == Some(&"m") {
        // `m N`, and the text.
        words.remove(1);
        words
            .iter_mut()
            .filter(|word| word.parse::<u64>().is_ok_and(|nr| nr > 1000))
            .for_each(|word| *word = "TIME");
    }
    Some(words.join(" "))
}

/// Submits I/Os in one plug, and waits for them.
fn plugged(disk: &Disk, ios: impl IntoIterator<Item = Io>) {
    let mut queue = disk.queue();
    let plug = forebay::plug();
    let nr = ios.into_iter().map(|io| queue.submit(io).expect("room")).count();
    drop(plug);
    let mut ended = Vec::new();
    queue.reap(nr, nr, &mut ended);
    assert!(ended.iter().all(|completion| completion.result.is_ok()), "{ended:?}");
}

#[test]
fn reads_writes_discards_and_zeroes_have_their_letters() {
    let test = "reads_writes_discards_and_zeroes_have_their_letters";
    let work = |disk: &Disk| {
        disk.read_at(&mut [0; 4096], 0).expect("it is read");
        disk.write_at(&[1; 4096], 4096).expect("it is written");
        disk.discard(8192, 8192).expect("it is discarded");
        disk.write_zeroes(1 << 16, 4096).expect("it is written");
    };
    let Some(records) = printed(test, "ram:1M", work) else { return };
    let stages = |rest: &str| ["Q", "G", "D", "C"].map(|letter| format!("{letter} {rest}"));
    let all = ["R 0 + 8", "W 8 + 8", "D 16 + 16", "W 128 + 8"].map(stages);
    assert_eq!(records, all.as_flattened());
}

#[test]
fn flush_and_fua_write_have_letters_and_messages() {
    let test = "flush_and_fua_write_have_letters_and_messages";
    let work = |disk: &Disk| {
        let mut queue = disk.queue();
        for io in [
            Io::write(Buf::new(4096), 0).fua(),
            Io::write(Buf::new(4096), 4096),
            Io::flush(),
            Io::write(Buf::new(4096), 8192).preflush(),
        ] {
            queue.submit(io).expect("room");
            queue.reap(1, 1, &mut Vec::new());
        }
    };
    let Some(mut records) = printed(test, "model:sata?size=1M", work) else { return };
    // A request that nothing precedes may pass the scheduler.
    records.retain(|record| !record.starts_with("I "));
    let expected = [
        "Q WF 0 + 8",
        "G WF 0 + 8",
        "D WF 0 + 8",
        "C WF 0 + 8",
        "m flush: 0 + 8 waits for the next one",
        "D FW",
        "C FW 0",
        "m flush: 0 + 8 done TIME ns after Q",
        "Q W 8 + 8",
        "G W 8 + 8",
        "D W 8 + 8",
        "C W 8 + 8",
        "Q FW",
        "m flush: waits for the next one",
        "D FW",
        "C FW 0",
        "m flush: done TIME ns after Q",
        "Q FW 16 + 8",
        "m flush: 16 + 8 waits for the next one",
        "D FW",
        "C FW 0",
        "m flush: 16 + 8 done TIME ns after Q",
        "G FW 16 + 8",
        "D FW 16 + 8",
        "C FW 16 + 8",
    ];
    assert_eq!(records, expected);
}

#[test]
fn split_request_has_a_letter_for_each_front_part() {
    let test = "split_request_has_a_letter_for_each_front_part";
    let work = |disk: &Disk| {
        disk.read_at(&mut [0; 12288], 4096).expect("it is read");
    };
    let Some(records) = printed(test, "ram:1M?max_sectors_kb=4", work) else { return };
    let expected = [
        "Q R 8 + 24",
        "X R 8 / 16",
        "G R 8 + 8",
        "D R 8 + 8",
        "X R 16 / 24",
        "G R 16 + 8",
        "D R 16 + 8",
        "G R 24 + 8",
        "D R 24 + 8",
        "C R 8 + 8",
        "C R 16 + 8",
        "C R 24 + 8",
    ];
    assert_eq!(records, expected);
}

#[test]
fn plugged_and_merged_requests_have_their_letters() {
    let test = "plugged_and_merged_requests_have_their_letters";
    let work = |disk: &Disk| {
        plugged(disk, [8192, 12288, 4096].map(|start| Io::write(Buf::new(4096), start)));
    };
    let Some(records) = printed(test, "ram:1M", work) else { return };
    let expected = [
        "Q W 16 + 8",
        "P N",
        "Q W 24 + 8",
        "M W 24 + 8",
        "Q W 8 + 8",
        "F W 8 + 8",
        "U N",
        "G W 8 + 24",
        "D W 8 + 24",
        "C W 8 + 24",
    ];
    assert_eq!(records, expected);
}

#[test]
fn throttled_request_has_a_message_with_its_range() {
    let test = "throttled_request_has_a_message_with_its_range";
    let work = |disk: &Disk| {
        let owner = disk.owner("slow").expect("an owner");
        let mut limits = Limits::default();
        limits.both.iops = Rate::per_s(20);
        owner.set_limits(&limits).expect("it is possible");
        for nth in 0..6 {
            owner.write_at(&[1; 4096], nth * 4096).expect("it is written");
        }
    };
    let Some(records) = printed(test, "ram:1M", work) else { return };
    let place = |record: &str| records.iter().position(|it| it == record);
    let held_back = (0..6).map(|nth| nth * 8).filter(|sector| {
        let message = place(&format!("m limit: {sector} + 8 held back for TIME ns"));
        let [queued, tagged] = ["Q", "G"].map(|letter| place(&format!("{letter} W {sector} + 8")));
        message.is_some() && queued < message && message < tagged
    });
    assert!(held_back.count() > 0, "{records:?}");
    assert!(!records.iter().any(|record| record.starts_with('S')), "{records:?}");
}

#[test]
fn report_has_the_times_of_flushes_and_of_the_flush_after_a_fua_write() {
    let folder = folder();
    let disk = Disk::open("model:sata?size=1M").expect("it opens");
    let trace = Trace::create(folder.path().join("t")).expect("an empty directory");
    trace.add(&disk).expect("it is not traced");
    let mut queue = disk.queue();
    for io in [Io::write(Buf::new(4096), 0).fua(), Io::flush()] {
        queue.submit(io).expect("room");
        queue.reap(1, 1, &mut Vec::new());
    }
    trace.finish().expect("the files are written");
    let report = |args: &[&str]| {
        let output = forebay(&folder).args(["trace", "report", "t"]).args(args).output();
        let output = output.expect("it can be run");
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let ours = json(&report(&["--json"]))["disks"][0].take();
    let ns = |times: &serde_json::Value| times["max"].as_u64().expect("a number");
    let stages = &ours["stages_ns"];
    assert!(ns(&stages["flush"]) > 0 && ns(&stages["driver"]) > 0, "{ours}");
    assert!(ns(&ours["total_ns"]) >= ns(&stages["flush"]) + ns(&stages["driver"]), "{ours}");
    assert_eq!((&ours["flush_ns"]["n"], &ours["unfinished"]), (&1.into(), &0.into()), "{ours}");
    assert_eq!((&ours["flushes"], &ours["limit_waits"]), (&2.into(), &0.into()), "{ours}");
    let text = stdout(&report(&[]));
    assert!(text.contains("\n  1 flush took ") && text.contains("\n  flush "), "{text}");
    assert!(!text.contains("\n  limit "), "{text}");
}

#[test]
fn report_separates_limit_waits_from_tag_waits() {
    let folder = folder();
    let args =
        "--name=x --filename=ram:4M --rw=randwrite --bs=4k --number_ios=60 --throttle_iops=100";
    assert!(bench(&folder, &format!("--trace=t {args}")).status.success());
    let output = forebay(&folder).args(["trace", "report", "t"]).output().expect("it can be run");
    let text = stdout(&output);
    assert!(
        text.contains("  0 requests waited for a tag, ") && !text.contains(" 0 for a limit"),
        "{text}"
    );
    let row = |stage: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(stage));
        let share = line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<f64>().ok());
        share.unwrap_or_else(|| panic!("no share of {stage}: {text}"))
    };
    assert!(row("limit") > 50.0 && row("tag") < 50.0, "{text}");
}

/// A loop device on a file, detached when it is dropped.
struct LoopDevice {
    node: String,
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached =
            std::process::Command::new("losetup").args(["--detach", &self.node]).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays attached", self.node);
    }
}

#[test]
fn block_device_keeps_its_number() {
    let test = "block_device_keeps_its_number";
    let folder = folder();
    let image = folder.path().join("disk.img");
    std::fs::write(&image, vec![0; 1 << 20]).expect("a file");
    let set_up =
        std::process::Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
    let device = match set_up {
        Ok(output) if output.status.success() => {
            LoopDevice { node: String::from_utf8_lossy(&output.stdout).trim().to_owned() }
        }
        other => return skip_unless_required(test, &format!("there is no loop device: {other:?}")),
    };
    let name = device.node.rsplit('/').next().expect("a name");
    let number = std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).expect("a number");
    let dir = folder.path().join("t");
    let disk = Disk::open(&device.node).expect("it opens");
    let trace = Trace::create(&dir).expect("an empty directory");
    trace.add(&disk).expect("it is not traced");
    disk.read_at(&mut [0; 4096], 0).expect("it is read");
    trace.finish().expect("the files are written");
    drop(disk);
    let list = std::fs::read_to_string(dir.join("devices")).expect("a list");
    let number = number.trim().replace(':', ",");
    assert_eq!(list, format!("{number}\t{name}\t{}\n", device.node));
    let Some(text) = tool(folder.path(), test, "blkparse", &format!("-D t -i {name}")) else {
        return;
    };
    let records: Vec<_> = text.lines().filter(|line| record(line).is_some()).collect();
    assert!(
        records.len() == 4 && records.iter().all(|line| line.trim_start().starts_with(&number)),
        "{number}: {text}"
    );
}
