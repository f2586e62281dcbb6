//! Unit tests of `slots`.

use std::collections::HashSet;

use forebay_fio::cmdline::{Parsed, parse};
use forebay_fio::generator::{Mix, Pattern};
use forebay_fio::random::Xoshiro256;

use super::*;

const DEPTH: u32 = 6;

fn job(options: &str) -> Job {
    let args = format!("--name=a --rw=randrw --bs=4k --iodepth={DEPTH} {options}");
    match parse(args.split_whitespace().map(Into::into)) {
        Ok(Parsed::Run(command)) => command.jobs[0].clone(),
        other => panic!("{args}: {other:?}"),
    }
}

fn address(buf: &Buf) -> usize {
    buf.as_ptr().addr()
}

/// Returns the addresses of the buffers that no I/O uses.
fn kept(slots: &Slots) -> Vec<usize> {
    let free = slots.free.iter().filter_map(|free| free.buf.as_ref());
    free.chain(&slots.stock).map(address).collect()
}

/// Runs reads, writes and trims in a random order on `nr_files` files. No
/// buffer may have two owners, and every buffer must be returned at the end.
#[track_caller]
fn check_buffers(options: &str, nr_files: usize) {
    let mut job = job(options);
    job.rw = Pattern { random: false, mix: Mix::Recorded([true; 3]) };
    let disks = vec![Disk::open("ram:1M").expect("a disk"); nr_files];
    let mut slots = Slots::new(&job, &disks[0], disks[1..].iter());
    let at_first: HashSet<_> = kept(&slots).into_iter().collect();
    assert_eq!(at_first.len(), DEPTH as usize);
    let mut draws = Xoshiro256::new(7, nr_files as u64);
    let mut in_flight: Vec<(u32, u16, Option<Buf>)> = Vec::new();
    let mut largest_stock = 0;
    for _ in 0..5_000 {
        if slots.nr_free() > 0 && draws.below(2) == 0 {
            let direction = Direction::ALL[draws.below(3) as usize];
            let file = draws.below(nr_files as u64) as u16;
            let (slot, buf) = match direction {
                Direction::Trim => (slots.take_for_trim(), None),
                _ => {
                    let (slot, buf) = slots.take(file, &job);
                    (slot, Some(buf))
                }
            };
            assert!(in_flight.iter().all(|io| io.0 != slot), "a slot has one I/O");
            in_flight.push((slot, file, buf));
        } else if !in_flight.is_empty() {
            let at = draws.below(in_flight.len() as u64) as usize;
            let (slot, file, buf) = in_flight.swap_remove(at);
            match nr_files {
                1 => slots.give_back_of_one_file(slot, buf),
                _ => slots.give_back(slot, file, buf),
            }
        }
        assert_eq!(slots.nr_in_flight() as usize, in_flight.len());
        let used = in_flight.iter().filter_map(|io| io.2.as_ref()).map(address);
        let all: Vec<_> = used.chain(kept(&slots)).collect();
        let distinct: HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "a buffer has one owner");
        largest_stock = largest_stock.max(slots.stock.len());
    }
    assert_eq!(largest_stock, DEPTH as usize, "every slot has trimmed");
    for (slot, file, buf) in in_flight {
        slots.give_back(slot, file, buf);
    }
    assert_eq!(kept(&slots).into_iter().collect::<HashSet<_>>(), at_first);
}

#[test]
fn trims_beside_other_ios_lose_no_buffer() {
    check_buffers("", 1);
    check_buffers("", 3);
    check_buffers("--fixedbufs=1", 1);
    check_buffers("--fixedbufs=1", 3);
}

#[test]
fn slot_whose_io_returns_no_buffer_gets_a_new_one() {
    for (options, nr_files) in [("", 1), ("--fixedbufs=1", 1), ("--fixedbufs=1", 2)] {
        let job = job(options);
        let disks = vec![Disk::open("ram:1M").expect("a disk"); nr_files];
        let mut slots = Slots::new(&job, &disks[0], disks[1..].iter());
        let file = nr_files as u16 - 1;
        for _ in 0..3 * DEPTH {
            let (slot, buf) = slots.take(file, &job);
            assert_eq!(buf.len(), 4096, "{options}");
            // The I/O has exceeded its time limit.
            slots.give_back(slot, file, None);
        }
        let slots_taken: HashSet<_> = (0..DEPTH).map(|_| slots.take(file, &job).0).collect();
        assert_eq!(slots_taken.len(), DEPTH as usize);
    }
}

#[test]
fn jobs_without_trims_have_no_stock_and_jobs_of_trims_have_no_buffers() {
    let disk = Disk::open("ram:1M").expect("a disk");
    let of = |options| Slots::new(&job(options), &disk, std::iter::empty());
    assert_eq!(of("").stock.capacity(), 0);
    let mut trims = of("--rw=randtrim");
    assert!(kept(&trims).is_empty());
    let slot = trims.take_for_trim();
    trims.give_back_of_one_file(slot, None);
    assert_eq!((trims.nr_in_flight(), trims.stock.len()), (0, 0));
}

#[test]
fn latencies_of_a_fixed_trace_are_exact() {
    let op = Op { direction: Direction::Read, file: 0, offset: 0, len: 4096 };
    // Start, commit and reap time of each I/O, followed by clat and lat.
    for (start_ns, issued_ns, now_ns, expected) in [
        (1_000, 1_250, 9_000, [7_750, 8_000]),
        (5_000, 5_000, 5_001, [1, 1]),
        (0, 300, 300, [0, 300]),
        (0, 0, 0, [0, 0]),
    ] {
        let latencies = InFlight::new(op, start_ns, issued_ns).latencies(now_ns);
        assert_eq!(latencies, expected);
        let slat_ns = issued_ns - start_ns;
        assert_eq!(latencies[0] + slat_ns, latencies[1]);
    }
}
