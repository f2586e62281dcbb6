//! Random schedules of many threads that wait for tags, of a set that shrinks and grows meanwhile.
//! Loom runs all schedules of two or three threads instead.
//!
//! `cargo xtask shuttle`; `BLK_SHUTTLE_SCHEDULES` sets the number of schedules of each kind, for
//! each model.
#![cfg(blk_shuttle)]

mod pool;

use forebay_core::WakePolicy;
use shuttle::thread;
use std::sync::Arc;

use pool::Pool;

/// Runs random schedules, and schedules with few switches (PCT).
fn explore(body: impl Fn() + Send + Sync + 'static) {
    let nr = std::env::var("BLK_SHUTTLE_SCHEDULES")
        .ok()
        .map_or(10_000, |nr| nr.parse().expect("BLK_SHUTTLE_SCHEDULES is a number"));
    let body = Arc::new(body);
    let same = Arc::clone(&body);
    shuttle::check_random(move || body(), nr);
    shuttle::check_pct(move || same(), nr, 3);
}

/// Seven threads get one or two tags, three times each. Some tries need both words. Shuttle fails a
/// schedule in which all remaining threads sleep.
fn seven_at_once(policy: WakePolicy, depths: [u32; 2]) {
    explore(move || {
        let pool = Arc::new(Pool::new(policy, depths[0]));
        let users = (0..7).map(|id| {
            let pool = pool.clone();
            thread::spawn(move || {
                for round in 0..3 {
                    let tags = pool.get(id, 1 + (id as u32 + round) % 2);
                    pool.put(id, tags);
                }
            })
        });
        let users: Vec<_> = users.collect();
        for depth in [depths[1], depths[0]] {
            pool.resize(depth);
        }
        users.into_iter().for_each(|user| user.join().unwrap());
        pool.check_idle();
    });
}

#[test]
fn fair() {
    seven_at_once(WakePolicy::Fair, [5, 3]);
}

#[test]
fn batch() {
    seven_at_once(WakePolicy::Batch, [5, 3]);
}

#[test]
fn stash() {
    seven_at_once(WakePolicy::Stash, [5, 3]);
}

#[test]
fn single() {
    seven_at_once(WakePolicy::Single, [5, 3]);
}
