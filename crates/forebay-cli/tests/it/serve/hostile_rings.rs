//! Hostile drivers of one device, while another device of the same server is at work.

use super::front_end::{
    BASE, DATA_MAX, Driver, FLUSH, FrontEnd, NEXT, NR_SLOTS, READ, SIZE, WRITABLE, WRITE,
};
use super::load::Numbers;
use super::server::Server;
use crate::common::{data_file, folder};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Flag of a descriptor that names an indirect table.
const INDIRECT: u16 = 4;

/// Writes of a hostile driver to its ring.
type Attack = fn(&mut Driver);

/// Fills a read of one sector whose data descriptor is this one.
fn with_data(driver: &mut Driver, buffer: (u64, u32), flags: u16, next: u16) {
    driver.fill(0, READ, 1, 512);
    driver.describe(1, buffer, flags, next);
    driver.offer(0);
}

/// Attacks that stop the ring, each with a part of the reason in the log.
const STOPS: [(&str, Attack); 12] = [
    ("longer than its table", |driver| with_data(driver, (BASE, 512), NEXT | WRITABLE, 1)),
    ("not in its table", |driver| with_data(driver, (BASE, 512), NEXT | WRITABLE, SIZE)),
    ("not in the memory", |driver| with_data(driver, (0, 512), NEXT | WRITABLE, 2)),
    ("not in the memory", |driver| with_data(driver, (u64::MAX - 9, 512), NEXT | WRITABLE, 2)),
    ("empty", |driver| with_data(driver, (BASE, 0), NEXT | WRITABLE, 2)),
    ("4 GiB or more", |driver| with_data(driver, (BASE, u32::MAX), NEXT | WRITABLE, 2)),
    ("no writable byte for its status", |driver| with_data(driver, (BASE, 512), 0, 0)),
    ("with a next one", |driver| with_data(driver, (BASE, 32), INDIRECT | NEXT, 2)),
    ("bad length", |driver| with_data(driver, (BASE, 33), INDIRECT, 0)),
    ("is the head of a request", |driver| driver.offer(SIZE)),
    ("entries ahead", |driver| driver.jump(SIZE + 1)),
    ("entries ahead", |driver| driver.jump(u16::MAX)),
];

/// Attacks that are answered with this status.
const ANSWERS: [(u8, Attack); 6] = [
    (1, |driver| with_data(driver, (BASE, 511), NEXT | WRITABLE, 2)),
    (1, |driver| submitted(driver, READ, u64::MAX)),
    (1, |driver| submitted(driver, WRITE, 1 << 40)),
    (2, |driver| submitted(driver, 2, 0)),
    (2, |driver| submitted(driver, 1 << 31, 0)),
    // Its data are the ring itself.
    (0, |driver| with_data(driver, (BASE + 0x3800, 512), NEXT | WRITABLE, 2)),
];

fn submitted(driver: &mut Driver, kind: u32, sector: u64) {
    driver.fill(0, kind, sector, 512);
    driver.offer(0);
}

/// Writes and reads until the end, and checks the data. Counts the rounds.
fn work_beside(driver: &mut Driver, is_over: &AtomicBool, nr_rounds: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let round = nr_rounds.load(Ordering::Relaxed);
        let data: Vec<u8> = (0..DATA_MAX).map(|at| (at as u64 / 7 + round) as u8).collect();
        driver.write_data(0, &data);
        driver.submit(0, WRITE, 16 * (round % 9), DATA_MAX);
        assert_eq!(driver.answer(), 0, "round {round}");
        driver.submit(1, FLUSH, 0, 0);
        assert_eq!(driver.answer(), 0, "round {round}");
        driver.submit(2, READ, 16 * (round % 9), DATA_MAX);
        assert_eq!(driver.answer(), 0, "round {round}");
        let mut found = vec![0; DATA_MAX as usize];
        driver.read_data(2, &mut found);
        assert!(found == data, "round {round}");
        nr_rounds.store(round + 1, Ordering::Relaxed);
    }
}

