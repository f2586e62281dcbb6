//! Check that each block is a register: reads and writes of several threads have one order.
//!
//! Each block has one writer, which writes increasing numbers. So a read is correct if it returns a
//! number between the last one whose write had ended before the read began, and the last one whose
//! write had begun before the read ended. A later read of the same thread never returns less.
//!
//! A block also never reads as a mix of two numbers. The page cache of some file systems, such as
//! ext4, does not give that: it lets a read copy a page while a write to it is still copying.

use super::Subject;
use super::helpers::{Numbers, join_all, keeps_data, reap_all, submit};
use crate::{Buf, Disk, Io};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The length of a register, in bytes.
const BLOCK: usize = 4096;
/// Registers of each writer. Neighbours of different writers may not merge, those of one may.
const NR_OF_WRITER: usize = 4;
const NR_WRITERS: usize = 2;
const NR: usize = NR_WRITERS * NR_OF_WRITER;
const NR_ROUNDS: u64 = 80;
/// Reads that a thread makes even if the writers end before it begins.
const NR_READS_MIN: usize = 100;

/// The numbers that were written to a register.
#[derive(Default)]
struct Written {
    begun: AtomicU64,
    ended: AtomicU64,
}

pub(super) fn blocks_are_registers(subject: &Subject<'_>) {
    for disk in subject.each("queue_depth=6") {
        disk.write_zeroes(0, (NR * BLOCK) as u64).expect("zeroes to begin with");
        let written: [Written; NR] = Default::default();
        thread::scope(|scope| {
            let (disk, written) = (&disk, &written);
            let writer = |nth| scope.spawn(move || write(disk, nth, written));
            let writers = (0..NR_WRITERS).map(writer).collect::<Vec<_>>();
            let reader = |seed| scope.spawn(move || read(disk, seed, written));
            let readers = (0..2).map(reader).collect::<Vec<_>>();
            join_all(readers.into_iter().chain(writers));
        });
    }
}

fn offset(register: usize) -> u64 {
    (register * BLOCK) as u64
}

/// Writes to the registers of one writer, several at once.
fn write(disk: &Disk, writer: usize, written: &[Written; NR]) {
    let mut queue = disk.queue();
    let first = writer * NR_OF_WRITER;
    for number in 1..=NR_ROUNDS {
        let plug = number.is_multiple_of(2).then(crate::plug);
        for (register, own) in written.iter().enumerate().skip(first).take(NR_OF_WRITER) {
            own.begun.store(number, Ordering::SeqCst);
            let data = number.to_le_bytes().repeat(BLOCK / 8);
            let io = Io::write(Buf::from(&data[..]), offset(register)).user_data(register as u64);
            submit(&mut queue, io);
        }
        drop(plug);
        for done in reap_all(&mut queue) {
            assert_eq!(done.result, Ok(BLOCK as u64));
            written[done.user_data as usize].ended.store(number, Ordering::SeqCst);
        }
    }
}

/// Reads registers until all writers have ended, and at least [`NR_READS_MIN`] times.
fn read(disk: &Disk, seed: u64, written: &[Written; NR]) {
    let mut numbers = Numbers::new(seed);
    let (mut seen, mut block) = ([0; NR], Buf::new(BLOCK));
    let is_ended = |one: &Written| one.ended.load(Ordering::SeqCst) == NR_ROUNDS;
    for nr_reads in 0.. {
        if nr_reads >= NR_READS_MIN && written.iter().all(is_ended) {
            break;
        }
        let register = numbers.below(NR as u64) as usize;
        let least = written[register].ended.load(Ordering::SeqCst).max(seen[register]);
        assert_eq!(disk.read_at(&mut block, offset(register)), Ok(BLOCK));
        let most = written[register].begun.load(Ordering::SeqCst);
        if !keeps_data(disk) {
            continue;
        }
        let words: Vec<u64> =
            block.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let number = words[0];
        if let Some(at) = words.iter().position(|word| *word != number) {
            panic!(
                "register {register} is torn: it reads as {number}, and as {} from byte {} on. If \
                 a file system's page cache is behind the device, open the file for direct I/O",
                words[at],
                at * 8
            );
        }
        assert!(
            (least..=most).contains(&number),
            "register {register} reads as {number}, which is not in {least}..={most}"
        );
        seen[register] = number;
    }
}
