//! Check of a long series of operations from a seed, with results compared to the RAM disk's.

use super::helpers::{Numbers, keeps_data, pattern, reap_all};
use super::{LEN, Subject};
use crate::{BlockStatus, Buf, Disk, Io};

/// Outcome of one operation.
#[derive(Debug, PartialEq)]
enum End {
    Refused(String),
    Ended(Result<u64, BlockStatus>, Option<Vec<u8>>),
}

/// Returns a random I/O of any kind, most of them valid, in the `nth` of 16 parts of the disk.
fn random_io(numbers: &mut Numbers, nth: u64, unit: u64) -> Io {
    let part = LEN / 16;
    let mut start = nth * part + numbers.below(part / unit) * unit;
    let mut len = (1 + numbers.below(16)) * unit;
    len = len.min((nth + 1) * part - start);
    match numbers.below(40) {
        0 => start += 1,
        1 => len += LEN,
        2 => len -= 1,
        _ => {}
    }
    // The memory meets every device's alignment. Another property covers memory that does not.
    let buf = || Buf::new(len as usize);
    let write = || Io::write(pattern(start, 0, len), start);
    match numbers.below(16) {
        0..6 => Io::read(buf(), start),
        6 => Io::read(buf(), start).nomerge(),
        7..10 => write(),
        10 => write().fua(),
        11 => write().preflush(),
        12 => write().nomerge().fua().preflush(),
        13 => Io::discard(start, len),
        14 => Io::write_zeroes(start, len),
        _ => Io::flush(),
    }
}

/// Runs the trace on a disk. Returns the outcome of each operation, in the order of the trace, and
/// the disk's image.
fn run(disk: &Disk, seed: u64, moves_data: bool) -> Vec<End> {
    let mut numbers = Numbers::new(seed);
    let unit = u64::from(disk.limits().logical_block_size).max(512);
    let mut ends = Vec::new();
    disk.write_zeroes(0, LEN).expect("zeroes to begin with");
    let mut queue = disk.queue();
    for _ in 0..60 {
        let first = ends.len();
        let plug = (numbers.below(2) == 0).then(crate::plug);
        // The ranges of a batch do not overlap, because the driver may reorder the batch.
        for nth in 0..1 + numbers.below(16) {
            let at = ends.len() as u64;
            match queue.submit(random_io(&mut numbers, nth, unit).user_data(at)) {
                Ok(()) => ends.push(End::Ended(Ok(u64::MAX), None)),
                Err(error) => ends.push(End::Refused(error.kind.to_string())),
            }
        }
        drop(plug);
        for done in reap_all(&mut queue) {
            let at = done.user_data as usize;
            assert!(at >= first, "an end of an earlier batch");
            let read = done.buf.filter(|_| moves_data).map(|buf| buf.to_vec());
            ends[at] = End::Ended(done.result, read);
        }
    }
    let mut image = Buf::new(LEN as usize);
    let result = disk.read_at(&mut image, 0).expect("the image");
    ends.push(End::Ended(Ok(result as u64), moves_data.then(|| image.to_vec())));
    ends
}

pub(super) fn a_random_trace_ends_as_on_a_ram_disk(subject: &Subject<'_>) {
    for (seed, keys) in [(1, "max_sectors_kb=16"), (2, "queue_depth=2&max_sectors_kb=4"), (3, "")] {
        for disk in subject.each(keys) {
            let block = disk.limits().logical_block_size;
            let ram = Disk::open(&format!("ram:{LEN}?logical_block_size={block}&{keys}"));
            let expected = run(&ram.expect("a disk in memory"), seed, keeps_data(&disk));
            let found = run(&disk, seed, keeps_data(&disk));
            assert!(expected.iter().any(|end| matches!(end, End::Refused(_))));
            for (nth, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(found == expected, "seed {seed}, {nth}: {}", difference(found, expected));
            }
            assert_eq!(found.len(), expected.len());
        }
    }
}

/// Describes both outcomes without their data, which is long.
fn difference(found: &End, expected: &End) -> String {
    let short = |end: &End| match end {
        End::Refused(why) => why.clone(),
        End::Ended(result, _) => format!("{result:?}"),
    };
    format!("{}, and not {} (or other data)", short(found), short(expected))
}
