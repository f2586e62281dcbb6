//! Extents converted for a client, against a model that goes block by block.

use std::vec::Vec;

use proptest::prelude::*;

use crate::server::extents::each;

fn merged(extents: &[(u64, u32)], end: u64, mask: u64, nr_max: usize) -> Vec<(u64, u32)> {
    let mut merged = Vec::new();
    each(extents, end, mask, nr_max, |len, flags| merged.push((len, flags)));
    merged
}

/// Returns the flags of each block that is covered completely: those that all its bytes have.
fn by_block(extents: &[(u64, u32)], end: u64, block: u64) -> Vec<u32> {
    let bytes: Vec<u32> = extents
        .iter()
        .flat_map(|&(len, flags)| core::iter::repeat_n(flags, len as usize))
        .take(end as usize)
        .collect();
    let whole = bytes.chunks_exact(block as usize);
    whole.map(|block| block.iter().fold(u32::MAX, |all, flags| all & flags)).collect()
}

proptest! {
    #[test]
    fn block_has_a_state_only_if_all_of_it_has(
        extents in prop::collection::vec((0_u64..20, 0_u32..4), 0..12),
        nr_blocks in 1_u64..20,
        shift in 0_u32..4,
        nr_max in 1_usize..6,
    ) {
        let block = 1_u64 << shift;
        let end = nr_blocks * block;
        let merged = merged(&extents, end, block - 1, nr_max);
        prop_assert!(!merged.is_empty() && merged.len() <= nr_max);
        prop_assert!(merged.iter().all(|&(len, _)| len > 0 && len % block == 0));
        prop_assert!(merged.iter().map(|&(len, _)| len).sum::<u64>() <= end);
        prop_assert!(merged.windows(2).all(|pair| pair[0].1 != pair[1].1), "joined: {merged:?}");
        let expected = by_block(&extents, end, block);
        let found = by_block(&merged, end, block);
        if expected.is_empty() {
            prop_assert_eq!(merged, [(end, 0)]);
        } else if merged.len() < nr_max {
            prop_assert_eq!(found, expected);
        } else {
            prop_assert!(expected.starts_with(&found), "{expected:?} {found:?}");
        }
    }
}

#[test]
fn lengths_at_the_limit_do_not_overflow() {
    let all = !511;
    let wanted = [(all, 3)];
    assert_eq!(merged(&[(u64::MAX, 3), (u64::MAX, 1), (1, 0)], all, 511, 9), wanted);
    assert_eq!(merged(&[(u64::MAX - 1, 3), (u64::MAX, 3)], all, 511, 9), wanted);
    assert_eq!(
        merged(&[(u64::MAX - 513, 3), (u64::MAX, 1)], all, 511, 9),
        [(all - 512, 3), (512, 1)]
    );
}
