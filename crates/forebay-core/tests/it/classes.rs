//! Tests of tags by class: reserved tags, background bios, and the number of tags in use.

use crate::common::{Bench, limits};
use forebay_core::{BioFlags, BlockStatus, Emulation, Op, Policy, WakePolicy};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
const RESERVED: BioFlags = BioFlags::RESERVED;
const BACKGROUND: BioFlags = BioFlags::BACKGROUND;
const NOWAIT: BioFlags = BioFlags::NOWAIT;
const AGAIN: Result<u64, BlockStatus> = Err(BlockStatus::Again);

/// The policies under which bios wait, and threads wait.
const WAKES: [WakePolicy; 2] = [WakePolicy::Fair, WakePolicy::Single];

fn policy(wake: WakePolicy) -> Policy {
    Policy::default().queue_depth(4).emulation(Emulation::default().wake(wake))
}

impl Bench {
    /// Reads the page of this number, far from others.
    fn read_page(&mut self, flags: BioFlags, page: u64) {
        self.issue(Op::Read, flags, page << 20, K4, page);
    }

    /// Returns the pages that were issued since the last call.
    fn pages(&mut self) -> Vec<u64> {
        let pages = self.toy.seen[self.nr_checked..].iter().map(|seen| seen.start >> 20).collect();
        self.nr_checked = self.toy.seen.len();
        pages
    }

    /// Completes the oldest request, wakes every thread that waits for tags, and returns the pages
    /// that are issued then.
    fn next_pages(&mut self) -> Vec<u64> {
        self.toy.complete_oldest();
        self.turn();
        let mut woken = Vec::new();
        self.queue.hctx.take_woken(&mut |id| woken.push(id));
        woken.into_iter().for_each(|id| self.queue.hctx.awake(id));
        self.turn();
        self.pages()
    }
}

#[test]
fn reserved_bios_have_tags_of_their_own_and_go_first() {
    for wake in WAKES {
        let mut bench = Bench::new(limits(), policy(wake).nr_reserved(2));
        (1..=3).for_each(|page| bench.read_page(NONE, page));
        assert_eq!((bench.pages(), bench.queue.hctx.nr_free_tags()), (vec![1, 2], 2));
        (11..=13).for_each(|page| bench.read_page(RESERVED, page));
        assert_eq!(bench.pages(), [11, 12]);
        assert_eq!(bench.next_pages(), [13], "{wake:?}: before the one that waits for longer");
        // Two of the four tags are left to the class, whoever uses the other two.
        let pages = [(); 3].map(|()| bench.next_pages());
        assert_eq!(pages, [vec![], vec![], vec![3]], "{wake:?}");
        bench.finish();
    }
}

#[test]
fn background_bios_have_a_few_tags_and_hold_up_no_others() {
    for wake in WAKES {
        let mut bench = Bench::new(limits(), policy(wake).async_depth(2));
        (1..=4).for_each(|page| bench.read_page(BACKGROUND, page));
        assert_eq!(bench.pages(), [1, 2]);
        (11..=13).for_each(|page| bench.read_page(NONE, page));
        assert_eq!(bench.pages(), [11, 12], "{wake:?}");
        assert_eq!(bench.next_pages(), [3], "{wake:?}: it has waited for longer");
        assert_eq!(bench.next_pages(), [4]);
        assert_eq!(bench.next_pages(), [13]);
        bench.finish();
        assert_eq!(bench.ends().len(), 7);
    }
}

#[test]
fn rest_of_a_background_bio_goes_before_others_of_its_class() {
    let limits = limits().max_sectors(8);
    let mut bench = Bench::new(limits, policy(WakePolicy::Fair).async_depth(2));
    bench.issue(Op::Read, BACKGROUND, 1 << 20, 4 * K4, 1);
    bench.read_page(BACKGROUND, 2);
    bench.read_page(NONE, 3);
    assert_eq!(bench.pages(), [1, 1, 3]);
    assert_eq!(bench.next_pages(), [1]);
    assert_eq!(bench.next_pages(), [1]);
    bench.finish();
    assert_eq!(bench.pages(), [2]);
}

#[test]
fn nowait_bio_is_answered_by_the_tags_of_its_class() {
    for wake in WAKES {
        let classes = policy(wake).nr_reserved(1).async_depth(1);
        let mut bench = Bench::new(limits(), classes);
        bench.read_page(BACKGROUND, 1);
        bench.read_page(NOWAIT.union(BACKGROUND), 2);
        assert_eq!(bench.ends(), [(2, AGAIN)], "{wake:?}: the class has its tag");
        bench.read_page(NOWAIT, 3);
        bench.read_page(NOWAIT, 4);
        bench.read_page(NOWAIT, 5);
        assert_eq!((bench.pages(), bench.ends()), (vec![1, 3, 4], vec![(5, AGAIN)]));
        bench.read_page(NONE, 6);
        // Bios that wait are no elders of a reserved one.
        bench.read_page(NOWAIT.union(RESERVED), 7);
        bench.read_page(NOWAIT.union(RESERVED), 8);
        assert_eq!((bench.pages(), bench.ends()), (vec![7], vec![(8, AGAIN)]), "{wake:?}");
        bench.read_page(RESERVED, 9);
        bench.complete(0, Ok(K4));
        assert_eq!(bench.pages(), [9], "{wake:?}");
        bench.read_page(NOWAIT.union(RESERVED), 10);
        assert_eq!(bench.ends(), [(1, Ok(K4)), (10, AGAIN)]);
        while !bench.toy.running.is_empty() {
            bench.next_pages();
        }
    }
}

