//! Opening a disk on a back end: limits, settings, and what the disk reports.

use super::{Memory, limits, policy};
use forebay::{
    Backend, Batch, BlockStatus, Disk, DiskFacts, Extent, ExtentKind, Extents, OpenError, Policy,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEN: u64 = 1 << 20;

/// A back end that reports more than the defaults.
struct Talkative;

impl Backend for Talkative {
    fn name(&self) -> &str {
        "talkative"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(|request| request.complete(Err(BlockStatus::Offline)));
    }

    fn facts(&self) -> DiskFacts {
        let mut facts = DiskFacts::default();
        (facts.keeps_data, facts.zeroes_fast) = (false, true);
        facts
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        assert_eq!((offset, extents.left()), (4096, 8192));
        extents.push(4096, ExtentKind::Hole);
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        Some("the tape is full".to_owned())
    }
}

#[test]
fn disk_reports_its_back_end() {
    let disk = Disk::with_backend(Talkative, limits(LEN), policy()).expect("a disk");
    let info = disk.info();
    assert_eq!((info.spec.as_str(), info.driver), ("backend:talkative", "backend"));
    assert!(!info.facts.keeps_data && info.facts.zeroes_fast);
    assert_eq!(disk.capacity_bytes(), Some(LEN));
    assert_eq!(disk.reread_size().expect("no file"), None);
    let mut extents = Vec::new();
    disk.block_status(4096, 8192, 9, &mut extents).expect("extents");
    let of = |kind| Extent { len: 4096, kind };
    assert_eq!(extents, [of(ExtentKind::Hole), of(ExtentKind::Data)]);
    assert!(disk.write_at(&[0; 512], 0).is_err() && disk.is_failed());
    assert_eq!(disk.failure().as_deref(), Some("the tape is full"));
}

#[test]
fn back_end_that_overrides_nothing_has_data_everywhere_and_no_failure() {
    let disk = Disk::with_backend(Memory::new(LEN), limits(LEN), policy());
    let disk = disk.expect("a disk");
    let mut extents = Vec::new();
    disk.block_status(0, LEN, 9, &mut extents).expect("extents");
    assert_eq!(extents, [Extent { len: LEN, kind: ExtentKind::Data }]);
    assert_eq!((disk.failure(), disk.info().facts), (None, DiskFacts::default()));
}

#[track_caller]
fn assert_refused(limits: forebay::QueueLimits, policy: Policy, part: &str) {
    let error = Disk::with_backend(Memory::new(LEN), limits, policy).expect_err(part);
    let is_expected = |error: &OpenError| {
        matches!(error, OpenError::Limits { .. } | OpenError::Capacity { .. } | OpenError::Spec(_))
    };
    assert!(is_expected(&error), "{error:?}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn impossible_capacities_are_refused_with_the_block_size() {
    let blocks = limits(LEN).logical_block_size(4096).physical_block_size(4096);
    let blocks = blocks.discard_granularity(4096);
    for (limits, part) in [
        (limits(0), "capacity of 0 bytes"),
        (limits(1000), "whole logical blocks of 512 bytes"),
        (blocks.capacity_bytes(Some(LEN + 512)), "whole logical blocks of 4096 bytes"),
        (limits(1 << 63), "at most i64::MAX bytes"),
        (limits(u64::MAX), "at most i64::MAX bytes"),
    ] {
        assert_refused(limits, Policy::default(), part);
    }
    let largest = limits((1 << 63) - 512);
    let disk = Disk::with_backend(Talkative, largest, policy()).expect("a disk");
    assert_eq!(disk.capacity_bytes(), Some((1 << 63) - 512));
}

#[test]
fn impossible_limits_and_settings_are_refused_by_name() {
    let good = Policy::default();
    assert_refused(limits(LEN).logical_block_size(100), good, "backend:memory");
    assert_refused(limits(LEN), good.queue_depth(0), "queue_depth");
    assert_refused(limits(LEN), good.queue_depth(1_000_000), "queue_depth");
    assert_refused(limits(LEN), good.nr_hw_queues(0), "nr_hw_queues");
    assert_refused(limits(LEN), good.queue_depth(4).nr_requests(Some(5)), "nr_requests");
}

/// A back end of a size that changes.
struct Growing(Arc<AtomicU64>);

impl Backend for Growing {
    fn name(&self) -> &str {
        "growing"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(|request| request.complete(Ok(())));
    }

    fn size_bytes(&self) -> std::io::Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::Relaxed)))
    }
}

#[test]
fn back_end_that_has_grown_is_used_up_to_its_new_end() {
    let size = Arc::new(AtomicU64::new(LEN));
    let backend = Growing(Arc::clone(&size));
    let disk = Disk::with_backend(backend, limits(LEN), policy()).expect("a disk");
    assert!(disk.grow(2 * LEN).is_err(), "it has not grown");
    size.store(2 * LEN, Ordering::Relaxed);
    assert_eq!(disk.reread_size().expect("a size"), Some(2 * LEN));
    assert!(disk.write_at(&[1; 512], LEN).is_err());
    disk.grow(2 * LEN).expect("it has grown");
    assert_eq!(disk.capacity_bytes(), Some(2 * LEN));
    disk.write_at(&[1; 512], 2 * LEN - 512).expect("behind the old end");
}

#[test]
fn operations_that_the_limits_lack_never_reach_the_back_end() {
    let plain = forebay::QueueLimits::default().capacity_bytes(Some(LEN));
    let disk = Disk::with_backend(Talkative, plain, policy()).expect("a disk");
    assert!(disk.discard(0, 4096).is_err());
    disk.flush().expect("there is no cache");
    assert!(!disk.is_failed());
}

#[test]
fn thousand_disks_leave_no_thread_descriptor_or_back_end() {
    let backends = Arc::new(());
    struct Counted(#[expect(dead_code, reason = "it is counted")] Arc<()>);
    impl Backend for Counted {
        fn name(&self) -> &str {
            "counted"
        }

        fn submit(&self, batch: &mut Batch<'_>) {
            batch.for_each(|request| request.complete(Ok(())));
        }
    }
    let nr = if cfg!(miri) { 2 } else { 1000 };
    for _ in 0..nr {
        let backend = Counted(Arc::clone(&backends));
        let disk = Disk::with_backend(backend, limits(LEN), policy()).expect("a disk");
        disk.write_at(&[1; 512], 0).expect("a write");
        assert!(cfg!(miri) || disk.poll_fd().is_ok());
        disk.flush().expect("a flush");
    }
    assert_eq!(Arc::strong_count(&backends), 1);
}
