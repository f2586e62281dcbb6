//! Tests of verification: filled blocks pass, and each change is found and named.

use proptest::prelude::*;

use super::*;

const STAMP: Stamp = Stamp { seed: 0x89, generation: 3 };
const WRITE: Write = Write { thread: 2, number: 9, time_ns: 5_000_000_007 };

fn format(checksum: Checksum) -> Format {
    Format { checksum, ..Format::default() }
}

fn block(len: usize, offset: u64) -> Vec<u8> {
    let mut block = vec![0; len];
    format(Checksum::Crc32c).fill(&mut block, offset, STAMP, WRITE);
    block
}

fn check(block: &[u8], offset: u64, expected: Option<Stamp>) -> Result<(), Mismatch> {
    format(Checksum::Crc32c).check(block, block.len(), offset, expected)
}

#[track_caller]
fn check_mismatch(block: &[u8], offset: u64, message: &str) {
    let mismatch = check(block, offset, Some(STAMP)).expect_err(message);
    let text = mismatch.to_string();
    assert!(text.starts_with(message), "{text}");
}

#[test]
fn filled_blocks_pass_verification() {
    for len in [HEADER_LEN + 5, 512, 4096, 65_536 + 3] {
        assert_eq!(check(&block(len, 12_288), 12_288, Some(STAMP)), Ok(()), "{len}");
        assert_eq!(check(&block(len, 12_288), 12_288, None), Ok(()), "{len}");
    }
}

#[test]
fn block_of_another_file_is_detected() {
    let [first, second] = [0, 1].map(|place| STAMP.of_file(place));
    assert_eq!(first, STAMP);
    let block = block(512, 4096);
    assert_eq!(check(&block, 4096, Some(first)), Ok(()));
    let mismatch = check(&block, 4096, Some(second)).expect_err("a block of another file");
    assert!(matches!(mismatch, Mismatch::Stale { offset: 4096, .. }), "{mismatch}");
}

#[test]
fn header_has_the_layout_of_fio() {
    let block = block(512, 0x1_0000);
    #[rustfmt::skip]
    let expected = [
        0xca, 0xac, 5, 0, 0, 2, 0, 0,
    ];
    assert_eq!(block[..8], expected);
    assert_eq!(block[16..36], [0, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 2, 0, 9, 0]);
}

#[test]
fn patterns_check_too() {
    let pattern = Pattern::parse("%o0xab", true).expect("a pattern");
    let mut block = vec![0; 512];
    pattern.fill(&mut block, 4096);
    assert_eq!(check_pattern(&block, 4096, &pattern), Ok(()));
    block[8] = 0xaa;
    let mismatch = check_pattern(&block, 4096, &pattern).expect_err("a mismatch").to_string();
    assert_eq!(mismatch, "verify: bad pattern at offset 4096, byte 8: expected 0xab, found 0xaa");
}

#[test]
fn meta_checks_the_pattern_behind_each_header() {
    let pattern = Pattern::parse("%o0xab", true).expect("a pattern");
    let meta = Format {
        checksum: Checksum::Meta,
        pattern: Some(pattern),
        interval: 256,
        ..Format::default()
    };
    let mut io = vec![0; 1024];
    meta.fill(&mut io, 4096, STAMP, WRITE);
    assert_eq!(meta.check(&io, 1024, 4096, Some(STAMP)), Ok(()));
    io[512 + 200] ^= 1;
    let text = meta.check(&io, 1024, 4096, None).expect_err("a mismatch").to_string();
    assert!(text.starts_with("verify: bad pattern at offset 4608, byte 200: "), "{text}");
}

#[test]
fn every_interval_has_a_header_of_its_own() {
    let format = Format { interval: 512, ..format(Checksum::Md5) };
    let mut io = vec![0; 4096];
    format.fill(&mut io, 8192, STAMP, WRITE);
    assert_eq!(format.check(&io, 4096, 8192, Some(STAMP)), Ok(()));
    assert_eq!(format.check(&io[512..1024], 512, 8704, Some(STAMP)), Ok(()), "alone");
    io[3 * 512 + 300] ^= 1;
    let mismatch = format.check(&io, 4096, 8192, None).expect_err("a mismatch");
    assert!(matches!(&mismatch, Mismatch::Data { offset: 9728, .. }), "{mismatch}");
    assert_eq!(format.check(&io[..1500], 4096, 8192, None), Ok(()), "two whole blocks");
}

#[test]
fn header_at_an_offset_is_exchanged_with_the_data_there() {
    let plain = block(512, 0);
    let format = Format { header_at: 100, ..format(Checksum::Crc32c) };
    let mut moved = vec![0; 512];
    format.fill(&mut moved, 0, STAMP, WRITE);
    assert_eq!((&moved[100..144], &moved[..44]), (&plain[..44], &plain[100..144]));
    assert_eq!(format.check(&moved, 512, 0, Some(STAMP)), Ok(()));
    moved[3] ^= 1;
    assert!(matches!(format.check(&moved, 512, 0, None), Err(Mismatch::Data { .. })));
}

