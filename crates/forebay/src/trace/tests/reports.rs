//! Reports of traces of real disks.

use super::*;
use forebay_trace::report::{Follower, Traced};

/// Returns the bios of the only disk of a trace, and how many have no end.
fn followed(dir: &Path) -> (Vec<Traced>, usize) {
    let all = directory::find(dir).expect("files");
    let (_, paths) = all.first_key_value().expect("a disk");
    let mut files = TraceFiles::open(paths).expect("a trace");
    let (mut follower, mut done) = (Follower::default(), Vec::new());
    while let Some(entry) = files.next_entry().expect("records") {
        follower.take(&entry, files.has_gap(), |bio| done.push(bio));
    }
    follower.finish(|bio| done.push(bio));
    (done, follower.nr_open())
}

#[test]
fn writes_that_need_flushes_end_once_with_their_results() {
    for spec in [
        "model:sata?size=1M",
        "model:sata?size=1M&max_sectors_kb=4",
        "fault:model:sata?size=1M&rule=flush:io:nth=2",
        "fault:model:sata?size=1M&rule=flush:io:nth=2&max_sectors_kb=4",
        "fault:model:sata?size=1M&rule=write:io:nth=3&scheduler=mq-deadline&queue_depth=2",
    ] {
        let mut nr_failed = 0;
        let (dir, stats) = trace(spec, |disk| {
            let mut queue = disk.queue();
            let mut done = Vec::new();
            for nth in 0..24 {
                // Each range four times at once, with each of the four kinds.
                let io = Io::write(Buf::new(12288), nth % 6 * 12288);
                let io = if nth / 6 % 2 == 0 { io } else { io.fua() };
                let io = if nth / 12 == 0 { io } else { io.preflush() };
                queue.submit(io).expect("room");
            }
            queue.reap(24, 24, &mut done);
            nr_failed = done.iter().filter(|done| done.result.is_err()).count();
        });
        assert_eq!(stats.lost, 0);
        let (bios, nr_open) = followed(dir.path());
        assert_eq!((bios.len(), nr_open), (24, 0), "{spec}");
        let nr_errors = bios.iter().filter(|bio| bio.error != 0).count();
        assert_eq!(nr_errors, nr_failed, "{spec}");
        assert!((nr_failed > 0) == spec.starts_with("fault"), "{spec}: {nr_failed}");
    }
}
