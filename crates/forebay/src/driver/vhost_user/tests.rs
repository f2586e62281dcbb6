//! The driver against a simulated device, honest or hostile.

use super::queue::VhostUserDriver;
use super::simulated::{Chain, Device, Kind, NR_TAGS, pair, unused};
use super::spin::Spin;
use crate::driver::Mode;
use crate::driver::testing::{self, Numbers, data, is_readable, reap, without_descriptors};
use crate::sys::forked::in_child;
use forebay_core::{Bio, BlockStatus, Completed, Driver, Issue, Op, Tag};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const QUIET: Kind = Kind { is_indirect: true, has_event_idx: true };

fn issue(driver: &mut VhostUserDriver, tag: usize, bio: Bio) {
    assert_eq!(testing::issue(driver, tag, bio), Issue::Queued);
}

fn ended(tag: usize, result: Result<u64, BlockStatus>) -> Completed {
    Completed { tag: Tag::from_index(tag), result }
}

#[test]
fn requests_reach_the_device_and_come_back() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        let mut bytes: Vec<u8> = (0..10_000 + 240).map(|nth| nth as u8).collect();
        issue(&mut driver, 3, data(Op::Write, 512, &mut bytes, 700));
        issue(&mut driver, 0, Bio::range(Op::Flush, 0, 0));
        assert_eq!(device.serve(), 0, "nothing before the commit");
        driver.commit_rqs();
        assert_eq!(device.serve(), 2);
        assert_eq!(reap(&mut driver), [ended(3, Ok(10_240)), ended(0, Ok(0))]);
        assert_eq!(device.disk[512..][..10_240], bytes);
        issue(&mut driver, 1, Bio::range(Op::Discard, 1024, 512));
        issue(&mut driver, 2, Bio::range(Op::WriteZeroes, 4096, 1024));
        driver.commit_rqs();
        device.serve();
        assert_eq!(reap(&mut driver), [ended(1, Ok(512)), ended(2, Ok(1024))]);
        let mut read = vec![1; 10_240];
        issue(&mut driver, 63, data(Op::Read, 512, &mut read, 300));
        driver.commit_rqs();
        device.serve();
        assert_eq!(reap(&mut driver), [ended(63, Ok(10_240))]);
        for (start, len) in [(512, 512), (3584, 1024)] {
            bytes[start..start + len].fill(0);
        }
        assert!(read == bytes, "{kind:?}");
    }
}

#[test]
fn tag_serves_requests_of_any_shape_in_turn() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        let mut numbers = Numbers(3);
        for round in 0..300_u64 {
            let op = [Op::Read, Op::Write, Op::Flush][numbers.below(3) as usize];
            let len = [512, 512, 4096, 20_480][numbers.below(4) as usize];
            let mut bytes = vec![round as u8; len];
            let start = numbers.below(1000) * 512;
            let bio = match op {
                Op::Flush => Bio::range(Op::Flush, 0, 0),
                _ => data(op, start, &mut bytes, 4096),
            };
            let result = Ok(bio.len);
            issue(&mut driver, 9, bio);
            driver.commit_rqs();
            assert_eq!(device.serve(), 1);
            assert_eq!(reap(&mut driver), [ended(9, result)]);
            let on_disk = &device.disk[start as usize..][..len];
            assert!(op == Op::Flush || on_disk == bytes, "{kind:?} {round} {op:?} {len}");
        }
    }
}

#[test]
fn indices_wrap_and_chains_complete_in_any_order() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        let mut numbers = Numbers(7);
        let mut nr = 0;
        while nr < 70_000 {
            let batch = 1 + numbers.below(u64::from(NR_TAGS)) as usize;
            (0..batch).for_each(|tag| issue(&mut driver, tag, Bio::range(Op::Flush, 0, 0)));
            driver.commit_rqs();
            let mut chains: Vec<Chain> = std::iter::from_fn(|| device.next()).collect();
            assert_eq!(chains.len(), batch);
            while !chains.is_empty() {
                let chain = chains.swap_remove(numbers.below(chains.len() as u64) as usize);
                device.perform(&chain);
                device.put_used(chain.head.into(), 1);
                if numbers.below(4) == 0 || chains.is_empty() {
                    nr += reap(&mut driver).len();
                }
            }
        }
    }
}

#[test]
fn batch_costs_one_kick_if_the_device_wants_any() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        for (is_wanted, nr_kicks) in [(true, 1), (false, 0), (true, 1)] {
            device.want_kicks(is_wanted);
            let before = driver.nr_syscalls();
            (0..8).for_each(|tag| issue(&mut driver, tag, Bio::range(Op::Flush, 0, 0)));
            driver.commit_rqs();
            driver.commit_rqs();
            assert_eq!(driver.nr_syscalls() - before, nr_kicks, "{kind:?}");
            assert_eq!(is_readable(device.kick.fd(), 0), is_wanted, "{kind:?}");
            device.kick.clear();
            assert_eq!((device.serve(), reap(&mut driver).len()), (8, 8));
        }
    }
}

