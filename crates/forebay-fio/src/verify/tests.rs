//! Tests of verification: filled blocks pass, and each change is found and named.

use super::*;

const STAMP: Stamp = Stamp { seed: 0x89, generation: 3 };

fn block(len: usize, offset: u64) -> Vec<u8> {
    let mut block = vec![0; len];
    fill(&mut block, offset, STAMP);
    block
}

#[track_caller]
fn check_mismatch(block: &[u8], offset: u64, message: &str) {
    let mismatch = check(block, offset, Some(STAMP)).expect_err(message);
    let text = mismatch.to_string();
    assert!(text.starts_with(message), "{text}");
}

#[test]
fn filled_blocks_pass_verification() {
    for len in [HEADER_LEN, HEADER_LEN + 1, 512, 4096, 65_536 + 3] {
        assert_eq!(check(&block(len, 12_288), 12_288, Some(STAMP)), Ok(()), "{len}");
        assert_eq!(check(&block(len, 12_288), 12_288, None), Ok(()), "{len}");
    }
}

#[test]
fn xxhash_and_patterns_check_too() {
    let pattern = Pattern::parse("%o0xab", true).expect("a pattern");
    for pattern in [None, Some(&pattern)] {
        let mut block = vec![0; 512];
        fill_with(&mut block, 4096, STAMP, Checksum::Xxhash, pattern);
        assert_eq!(check_with(&block, 4096, Some(STAMP), Checksum::Xxhash), Ok(()));
        assert!(matches!(check(&block, 4096, None), Err(Mismatch::Magic { .. })));
        block[511] ^= 1;
        let mismatch = check_with(&block, 4096, None, Checksum::Xxhash);
        assert!(matches!(mismatch, Err(Mismatch::Data { offset: 4096, .. })));
    }
    let mut block = vec![0; 512];
    pattern.fill(&mut block, 4096);
    assert_eq!(check_pattern(&block, 4096, &pattern), Ok(()));
    block[8] = 0xaa;
    let mismatch = check_pattern(&block, 4096, &pattern).expect_err("a mismatch").to_string();
    assert_eq!(mismatch, "verify: bad pattern at offset 4096, byte 8: expected 0xab, found 0xaa");
}

#[test]
fn data_differs_by_offset_generation_and_seed() {
    let data = |offset, seed, generation| {
        let mut block = vec![0; 512];
        fill(&mut block, offset, Stamp { seed, generation });
        block.split_off(HEADER_LEN)
    };
    assert_ne!(data(0, 1, 1), data(512, 1, 1));
    assert_ne!(data(0, 1, 1), data(0, 2, 1));
    assert_ne!(data(0, 1, 1), data(0, 1, 2));
}

#[test]
fn every_flipped_bit_is_found() {
    let good = block(256, 4096);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&bad, 4096, Some(STAMP)).is_err(), "bit {bit}");
        assert!(check(&bad, 4096, None).is_err(), "bit {bit}");
    }
}

#[test]
fn mismatches_name_offset_expected_and_found() {
    check_mismatch(
        &[0; 512],
        40_960,
        "verify: no header at offset 40960: expected magic 0x63764246, found 0x00000000",
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
    check_mismatch(&torn, 0, "verify: damaged data at offset 0: expected crc 0x");
    let mut header = block(512, 0);
    header[20] ^= 1;
    check_mismatch(&header, 0, "verify: damaged header at offset 0: expected crc 0x");
}

#[test]
fn an_older_run_is_stale() {
    let mut old = vec![0; 512];
    fill(&mut old, 0, Stamp { generation: 2, ..STAMP });
    check_mismatch(
        &old,
        0,
        "verify: stale block at offset 0: expected generation 3, seed 137; found generation 2, \
         seed 137",
    );
    assert_eq!(check(&old, 0, None), Ok(()));
}
