//! Tests of limits: which ones contradict themselves, and which bios are refused.

use forebay_core::{
    Bio, BioFlags, Op, Policy, QueueLimits, QueuedBio, Segment, Segments, SoftwareQueue,
    SubmitErrorKind,
};
use std::sync::Arc;

const K4: u64 = 4096;

/// Returns the limits of a disk of 1 MiB that supports every operation.
fn limits() -> QueueLimits {
    QueueLimits::default()
        .capacity_bytes(Some(1 << 20))
        .logical_block_size(4096)
        .physical_block_size(4096)
        .discard_granularity(8192)
        .max_discard_sectors(64)
        .max_write_zeroes_sectors(8)
}

#[test]
fn limits_at_their_bounds_are_valid_and_beyond_are_not() {
    let fits = |limits: QueueLimits| assert_eq!(limits.validate(), Ok(()), "{limits:?}");
    fits(limits());
    fits(QueueLimits::default());
    fits(limits().max_sectors(8));
    fits(limits().max_sectors(2560).max_hw_sectors(2560));
    fits(limits().max_segment_size(4096));
    fits(limits().seg_boundary_mask(4095).virt_boundary_mask(4095).dma_alignment(511));
    fits(limits().chunk_sectors(8));
    fits(limits().max_discard_sectors(16));
    fits(limits().max_write_zeroes_sectors(0));
    fits(limits().max_discard_sectors(0).discard_granularity(0));
    let cases = [
        (limits().logical_block_size(0), "logical_block_size must"),
        (limits().logical_block_size(3 << 10), "logical_block_size must"),
        (limits().physical_block_size(2048), "physical_block_size must"),
        (limits().physical_block_size(3 << 12), "physical_block_size must"),
        (limits().max_sectors(0), "max_sectors must be at least 1"),
        (limits().max_sectors(2561), "max_sectors must be at most"),
        (limits().max_sectors(7), "max_sectors must hold"),
        (limits().max_segments(0), "max_segments must"),
        (limits().max_segment_size(4095), "max_segment_size must"),
        (limits().seg_boundary_mask(4096), "seg_boundary_mask must"),
        (limits().seg_boundary_mask(2047), "seg_boundary_mask must"),
        (limits().virt_boundary_mask(4096), "virt_boundary_mask must"),
        (limits().dma_alignment(512), "dma_alignment must"),
        (limits().chunk_sectors(7), "chunk_sectors must"),
        (limits().max_discard_sectors(0), "max_discard_sectors and discard_granularity"),
        (limits().discard_granularity(0), "max_discard_sectors and discard_granularity"),
        (limits().discard_granularity(2048), "discard_granularity must"),
        (limits().max_discard_sectors(15), "max_discard_sectors must hold"),
        (limits().max_discard_segments(0), "max_discard_segments must"),
        (limits().max_write_zeroes_sectors(7), "max_write_zeroes_sectors must"),
    ];
    for (limits, expected) in cases {
        let text = limits.validate().expect_err(expected).to_string();
        assert!(text.starts_with(expected), "{text}");
    }
}

fn segment(addr: usize, len: u32) -> Segment {
    Segment { addr, len }
}

fn read(start: u64, len: u32) -> Bio {
    Bio::data(Op::Read, start, segment(1 << 20, len))
}

/// Asserts that a bio is refused for this reason, with this text.
#[track_caller]
fn refused(limits: QueueLimits, bio: &Bio, refusal: SubmitErrorKind, text: &str) {
    assert_eq!(limits.check(bio), Err(refusal));
    assert!(refusal.to_string().contains(text), "{refusal}");
}

