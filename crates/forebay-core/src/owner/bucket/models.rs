//! Models of the token bucket, for loom: charges, refunds and changes of the rate in two threads.

use super::setting::{Setting, SharedSetting};
use super::{Bucket, Charged};
use alloc::sync::Arc;
use loom::thread;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(model);
}

/// OL2: a bucket of 2 units starts three I/Os of one unit at the same time: its burst, and the one
/// that makes it negative.
#[test]
fn two_threads_start_no_more_than_one_could() {
    explore(|| {
        let bucket = Arc::new(Bucket::new(1, 2, 0));
        let start = |bucket: &Bucket| (0..2).filter(|_| bucket.try_start(1, 0).is_ok()).count();
        let other = Arc::clone(&bucket);
        let second = thread::spawn(move || start(&other));
        let nr = start(&bucket) + second.join().unwrap();
        assert_eq!(nr, 3, "{nr} have started");
        assert_eq!(bucket.level(0), Some(-1));
    });
}

/// OL2: the credit that exceeds the burst is lost once, not once for each thread.
#[test]
fn two_threads_share_the_credit_of_a_full_bucket() {
    explore(|| {
        let bucket = Arc::new(Bucket::new(1, 0, 0));
        let later = 1_000_000_000_000;
        let other = Arc::clone(&bucket);
        let second = thread::spawn(move || other.try_start(1, later).is_ok());
        let first = bucket.try_start(1, later).is_ok();
        assert!(first != second.join().unwrap(), "one of them is refused");
        assert_eq!(bucket.level(later), Some(-1));
    });
}

/// A refund restores the level, whatever another thread charges meanwhile.
#[test]
fn refund_beside_a_charge_leaves_that_charge_only() {
    explore(|| {
        let bucket = Arc::new(Bucket::new(1, 2, 0));
        let other = Arc::clone(&bucket);
        let second = thread::spawn(move || other.try_start(2, 0).is_ok());
        let charged = bucket.try_start(1, 0);
        if let Ok(charged) = charged {
            bucket.refund(charged);
        }
        let expected = if second.join().unwrap() { 0 } else { 2 };
        assert_eq!(bucket.level(0), Some(expected));
    });
}

/// A charge beside a change counts once, and its refund takes back as much.
#[test]
fn charge_beside_a_change_of_the_rate_counts_once() {
    explore(|| {
        let bucket = Arc::new(Bucket::new(1, 4, 0));
        let other = Arc::clone(&bucket);
        let setter = thread::spawn(move || other.set_rate(1000, 4, 0));
        let charged = bucket.try_start(3, 0);
        assert_eq!(charged, Ok(Charged(3)));
        setter.join().unwrap().expect("no other change");
        assert_eq!((bucket.level(0), bucket.rate()), (Some(1), (1000, 4)));
        bucket.refund(charged.unwrap());
        assert_eq!(bucket.level(0), Some(4));
    });
}

/// A limit that begins beside a charge: the charge counts if it found the limit.
#[test]
fn charge_beside_a_new_limit_counts_if_it_finds_the_limit() {
    explore(|| {
        let bucket = Arc::new(Bucket::new(0, 0, 0));
        let other = Arc::clone(&bucket);
        let setter = thread::spawn(move || other.set_rate(10, 4, 0));
        let charged = bucket.try_start(3, 0).expect("not negative");
        setter.join().unwrap().expect("no other change");
        assert_eq!(bucket.level(0), Some(4 - charged.0 as i64));
        bucket.refund(charged);
        assert_eq!(bucket.level(0), Some(4));
    });
}

/// The four numbers that belong to the `nth` change.
fn numbers(nth: u64) -> Setting {
    Setting { rate: nth, burst: nth, base_ns: nth, base: nth }
}

/// Each reader gets the numbers of one change, and none older than it has seen before.
#[test]
fn reader_gets_the_numbers_of_one_change() {
    explore(|| {
        let shared = Arc::new(SharedSetting::new(numbers(0)));
        let other = Arc::clone(&shared);
        // The thread that only reads is the second one, as in the models of retries.
        let reader = thread::spawn(move || {
            let Setting { rate, burst, base_ns, base } = other.get();
            assert!([burst, base_ns, base] == [rate; 3], "a mixture of two settings");
        });
        // The second change writes the copy that the reader may be reading.
        for _ in 0..2 {
            shared.change(|old| numbers(old.rate + 1)).expect("no other change");
        }
        reader.join().unwrap();
        assert_eq!(shared.get(), numbers(2));
    });
}

/// Two changes at once: each is made on top of the other, or refused.
#[test]
fn no_change_is_lost_unless_it_is_refused() {
    explore(|| {
        let shared = Arc::new(SharedSetting::new(numbers(0)));
        let change = |shared: &SharedSetting| shared.change(|old| numbers(old.rate + 1)).is_ok();
        let other = Arc::clone(&shared);
        let second = thread::spawn(move || change(&other));
        let nr = u64::from(change(&shared)) + u64::from(second.join().unwrap());
        assert!(nr > 0, "one change is made");
        assert_eq!(shared.get(), numbers(nr));
    });
}

/// Planted: a charge is a load and a store.
#[test]
#[should_panic(expected = "have started")]
fn planted_a_charge_that_is_not_one_step_is_lost() {
    use super::Ordering::Relaxed;
    explore(|| {
        let bucket = Arc::new(Bucket::new(1, 0, 0));
        let start = |bucket: &Bucket| {
            let spent = bucket.spent.fetch_add(0, Relaxed);
            let starts = spent == 0;
            bucket.spent.swap(spent + u64::from(starts), Relaxed);
            u32::from(starts)
        };
        let other = Arc::clone(&bucket);
        let second = thread::spawn(move || start(&other));
        let nr = start(&bucket) + second.join().unwrap();
        assert_eq!(nr, 1, "{nr} have started");
    });
}
