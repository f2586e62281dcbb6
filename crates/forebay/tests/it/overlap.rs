//! Overlapping I/O in flight at once. Each sector ends with the data of exactly one of the writes
//! in flight. A read returns that data or the data from before.
//!
//! Through the page cache, a read that races with a write may see a mixture of both within a
//! sector, because the kernel copies in pieces. There each word of a read has a legal value.

use crate::common::{Numbers, Scratch, open, reap_all, submit};
use forebay::{Buf, Disk, Io};

const SECTOR: usize = 512;
const NR_SECTORS: u64 = 64;

/// Returns a buffer in which every word is the number of the write.
fn stamped(nr_sectors: u64, stamp: u64) -> Buf {
    let mut buf = Buf::new(nr_sectors as usize * SECTOR);
    buf.chunks_mut(8).for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
    buf
}

/// Returns the stamps in a sector, with consecutive duplicates removed.
fn stamps_of(sector: &[u8]) -> Vec<u64> {
    let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
    let mut stamps: Vec<u64> = sector.chunks(8).map(word).collect();
    stamps.dedup();
    stamps
}

fn check(disk: &Disk, seed: u64, reads_may_tear: bool) {
    let mut numbers = Numbers(seed);
    let mut queue = disk.queue();
    let mut before = vec![0u64; NR_SECTORS as usize];
    let mut next_stamp = 1;
    for _ in 0..60 {
        let plug = forebay::plug();
        let mut written = vec![Vec::new(); NR_SECTORS as usize];
        for _ in 0..12 {
            let len = 1 + numbers.below(8);
            let start = numbers.below(NR_SECTORS - len);
            let range = start as usize..(start + len) as usize;
            let io = if numbers.below(2) == 0 {
                Io::read(Buf::new(len as usize * SECTOR), start * SECTOR as u64)
            } else {
                written[range].iter_mut().for_each(|stamps| stamps.push(next_stamp));
                next_stamp += 1;
                Io::write(stamped(len, next_stamp - 1), start * SECTOR as u64)
            };
            submit(&mut queue, io.user_data(start << 32 | (next_stamp - 1)));
            if numbers.below(4) == 0 {
                plug.unplug();
            }
        }
        drop(plug);
        for completion in reap_all(&mut queue) {
            let start = (completion.user_data >> 32) as usize;
            let buf = completion.buf.expect("both have a buffer");
            assert_eq!(completion.result, Ok(buf.len() as u64));
            for (nth, sector) in buf.chunks(SECTOR).enumerate() {
                let (stamps, at) = (stamps_of(sector), start + nth);
                assert!(stamps.len() == 1 || reads_may_tear, "sector {at} is torn");
                let is_legal = |stamp: &u64| *stamp == before[at] || written[at].contains(stamp);
                assert!(stamps.iter().all(is_legal), "sector {at}: {stamps:?}");
            }
        }
        let mut image = Buf::new(NR_SECTORS as usize * SECTOR);
        disk.read_at(&mut image, 0).expect("the image");
        for (at, sector) in image.chunks(SECTOR).enumerate() {
            let stamps = stamps_of(sector);
            let [stamp] = stamps[..] else { panic!("sector {at} is torn: {stamps:?}") };
            let legal = if written[at].is_empty() { vec![before[at]] } else { written[at].clone() };
            assert!(legal.contains(&stamp), "sector {at}: {stamp}, not one of {legal:?}");
            before[at] = stamp;
        }
    }
}

#[test]
fn each_sector_is_one_of_its_legal_values() {
    let scratch = Scratch::new(NR_SECTORS * SECTOR as u64);
    for (seed, keys) in
        ["nomerges=0", "nomerges=2", "queue_depth=2&max_sectors_kb=1"].iter().enumerate()
    {
        for (spec, reads_may_tear) in [
            (format!("ram:32k?{keys}"), false),
            (scratch.spec(keys), true),
            (scratch.spec(&format!("direct=on&{keys}")), false),
            (format!("fault:ram:32k?{keys}&rule=any:short=1k:rate=0.3"), false),
        ] {
            let disk = open(&spec);
            disk.write_zeroes(0, NR_SECTORS * SECTOR as u64).expect("zeroes to begin with");
            check(&disk, seed as u64, reads_may_tear);
        }
    }
}