#[test]
fn bios_within_the_limits_are_accepted() {
    let many = Segments::Many([segment(0, 4096), segment(8, 0), segment(8192, 4096)].into());
    for bio in [
        read(0, 4096),
        read(0, 0),
        read((1 << 20) - K4, 4096),
        Bio::data(Op::Write, K4, segment(3, 8192)),
        Bio { segments: many, ..Bio::range(Op::Write, 0, 2 * K4) },
        Bio::range(Op::Discard, K4, 3 * K4),
        Bio::range(Op::WriteZeroes, K4, 3 * K4),
        Bio::flush(),
        Bio::fsync(),
        Bio::flush_up_to(7),
    ] {
        assert_eq!(limits().check(&bio), Ok(()), "{bio:?}");
    }
    let aligned = limits().dma_alignment(511);
    let empty_between = Segments::Many([segment(512, 4096), segment(3, 0)].into());
    let bio = Bio { segments: empty_between, ..Bio::range(Op::Read, 0, K4) };
    assert_eq!(aligned.check(&bio), Ok(()), "a segment without bytes has no place");
    let read_only = limits().read_only(true);
    assert_eq!((read_only.check(&read(0, 4096)), read_only.check(&Bio::flush())), (Ok(()), Ok(())));
    assert_eq!(limits().capacity_bytes(None).check(&read(1 << 40, 4096)), Ok(()));
}

#[test]
fn misaligned_and_distant_bios_are_refused() {
    for (start, len) in [(512, 4096), (0, 512), (512, 3584)] {
        let refusal = SubmitErrorKind::Misaligned { start, len: len.into(), unit: 4096 };
        refused(limits(), &read(start, len), refusal, "multiples of the logical block size, 4096");
    }
    let capacity = 1 << 20;
    for (start, len) in [(1 << 20, K4), ((1 << 20) - K4, 2 * K4), (u64::MAX - 4095, K4)] {
        let refusal = SubmitErrorKind::OutOfRange { start, len, capacity };
        refused(limits(), &read(start, len as u32), refusal, "beyond the disk's 1048576 bytes");
    }
    let unlimited = limits().capacity_bytes(None);
    let capacity = i64::MAX as u64;
    let start = capacity & !4095;
    let refusal = SubmitErrorKind::OutOfRange { start, len: K4, capacity };
    refused(unlimited, &read(start, 4096), refusal, "out of range: 4096 bytes");
}

#[test]
fn operations_that_the_disk_does_not_support_are_refused() {
    let none = limits().max_write_zeroes_sectors(0).max_discard_sectors(0).discard_granularity(0);
    for (op, name) in [(Op::Discard, "discard"), (Op::WriteZeroes, "write_zeroes")] {
        refused(none, &Bio::range(op, 0, K4), SubmitErrorKind::NotSupported(op), name);
    }
    for op in [Op::Write, Op::Discard, Op::WriteZeroes] {
        let bio = Bio { op, ..Bio::range(op, 0, K4) };
        refused(limits().read_only(true), &bio, SubmitErrorKind::ReadOnly, "the disk is read-only");
    }
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let of = |op, len, segments| Bio { segments, ..Bio::range(op, 0, len) };
    let one = |len| Segments::One(segment(0, len));
    let two = Segments::Many([segment(0, 4096), segment(8192, 4096)].into());
    for (bio, len, text) in [
        (of(Op::Read, K4, Segments::None), 0, "the length of the read differs"),
        (of(Op::Write, K4, two), 2 * K4, "differs from its memory, 8192 bytes"),
        (of(Op::Discard, K4, one(4096)), K4, "a discard takes no memory, but 4096"),
        (of(Op::WriteZeroes, K4, one(512)), 512, "a write_zeroes takes no memory"),
        (of(Op::Flush, 0, one(512)), 512, "a flush takes no memory, but 512 bytes were given"),
    ] {
        refused(limits(), &bio, SubmitErrorKind::Memory { op: bio.op, len }, text);
    }
    for segments in [Segments::None, one(4096)] {
        let text = "a flush concerns the whole disk, but has a length of 4096 bytes; submit it \
                    with length 0";
        refused(limits(), &of(Op::Flush, K4, segments), SubmitErrorKind::FlushLength(K4), text);
    }
    for (dma, addr, len, len_unit) in
        [(511, 256, 8192, 4096), (511, 512, 2048, 4096), (8191, 0, 4096, 8192)]
    {
        let rest = segment(1 << 20, 12288 - len);
        let bio = of(Op::Read, 12288, Segments::Many([rest, segment(addr, len)].into()));
        let bio = if len == 2048 {
            of(Op::Read, 12288, Segments::Many([segment(addr, len), rest].into()))
        } else {
            bio
        };
        let addr_unit = dma + 1;
        let refusal = limits().dma_alignment(dma).check(&bio).expect_err("it is misplaced");
        let SubmitErrorKind::MemoryMisaligned { addr_unit: unit, len_unit: of_len, .. } = refusal
        else {
            panic!("{refusal}")
        };
        assert_eq!((unit, of_len), (addr_unit, len_unit));
        assert!(refusal.to_string().contains("misaligned memory"), "{refusal}");
    }
}