#[test]
fn device_interrupts_only_for_waits() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        for round in 0..3 {
            (0..4).for_each(|tag| issue(&mut driver, tag, Bio::range(Op::Flush, 0, 0)));
            driver.commit_rqs();
            device.serve();
            assert_eq!(reap(&mut driver).len(), 4);
            assert_eq!(device.nr_interrupts, 0, "{kind:?} {round}: no thread waited");
        }
        (0..4).for_each(|tag| issue(&mut driver, tag, Bio::range(Op::Flush, 0, 0)));
        // The wait begins the requests.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while device.serve() < 4 {
                    std::thread::yield_now();
                }
            });
            driver.wait(4, None);
        });
        assert_eq!(reap(&mut driver).len(), 4, "{kind:?}");
        if kind.has_event_idx {
            assert!(device.nr_interrupts <= 1, "one for the last of four");
        }
    }
}

#[test]
fn wait_ends_with_its_timeout_a_kick_or_a_completion() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Shared);
        driver.wait(1, Some(Duration::from_millis(1)));
        let shared = Arc::clone(driver.shared());
        shared.wait(Some(Duration::from_millis(1)));
        driver.kick();
        shared.wait(None);
        issue(&mut driver, 5, Bio::range(Op::Flush, 0, 0));
        driver.commit_rqs();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| shared.wait(None));
            device.serve();
            waiter.join().expect("no panic");
        });
        assert_eq!(reap(&mut driver), [ended(5, Ok(0))]);
    }
}

/// Checks that the device is given up, each of two requests in flight ends once, and no request is
/// accepted afterwards.
#[track_caller]
fn assert_given_up(kind: Kind, lie: impl FnOnce(&mut Device, Vec<Chain>), expected: &str) {
    let (mut driver, mut device) = pair(kind, Mode::Owned);
    let mut read = vec![7; 1024];
    issue(&mut driver, 0, data(Op::Read, 0, &mut read, 1024));
    issue(&mut driver, 1, Bio::range(Op::Flush, 0, 0));
    driver.commit_rqs();
    let chains = std::iter::from_fn(|| device.next()).collect();
    lie(&mut device, chains);
    // A wait must not miss the end of the device, before or after it was found.
    driver.wait(1, None);
    let mut done = reap(&mut driver);
    driver.wait(2, Some(Duration::from_millis(1)));
    done.extend(reap(&mut driver));
    done.sort_by_key(|done| done.tag.index());
    let offline = Err(BlockStatus::Offline);
    assert_eq!(done, [ended(0, offline), ended(1, offline)], "{expected}");
    assert!(read.iter().all(|byte| *byte == 7), "no data of a request that failed");
    let again = testing::issue(&mut driver, 0, Bio::range(Op::Flush, 0, 0));
    assert_eq!(again, Issue::Failed(BlockStatus::Offline));
    let failure = driver.shared().failure().expect("a reason");
    assert!(failure.contains(expected), "{failure}");
}

#[test]
fn used_ring_that_cannot_be_gives_up_the_device() {
    for kind in Kind::ALL {
        assert_given_up(
            kind,
            |device, _| device.set_used(3),
            "the used index is 3 ahead, with 2 requests in flight",
        );
        assert_given_up(kind, |device, _| device.set_used(u16::MAX), "is 65535 ahead");
        for id in [2, 63, 64, 1 << 16, u32::MAX] {
            let expected = format!("used descriptor {id}, which is of no request");
            let id = if kind.is_indirect { id } else { id.saturating_mul(10) };
            let expected =
                if kind.is_indirect { expected } else { String::from("which is of no request") };
            assert_given_up(kind, |device, _| device.put_used(id, 1), &expected);
        }
    }
    let inside = Kind { is_indirect: false, has_event_idx: true };
    assert_given_up(inside, |device, _| device.put_used(1, 1), "used descriptor 1, which is of");
}

#[test]
fn completion_that_cannot_be_gives_up_the_device() {
    for kind in Kind::ALL {
        for len in [0, 1, 1024, 1026, u32::MAX] {
            let lie = |device: &mut Device, chains: Vec<Chain>| {
                device.perform(&chains[0]);
                device.put_used(chains[0].head.into(), len);
            };
            let expected = format!("it has written {len} bytes for a request of 1025 bytes");
            assert_given_up(kind, lie, &expected);
        }
        for status in [3, 255] {
            let lie = |device: &mut Device, chains: Vec<Chain>| {
                let at = chains[0].parts.last().expect("a status byte").0;
                device.region.u8_at(at).store(status, Ordering::Relaxed);
                device.put_used(chains[0].head.into(), 1025);
            };
            assert_given_up(kind, lie, &format!("with the status {status}"));
        }
    }
}