/// Waits until the other device has done so many rounds.
#[track_caller]
fn await_rounds(nr_rounds: &AtomicU64, nr: u64) {
    let start = Instant::now();
    while nr_rounds.load(Ordering::Relaxed) < nr {
        assert!(start.elapsed() < PATIENCE, "the other device does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Descriptors that a thread of a ring may open later than its first answer.
const LATE_FDS: usize = 10;

/// Returns the number of the server's descriptors once both rings run: they start in order.
fn settled_fds(server: &Server, front_end: &FrontEnd) -> usize {
    let mut last = front_end.driver(1);
    last.submit(0, READ, 0, 512);
    assert_eq!(last.answer(), 0);
    server.nr_fds()
}

/// Sets a flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `attack` on a device with two rings, while another device is at work. Afterwards a new
/// front end uses the first device.
#[track_caller]
fn beside_another_device(attack: impl FnOnce(&Server, &mut FrontEnd, &dyn Fn(&mut FrontEnd))) {
    let folder = folder();
    for name in ["bad.img", "good.img"] {
        data_file(&folder, name, 1 << 20);
    }
    let args = "bad.img good.img --vhost-user-blk=unix:b --vhost-user-blk=unix:g --num-queues=2";
    let server = Server::start(&folder, args);
    let [bad, good] = ["b", "g"].map(|socket| folder.path().join(socket));
    let mut beside = FrontEnd::new(1);
    beside.connect(&good);
    let mut driver = beside.driver(0);
    let (is_over, nr_rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = scope.spawn(|| work_beside(&mut driver, &is_over, &nr_rounds));
        // The other device works until then, also if this test fails.
        let over = Over(&is_over);
        await_rounds(&nr_rounds, 2);
        let mut front_end = FrontEnd::new(2);
        front_end.connect(&bad);
        attack(&server, &mut front_end, &|front_end| front_end.connect(&bad));
        front_end.disconnect();
        let mut next = FrontEnd::new(2);
        next.connect(&bad);
        for ring in 0..2 {
            let mut driver = next.driver(ring);
            driver.submit(0, READ, 0, 512);
            assert_eq!(driver.answer(), 0, "ring {ring} of the next front end");
        }
        await_rounds(&nr_rounds, nr_rounds.load(Ordering::Relaxed) + 2);
        drop(over);
        work.join().expect("the other device works");
    });
    beside.disconnect();
    assert!(server.terminate().success());
}

#[test]
fn ring_that_is_broken_stops_beside_another_device() {
    beside_another_device(|server, front_end, connect| {
        for (nth, (why, attack)) in STOPS.iter().enumerate() {
            *front_end = FrontEnd::new(2);
            connect(front_end);
            let [mut bad, mut good] = [0, 1].map(|ring| front_end.driver(ring));
            attack(&mut bad);
            bad.publish();
            server.await_lines("ring 0 stops: ", nth + 1);
            let log = server.log();
            let line = log.lines().rfind(|line| line.contains("ring 0 stops: ")).expect("it");
            assert!(line.contains(why), "attack {nth}: {line}");
            assert!(bad.take_used().is_none(), "attack {nth}");
            // The other ring of the same device.
            good.submit(0, READ, 0, 512);
            assert_eq!(good.answer(), 0, "attack {nth}");
        }
    });
}

#[test]
fn hostile_request_is_answered_beside_another_device() {
    beside_another_device(|_, front_end, _| {
        let mut driver = front_end.driver(0);
        for (nth, (status, attack)) in ANSWERS.iter().enumerate() {
            attack(&mut driver);
            driver.publish();
            assert_eq!(driver.answer(), *status, "attack {nth}");
        }
    });
}

/// A stop is answered when the requests in flight are. The driver kicks a ring that does not run,
/// too.
#[test]
fn storm_of_stops_and_starts_loses_no_request() {
    beside_another_device(|server, front_end, _| {
        let mut bad = front_end.driver(0);
        let (mut nr_fds, mut nr_answers) = (0, 0);
        for nth in 0..1000 {
            for slot in 0..NR_SLOTS {
                bad.submit(slot, READ, u64::from(slot), 512);
            }
            front_end.restart_ring(0);
            for _ in 0..NR_SLOTS {
                assert_eq!(bad.answer(), 0);
                nr_answers += 1;
            }
            if nth == 10 {
                nr_fds = settled_fds(server, front_end);
            }
        }
        assert_eq!(nr_answers, 1000 * u32::from(NR_SLOTS));
        // A leak in each step would add hundreds.
        let nr_late = settled_fds(server, front_end).saturating_sub(nr_fds);
        assert!(nr_late <= LATE_FDS, "{nr_late} descriptors more");
    });
}

/// A reset of the driver ends the connection in the middle of its requests.
#[test]
fn storm_of_resets_under_load_leaves_nothing_behind() {
    beside_another_device(|server, front_end, connect| {
        let mut nr_fds = 0;
        for nth in 0..1000 {
            let mut driver = front_end.driver(0);
            for slot in 0..NR_SLOTS {
                driver.submit(slot, WRITE, u64::from(slot), 512);
            }
            // The driver starts from nothing.
            *front_end = FrontEnd::new(2);
            connect(front_end);
            if nth == 10 {
                nr_fds = settled_fds(server, front_end);
            }
        }
        // A leak in each step would add hundreds.
        let nr_late = settled_fds(server, front_end).saturating_sub(nr_fds);
        assert!(nr_late <= LATE_FDS, "{nr_late} descriptors more");
    });
}

/// Nothing is read twice, so nothing changes between its check and its use.
#[test]
fn memory_that_changes_all_the_time_hurts_only_its_device() {
    beside_another_device(|_, front_end, connect| {
        for seed in 0..20 {
            let mut numbers = Numbers(seed + 1);
            let mut driver = front_end.driver(0);
            let start = Instant::now();
            let scribbler = front_end.driver(0);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut numbers = Numbers(seed + 1000);
                    while !is_over.load(Ordering::Relaxed) {
                        // Descriptors, entries, used ring and headers.
                        let at = [0, 0x1000, 0x2000, 0x3000][numbers.below(4) as usize];
                        let at = at + numbers.below(24 * 16);
                        scribbler.write(at, &[numbers.below(256) as u8]);
                    }
                });
                while start.elapsed() < Duration::from_millis(20) {
                    let slot = numbers.below(NR_SLOTS.into()) as u16;
                    let kind = [READ, WRITE, FLUSH, 8][numbers.below(4) as usize];
                    driver.submit(slot, kind, numbers.below(1 << 11), 512);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            *front_end = FrontEnd::new(2);
            connect(front_end);
        }
    });
}