#[test]
fn refusals_of_a_queue_name_the_remedy() {
    for (refusal, text) in [
        (SubmitErrorKind::Unsplittable { max_segments: 3 }, "use larger segments"),
        (SubmitErrorKind::WouldBlock, "reap completions"),
        (SubmitErrorKind::Forked, "open it again after the fork"),
        (SubmitErrorKind::NoThread { errno: 11 }, "(errno 11)"),
    ] {
        assert!(refusal.to_string().contains(text), "{refusal}");
    }
}

#[test]
fn flags_are_sets() {
    let (fua, both) = (BioFlags::FUA, BioFlags::FUA.union(BioFlags::PREFLUSH));
    assert!(both.contains(fua) && both.contains(both) && !fua.contains(both));
    assert!(fua.contains(BioFlags::NONE) && !BioFlags::NONE.contains(fua));
    assert!(fua.intersects(both) && both.intersects(fua));
    assert!(!fua.intersects(BioFlags::PREFLUSH) && !fua.intersects(BioFlags::NONE));
    assert_eq!(both.without(BioFlags::PREFLUSH), fua);
    assert_eq!((fua.union(fua), fua.without(fua)), (fua, BioFlags::NONE));
    let all = [
        BioFlags::FUA,
        BioFlags::PREFLUSH,
        BioFlags::NOMERGE,
        BioFlags::NOWAIT,
        BioFlags::RESERVED,
        BioFlags::BACKGROUND,
        BioFlags::FSYNC,
        BioFlags::UP_TO,
        BioFlags::OWNED,
    ];
    for (nth, flag) in all.into_iter().enumerate() {
        assert!(all[..nth].iter().all(|other| !flag.intersects(*other)), "{flag:?}");
    }
}

#[test]
fn bios_have_an_end_unless_it_is_too_far() {
    assert_eq!(Bio::range(Op::Read, 3, 4).end(), Some(7));
    assert_eq!(Bio::range(Op::Read, u64::MAX, 1).end(), None);
    assert_eq!((Bio::fsync().op, Bio::fsync().flags), (Op::Flush, BioFlags::FSYNC));
    let up_to = Bio::flush_up_to(9);
    assert_eq!((up_to.op, up_to.flags, up_to.start), (Op::Flush, BioFlags::UP_TO, 9));
}

#[test]
fn memory_of_a_disk_that_needs_alignment_is_whole_blocks() {
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).dma_alignment(3);
    let bio = |lens: &[u32]| {
        let segments = lens.iter().map(|&len| segment(1 << 20, len)).collect();
        let len = lens.iter().map(|len| u64::from(*len)).sum();
        Bio { segments: Segments::Many(segments), ..Bio::range(Op::Read, 0, len) }
    };
    assert_eq!(limits.check(&bio(&[512, 1024])), Ok(()));
    for lens in [&[256, 256][..], &[516, 508], &[514; 256]] {
        let refusal = limits.check(&bio(lens)).expect_err("a segment is no whole block");
        assert!(matches!(refusal, SubmitErrorKind::MemoryMisaligned { .. }), "{refusal}");
    }
}

#[test]
fn bio_of_which_no_block_fits_a_request_is_refused() {
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).max_segments(1);
    let mut ctx = SoftwareQueue::new(limits, Policy::default(), Arc::default());
    let halves = [1 << 20, 1 << 21].map(|addr| segment(addr, 256));
    let mut queued = QueuedBio::new(0, 0);
    queued.fill(Bio { segments: Segments::Many(halves.into()), ..Bio::range(Op::Read, 0, 512) });
    let refused = ctx.queue_bio(queued, 0, 0).map_err(|(refusal, _)| refusal);
    assert_eq!(refused, Err(SubmitErrorKind::Unsplittable { max_segments: 1 }));
    assert!(!ctx.has_outgoing());
}