#[test]
fn data_differs_by_offset_generation_and_seed() {
    let data = |offset, seed, generation| {
        let mut block = vec![0; 512];
        format(Checksum::Meta).fill(&mut block, offset, Stamp { seed, generation }, WRITE);
        block.split_off(HEADER_LEN)
    };
    assert_ne!(data(0, 1, 1), data(512, 1, 1));
    assert_ne!(data(0, 1, 1), data(0, 2, 1));
    assert_ne!(data(0, 1, 1), data(0, 1, 2));
}

/// With `sha512`, whose field is no hash, the data are drawn once more.
#[test]
fn every_flipped_bit_is_found_with_every_checksum() {
    for checksum in Checksum::all() {
        let format = format(checksum);
        let mut good = vec![0; 512];
        format.fill(&mut good, 4096, STAMP, WRITE);
        for bit in (0..good.len() * 8).step_by(11).chain(0..400) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            for expected in [Some(STAMP), None] {
                let result = format.check(&bad, 512, 4096, expected);
                assert!(result.is_err(), "{checksum:?}, bit {bit}");
            }
        }
    }
}

#[test]
fn sha512_of_a_later_fio_passes() {
    let format = format(Checksum::Sha512);
    let mut block = vec![0; 1024];
    format.fill(&mut block, 0, STAMP, WRITE);
    let (front, data) = block.split_at_mut(format.header_len());
    data.fill(7);
    let sum = Checksum::Sha512.later_sum(data).expect("a hash");
    front[HEADER_LEN..].copy_from_slice(sum.as_bytes());
    assert_eq!(format.check(&block, 1024, 0, None), Ok(()));
    block[700] ^= 1;
    assert!(format.check(&block, 1024, 0, None).is_err());
}

#[test]
fn mismatches_name_offset_expected_and_found() {
    check_mismatch(
        &[0; 512],
        40_960,
        "verify: no header at offset 40960: expected magic 0xacca, found 0x0000",
    );
    check_mismatch(
        &block(512, 512),
        1024,
        "verify: misplaced block at offset 1024: expected offset 1024, found offset 512",
    );
    check_mismatch(
        &block(512, 0)[..256],
        0,
        "verify: block of another size at offset 0: expected 256 bytes, found 512",
    );
    let mut torn = block(512, 0);
    torn[256..].fill(0);
    check_mismatch(&torn, 0, "verify: damaged data at offset 0: expected crc32c ");
    let mut header = block(512, 0);
    header[20] ^= 1;
    check_mismatch(&header, 0, "verify: damaged header at offset 0: expected crc 0x");
    let mut other = vec![0; 512];
    format(Checksum::Md5).fill(&mut other, 0, STAMP, WRITE);
    check_mismatch(
        &other,
        0,
        "verify: the block at offset 0 has a checksum of type md5, expected crc32c; use the \
         verify option of the run that wrote it",
    );
    let mut later = block(512, 0);
    later[2] = 0x81;
    check_mismatch(&later, 0, "verify: unknown layout 0x81 of the header at offset 0: ");
}

#[test]
fn an_older_run_is_stale() {
    let mut old = vec![0; 512];
    let stamp = Stamp { generation: 2, ..STAMP };
    format(Checksum::Crc32c).fill(&mut old, 0, stamp, WRITE);
    check_mismatch(&old, 0, "verify: stale block at offset 0: expected seed 0x");
    let text = check(&old, 0, Some(STAMP)).expect_err("stale").to_string();
    assert!(text.ends_with("(thread 2, write 9)"), "{text}");
    assert_eq!(check(&old, 0, None), Ok(()));
}

#[test]
fn damaged_block_is_rebuilt() {
    let pattern = Pattern::parse("%o0xab", true).ok();
    for (checksum, pattern) in [(Checksum::Sha1, None), (Checksum::Crc16, pattern)] {
        let format = Format { checksum, pattern, interval: 256, header_at: 100 };
        let mut io = vec![0; 1024];
        format.fill(&mut io, 4096, STAMP, WRITE);
        let mut damaged = io[512..768].to_vec();
        damaged[200] ^= 1;
        assert_eq!(format.rebuild(&damaged, 4096, 512).as_deref(), Some(&io[512..768]));
        damaged[141] ^= 1;
        assert_eq!(format.rebuild(&damaged, 4096, 512), None, "its checksum is damaged too");
    }
}

proptest! {
    #[test]
    fn checks_of_any_bytes_return(bytes in proptest::collection::vec(any::<u8>(), 200..600)) {
        for checksum in Checksum::all() {
            for interval in [0, 200, 300] {
                let format = Format { interval, header_at: 0, checksum, pattern: None };
                let _ = format.check(&bytes, bytes.len(), 0, Some(STAMP));
            }
        }
    }
}