#[test]
fn chain_that_is_used_twice_gives_up_the_device() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        (0..2).for_each(|tag| issue(&mut driver, tag, Bio::range(Op::Flush, 0, 0)));
        driver.commit_rqs();
        let chain = device.next().expect("a chain");
        device.perform(&chain);
        (0..2).for_each(|_| device.put_used(chain.head.into(), 1));
        assert_eq!(reap(&mut driver), [ended(0, Ok(0)), ended(1, Err(BlockStatus::Offline))]);
    }
}

#[test]
fn errors_of_the_device_are_those_of_their_requests() {
    let (mut driver, mut device) = pair(QUIET, Mode::Owned);
    for (status, expected) in [(1, BlockStatus::Io), (2, BlockStatus::NotSupported)] {
        let mut read = vec![7; 512];
        issue(&mut driver, 9, data(Op::Read, 0, &mut read, 512));
        driver.commit_rqs();
        let chain = device.next().expect("a chain");
        let at = chain.parts.last().expect("a status byte").0;
        device.region.u8_at(at).store(status, Ordering::Relaxed);
        device.put_used(chain.head.into(), 1);
        assert_eq!(reap(&mut driver), [ended(9, Err(expected))]);
    }
}

#[test]
fn end_of_the_server_ends_each_request_once() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (mut driver, mut device) = pair(QUIET, mode);
        (0..3).for_each(|tag| issue(&mut driver, tag, Bio::range(Op::Flush, 0, 0)));
        driver.commit_rqs();
        let chain = device.next().expect("a chain");
        device.perform(&chain);
        device.put_used(chain.head.into(), 1);
        drop(device.peer.take());
        match mode {
            Mode::Owned => driver.wait(3, None),
            Mode::Shared => driver.shared().look(),
        }
        let offline = Err(BlockStatus::Offline);
        assert_eq!(reap(&mut driver), [ended(0, Ok(0)), ended(1, offline), ended(2, offline)]);
        let failure = driver.shared().failure();
        assert_eq!(failure.as_deref(), Some("the server has closed the connection"));
        // A wait beside a device that is gone ends soon, and for a kick.
        driver.shared().wait(None);
    }
}

#[test]
fn ring_that_the_server_has_stopped_gives_up_the_device() {
    for mode in [Mode::Owned, Mode::Shared] {
        let (mut driver, device) = pair(QUIET, mode);
        issue(&mut driver, 0, Bio::range(Op::Flush, 0, 0));
        driver.commit_rqs();
        device.error.signal();
        match mode {
            Mode::Owned => driver.wait(1, None),
            Mode::Shared => driver.shared().wait(None),
        }
        assert_eq!(reap(&mut driver), [ended(0, Err(BlockStatus::Offline))]);
        let failure = driver.shared().failure().expect("a reason");
        assert!(failure.starts_with("the server reports an error of a ring"), "{failure}");
    }
}

#[test]
fn wait_of_a_device_that_is_gone_does_not_spin() {
    let (mut driver, mut device) = pair(QUIET, Mode::Owned);
    drop(device.peer.take());
    driver.shared().look();
    // A layer above may have requests in flight that never reach the device.
    let before = driver.nr_syscalls();
    driver.wait(1, Some(Duration::from_micros(100)));
    assert_eq!(driver.nr_syscalls() - before, 1, "it sleeps until its timeout");
    device.set_used(7);
    driver.wait(1, Some(Duration::from_micros(100)));
    assert_eq!(driver.nr_syscalls() - before, 2, "and a ring of that device is not believed");
}

#[test]
fn reaps_without_waits_find_the_end_of_the_server() {
    let (mut driver, mut device) = pair(QUIET, Mode::Owned);
    issue(&mut driver, 0, Bio::range(Op::Flush, 0, 0));
    driver.commit_rqs();
    assert!((0..200).all(|_| reap(&mut driver).is_empty()));
    drop(device.peer.take());
    let mut nr_reaps = 0;
    while reap(&mut driver).is_empty() {
        nr_reaps += 1;
    }
    assert!(nr_reaps < 64, "{nr_reaps}");
}