#[test]
fn number_of_tags_in_use_follows_the_setting() {
    for wake in WAKES {
        let mut bench = Bench::new(limits(), policy(wake).nr_requests(Some(2)));
        (1..=6).for_each(|page| bench.read_page(NONE, page));
        assert_eq!(bench.pages(), [1, 2]);
        assert_eq!((bench.queue.hctx.nr_free_tags(), bench.queue.hctx.nr_busy_tags()), (0, 2));
        bench.queue.hctx.set_nr_requests(4);
        let mut woken = Vec::new();
        bench.queue.hctx.take_woken(&mut |id| woken.push(id));
        woken.into_iter().for_each(|id| bench.queue.hctx.awake(id));
        bench.turn();
        assert_eq!(bench.pages(), [3, 4], "{wake:?}");
        bench.queue.hctx.set_nr_requests(1);
        assert_eq!((0..3).map(|_| bench.next_pages().len()).sum::<usize>(), 0, "{wake:?}");
        assert_eq!(bench.next_pages(), [5]);
        assert_eq!(bench.next_pages(), [6]);
        bench.finish();
    }
}

#[test]
fn reserved_tags_are_those_of_the_number_in_use() {
    let mut bench = Bench::new(limits(), policy(WakePolicy::Fair).nr_reserved(2));
    bench.queue.hctx.set_nr_requests(2);
    // One at least is left to others.
    (1..=2).for_each(|page| bench.read_page(NONE, page));
    assert_eq!(bench.pages(), [1]);
    bench.read_page(RESERVED, 3);
    assert_eq!(bench.pages(), [3]);
    bench.finish();
}

#[test]
fn tags_of_a_shared_set_are_limited_and_given_back() {
    let mut bench = Bench::new(limits(), policy(WakePolicy::Fair));
    let hctx = &mut bench.queue.hctx;
    assert_eq!(hctx.give_back_tags(), 0);
    assert!(!hctx.wants_tags());
    hctx.set_tag_limit(2);
    (1..=3).for_each(|page| bench.read_page(NONE, page));
    assert_eq!(bench.pages(), [1, 2]);
    let hctx = &mut bench.queue.hctx;
    assert!(hctx.wants_tags() && !hctx.wants_tags(), "since the last call");
    assert_eq!((hctx.nr_busy_tags(), hctx.give_back_tags(), hctx.give_back_tags()), (2, 2, 0));
    hctx.set_tag_limit(9);
    bench.turn();
    assert_eq!(bench.pages(), [3]);
    assert!(!bench.queue.hctx.wants_tags());
    bench.finish();
}

#[test]
fn split_bio_does_not_gather_tags_that_others_take() {
    let limits = limits().max_sectors(8).rotational(true);
    let mut bench = Bench::new(limits, policy(WakePolicy::Fair));
    bench.queue.hctx.note_shared_tags();
    (1..=3).for_each(|page| bench.read_page(NONE, page));
    bench.issue(Op::Read, NONE, 9 << 20, 2 * K4, 9);
    assert_eq!(bench.pages(), [1, 2, 3, 9]);
    bench.finish();
}

#[test]
fn context_is_not_drained_while_a_bio_waits_for_its_class() {
    for flags in [RESERVED, BACKGROUND] {
        let mut bench =
            Bench::new(limits(), policy(WakePolicy::Fair).nr_reserved(1).async_depth(1));
        bench.read_page(BACKGROUND, 1);
        (2..=4).for_each(|page| bench.read_page(RESERVED, page));
        // All four tags are in use.
        bench.read_page(flags, 5);
        let turned = bench.turn();
        assert!(turned.work_left() && !turned.is_drained(), "{flags:?}");
        assert_eq!(bench.queue.hctx.prepare_wait(4), 1, "each completion may let it go on");
        while !bench.toy.running.is_empty() {
            bench.next_pages();
        }
        let turned = bench.turn();
        assert!(!turned.work_left() && turned.is_drained(), "{flags:?}");
    }
}

#[test]
fn reserved_bio_without_reserved_tags_keeps_its_place() {
    let mut bench = Bench::new(limits(), policy(WakePolicy::Fair).queue_depth(2).async_depth(1));
    (1..=3).for_each(|page| bench.read_page(NONE, page));
    bench.read_page(RESERVED, 4);
    assert_eq!(bench.pages(), [1, 2]);
    assert_eq!([bench.next_pages(), bench.next_pages()], [[3], [4]]);
    bench.finish();
}
