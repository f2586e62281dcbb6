//! Functions of the fuzz target: a hostile server's configuration, and its writes to a ring.

use super::config::{Config, Features, LEN};
use super::geometry::Geometry;
use super::open::limits;
use super::queue::VhostUserDriver;
use super::simulated::{Device, Kind, NR_TAGS, pair};
use crate::driver::Mode;
use crate::driver::direct::{data, issue};
use forebay_core::{Bio, Completions, Driver, Issue, Op, Reap};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of tags that an input uses.
const NR_USED_TAGS: usize = 4;

/// The length of each request's memory, bytes.
const LEN_MAX: usize = 2048;

/// The byte that memory of reads has before the device writes.
const UNTOUCHED: u8 = 0xa5;

/// How the requests of an input ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The number of requests that succeeded.
    pub nr_ok: usize,
    /// The number of requests that failed.
    pub nr_failed: usize,
    /// Why the device was given up, if it was before the server left.
    pub failure: Option<String>,
}

/// Parses a configuration: eight bytes of features, then the configuration space. Returns whether
/// it was accepted.
///
/// # Panics
/// Panics if an accepted configuration gives limits that contradict each other.
pub fn accepts_config(input: &[u8]) -> bool {
    let mut bytes = [0; 8 + LEN + 2];
    let nr = input.len().min(bytes.len());
    bytes[..nr].copy_from_slice(&input[..nr]);
    let (offered, rest) = bytes.split_first_chunk::<8>().expect("eight bytes");
    let (space, rest) = rest.split_first_chunk::<LEN>().expect("the length of a space");
    let Ok(features) = Features::negotiate(u64::from_le_bytes(*offered)) else { return false };
    let Ok(config) = Config::parse(space, features) else { return false };
    let nr_tags = 1 + u32::from(rest[0]) * 5;
    let queue_size = (rest[1] > 0).then(|| 4 << (rest[1] % 9));
    let is_indirect = features.has_indirect();
    let Ok(geometry) = Geometry::new(&config, is_indirect, nr_tags, queue_size) else {
        return false;
    };
    assert_eq!(limits(&config, &geometry).validate(), Ok(()), "{config:?} {geometry:?}");
    true
}

/// The driver's requests, as the caller of a driver knows them.
struct Requests {
    driver: VhostUserDriver,
    buffers: Vec<Vec<u8>>,
    /// The operation of each tag in flight.
    in_flight: [Option<Op>; NR_USED_TAGS],
    ended: Ended,
}

impl Requests {
    fn begin(&mut self, tag: usize, op: Op, len: usize) {
        if self.in_flight[tag].is_some() {
            return;
        }
        self.buffers[tag].fill(UNTOUCHED);
        let bio = match op {
            Op::Read | Op::Write => data(op, 0, &mut self.buffers[tag][..len], 512),
            Op::Flush => Bio::range(op, 0, 0),
            Op::Discard | Op::WriteZeroes => Bio::range(op, 0, len as u64),
        };
        if issue(&mut self.driver, tag, bio) == Issue::Queued {
            self.in_flight[tag] = Some(op);
        }
    }

    fn reap(&mut self, how: Reap) {
        let mut done = Completions::new(NR_TAGS);
        self.driver.reap(&mut done, how);
        for done in done.drain() {
            let tag = done.tag.index();
            let op = self.in_flight[tag].take().expect("a request ends once");
            match done.result {
                Ok(_) => self.ended.nr_ok += 1,
                Err(_) => self.ended.nr_failed += 1,
            }
            let is_untouched = self.buffers[tag].iter().all(|byte| *byte == UNTOUCHED);
            assert!(
                is_untouched || op == Op::Read && done.result.is_ok(),
                "only a read that succeeds changes memory"
            );
        }
    }
}

/// Plays the steps of an input on a ring: requests of the caller, and writes of the device. Every
/// request ends once, at the latest when the server leaves.
///
/// # Panics
/// Panics if one does not, or if the memory of another one changes.
pub fn play_ring(input: &[u8]) -> Ended {
    let Some((first, steps)) = input.split_first() else { return Ended::default() };
    let kind = Kind::ALL[usize::from(*first) % 4];
    let mode = if first & 4 == 0 { Mode::Owned } else { Mode::Shared };
    let (driver, mut device) = pair(kind, mode);
    if first & 8 != 0 {
        let _ = driver.shared().poll_fd();
    }
    let buffers = vec![vec![UNTOUCHED; LEN_MAX]; NR_USED_TAGS];
    let in_flight = [None; NR_USED_TAGS];
    let mut requests = Requests { driver, buffers, in_flight, ended: Ended::default() };
    // A device that has changed what it reads cannot serve by the standard any more.
    let mut can_serve = true;
    let mut steps = steps.iter().map(|byte| usize::from(*byte));
    while let (Some(step), Some(value)) = (steps.next(), steps.next()) {
        let mut number = || steps.next().unwrap_or(0) << 8 | steps.next().unwrap_or(0);
        match step % 8 {
            0 | 1 => {
                let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][value / 4 % 4];
                requests.begin(value % NR_USED_TAGS, op, (1 + value / 16 % 4) * 512);
            }
            2 => requests.driver.commit_rqs(),
            3 => requests.reap(if value & 1 == 0 { Reap::Full } else { Reap::NoSyscall }),
            4 => requests.driver.wait(1 + value as u32 % 4, Some(Duration::ZERO)),
            5 if can_serve => serve(&mut device, value),
            5 => {}
            6 => device.put_used(value as u32 / 2, number() as u32 >> (value as u32 & 7)),
            _ if step & 8 == 0 => write(&device, device.used_ring(), value, number()),
            _ => {
                write(&device, 0..device.region.len(), number(), number());
                can_serve = false;
            }
        }
    }
    requests.driver.commit_rqs();
    requests.ended.failure = requests.driver.shared().failure();
    drop(device.peer.take());
    requests.driver.shared().look();
    requests.reap(Reap::Full);
    assert!(requests.in_flight.iter().all(Option::is_none), "a request ends with the device");
    requests.ended
}

/// Completes the next chain, as a device should, or with another status or length.
fn serve(device: &mut Device, value: usize) {
    let Some(chain) = device.next() else { return };
    let len = device.perform(&chain);
    if let (true, Some(status)) = (value & 1 != 0, chain.parts.last()) {
        device.region.u8_at(status.0).store((value >> 2) as u8 % 5, Ordering::Relaxed);
    }
    let len = if value & 2 != 0 { value as u32 } else { len };
    device.put_used(chain.head.into(), len);
}

/// Writes a word to one of these places.
fn write(device: &Device, places: Range<usize>, nth: usize, value: usize) {
    let place = places.start + nth * 2 % (places.len() & !1);
    device.region.u16_at(place).store(value as u16, Ordering::Relaxed);
}