#[test]
fn descriptor_is_readable_for_completions_kicks_and_the_end() {
    for kind in Kind::ALL {
        let (mut driver, mut device) = pair(kind, Mode::Shared);
        let shared = Arc::clone(driver.shared());
        issue(&mut driver, 0, Bio::range(Op::Flush, 0, 0));
        driver.commit_rqs();
        let is_ready = || is_readable(shared.poll_fd().expect("a descriptor"), 0);
        assert!(is_ready(), "requests were in flight before");
        assert!(reap(&mut driver).is_empty() && !is_ready(), "{kind:?}");
        for round in 0..3 {
            device.serve();
            assert!(is_ready(), "{kind:?} {round}");
            assert_eq!(reap(&mut driver).len(), 1);
            assert!(!is_ready(), "{kind:?} {round}: nothing is in flight");
            driver.kick();
            assert!(is_ready());
            shared.acknowledge();
            assert!(reap(&mut driver).is_empty() && !is_ready(), "a reap clears it");
            // A wait beside the driver does not take the interrupt of a later completion.
            shared.wait(Some(Duration::from_millis(1)));
            issue(&mut driver, round, Bio::range(Op::Flush, 0, 0));
            driver.commit_rqs();
            assert!(!is_ready());
        }
        drop(device.peer.take());
        assert!(is_ready());
        assert_eq!(reap(&mut driver), [ended(2, Err(BlockStatus::Offline))]);
        assert!(!is_ready(), "an event loop of an idle disk sleeps");
    }
}

#[test]
fn acknowledged_descriptor_keeps_the_kick_of_a_waiting_thread() {
    let (mut driver, _device) = pair(QUIET, Mode::Shared);
    let shared = Arc::clone(driver.shared());
    assert!(shared.poll_fd().is_ok());
    driver.kick();
    // The event loop is another thread, and the kicked one does not wait yet.
    shared.acknowledge();
    assert!(is_readable(shared.poll_fd().expect("a descriptor"), 0), "no reap has cleared it");
    shared.wait(None);
    assert!(reap(&mut driver).is_empty());
    assert!(!is_readable(shared.poll_fd().expect("a descriptor"), 0));
}

#[test]
fn queue_that_cannot_be_opened_now_can_be_opened_later() {
    assert!(in_child(|| {
        let (link, spare, mut device) = unused(QUIET);
        let open = || VhostUserDriver::new(&link, &spare, Mode::Owned, Spin::new(Duration::ZERO));
        assert!(without_descriptors(|| open().is_err()));
        let mut driver = open().expect("the queue of before");
        issue(&mut driver, 0, Bio::range(Op::Flush, 0, 0));
        driver.commit_rqs();
        device.serve() == 1 && reap(&mut driver) == [ended(0, Ok(0))]
    }));
}

#[test]
fn server_cannot_make_the_driver_wait_for_its_own_descriptor() {
    let (driver, device) = pair(QUIET, Mode::Owned);
    // A blocking read would wait forever.
    let call = device.call();
    call.set_blocking();
    assert!(!call.clear_shared());
    call.signal();
    assert!(call.clear_shared() && !call.clear_shared());
    drop(driver);
}

/// The device writes anything anywhere. Each request ends once, and nothing panics.
#[test]
fn random_writes_of_the_device_break_nothing() {
    for seed in 1..300 {
        let mut numbers = Numbers(seed);
        let kind = Kind::ALL[numbers.below(4) as usize];
        let (mut driver, mut device) = pair(kind, Mode::Owned);
        let mut nr_left = vec![0; NR_TAGS as usize];
        let mut buffers = vec![vec![0; 2048]; NR_TAGS as usize];
        for _ in 0..60 {
            for (tag, buffer) in buffers.iter_mut().enumerate().take(numbers.below(8) as usize) {
                let op = [Op::Read, Op::Write][numbers.below(2) as usize];
                if nr_left[tag] == 0
                    && testing::issue(&mut driver, tag, data(op, 0, buffer, 512)) == Issue::Queued
                {
                    nr_left[tag] = 1;
                }
            }
            driver.commit_rqs();
            if numbers.below(3) == 0 {
                device.scribble(&mut numbers);
            } else {
                let id = numbers.below(12) as u32;
                device.put_used(id, [1, 2049, numbers.below(5000) as u32][id as usize % 3]);
            }
            driver.wait(1, Some(Duration::ZERO));
            for done in reap(&mut driver) {
                nr_left[done.tag.index()] -= 1;
            }
            assert!(nr_left.iter().all(|nr| *nr >= 0), "a request ends once");
        }
        drop(device.peer.take());
        driver.wait(1, Some(Duration::ZERO));
        for _ in 0..65 {
            reap(&mut driver).iter().for_each(|done| nr_left[done.tag.index()] -= 1);
        }
        assert!(nr_left.iter().all(|nr| *nr == 0), "seed {seed}: each request ends");
    }
}
