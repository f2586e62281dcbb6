//! The cost of the layer: common operations of one thread, on a driver that does nothing.
//!
//! `cargo run --profile dist -p forebay --example cost` times each kind of work; `-- KIND NUMBER`
//! repeats one kind, for a profiler. `cargo xtask instructions` counts instructions, and fails if
//! they exceed a limit.

// A driver is unsafe to implement.
#![allow(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::driver::{Answer, Completions, Driver, Facts, IssuedRequest, Mode, Queue, Reap, Wait};
use forebay::{
    Backend, Batch, BioQueue, BlockStatus, Buf, Completion, Disk, Extents, Io, Limits, Origin,
    Owner, Policy, PollMode, QueueLimits, Rate, plug,
};
use forebay_core::{Tag, TagSet};
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// A disk with one context, which threads share.
const ONE: &str = "null:1G?nr_hw_queues=1";
/// The same with a scheduler.
const SORTED: &str = "null:1G?scheduler=mq-deadline";

const DEPTH: usize = 32;
const BLOCK: usize = 4096;

/// A queue that is kept full, and its buffers.
struct Load {
    queue: BioQueue,
    origin: Origin,
    bufs: Vec<Buf>,
    done: Vec<Completion>,
    random: u64,
}

impl Load {
    fn new(spec: &str) -> Load {
        Load::on(&Disk::open(spec).expect("null is always there"))
    }

    /// Uses a back end that does nothing, with the limits and settings of `null`.
    fn on_backend() -> Load {
        struct Null;
        impl Backend for Null {
            fn name(&self) -> &str {
                "null"
            }

            fn submit(&self, batch: &mut Batch<'_>) {
                batch.for_each(|request| request.complete(Ok(())));
            }
        }
        let null = Disk::open("null:1G").expect("null is always there");
        let (limits, policy): (QueueLimits, Policy) = (*null.limits(), null.info().policy);
        Load::on(&Disk::with_backend(Null, limits, policy).expect("the same as null"))
    }

    /// Uses a driver that does nothing, with the limits and settings of `null`.
    fn on_driver() -> Load {
        let null = Disk::open("null:1G").expect("null is always there");
        let (driver, policy) = (NullDriver(*null.limits()), null.info().policy);
        Load::on(&Disk::with_driver(driver, policy).expect("the same as null"))
    }

    /// Submits as an owner whose limit holds nothing back.
    fn limited(spec: &str) -> Load {
        Load::of_owner(spec, |owner| {
            let mut limits = Limits::default();
            limits.both.iops = Rate::per_s(100_000_000);
            owner.set_limits(&limits).expect("a rate without a burst");
        })
    }

    /// The same while an observer watches the owner.
    fn observed() -> Load {
        Load::of_owner("null:1G", |owner| {
            let mut limits = Limits::default();
            limits.both.iops = Rate::per_s(100_000_000);
            owner.set_limits(&limits).expect("a rate without a burst");
            let all = forebay::open_disks().into_iter().flat_map(|disk| disk.owners());
            all.for_each(|meter| meter.watch(Duration::from_secs(86_400)));
        })
    }

    /// Submits as an owner with a weight.
    fn weighted(spec: &str) -> Load {
        Load::of_owner(spec, |owner| owner.set_weight(200).expect("one context"))
    }

    fn of_owner(spec: &str, set: impl FnOnce(&Owner)) -> Load {
        let disk = Disk::open(spec).expect("null is always there");
        let owner = disk.owner("tenant").expect("the name is free");
        set(&owner);
        Load { origin: owner.origin(), ..Load::on(&disk) }
    }

    fn on(disk: &Disk) -> Load {
        Load {
            queue: disk.queue(),
            origin: Origin::NONE,
            bufs: (0..DEPTH).map(|_| Buf::new(BLOCK)).collect(),
            done: Vec::with_capacity(DEPTH),
            random: 1,
        }
    }

    /// Returns a random block. Consecutive blocks are not adjacent, so nothing merges.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100_000 * 2
    }

    fn submit(&mut self, block: u64) {
        let buf = self.bufs.pop().expect("there are as many as may be in flight");
        let io = Io::read(buf, block * BLOCK as u64).origin(self.origin);
        self.queue.submit(io).expect("it is on the disk");
    }

    fn reap(&mut self) {
        self.queue.reap(1, DEPTH, &mut self.done);
        self.bufs.extend(self.done.drain(..).filter_map(|completion| completion.buf));
    }

    /// Runs random I/O at depth 32, each I/O under a plug of its own.
    fn singly(&mut self, nr: u64) {
        for _ in 0..nr {
            if self.bufs.is_empty() {
                self.reap();
            }
            let block = self.random();
            let plug = plug();
            self.submit(block);
            drop(plug);
        }
    }

    /// Runs random I/O one at a time like a server: the queue has a descriptor for an event loop,
    /// and is reaped after each submission.
    fn watched(&mut self, nr: u64) {
        let _handle = self.queue.poll_handle(PollMode::AfterReap).expect("a descriptor");
        for _ in 0..nr {
            let block = self.random();
            let plug = plug();
            self.submit(block);
            drop(plug);
            self.queue.reap(0, DEPTH, &mut self.done);
            self.bufs.extend(self.done.drain(..).filter_map(|completion| completion.buf));
        }
    }

    /// Runs random I/O under plugs of 32.
    fn batches(&mut self, nr: u64) {
        for _ in 0..nr / DEPTH as u64 {
            let plug = plug();
            for _ in 0..DEPTH {
                let block = self.random();
                self.submit(block);
            }
            drop(plug);
            self.reap();
        }
    }

    /// Submits adjacent blocks under plugs of 16, which merge into one request each.
    fn merges(&mut self, nr: u64) {
        for nth in 0..nr / 16 {
            let plug = plug();
            (0..16).for_each(|block| self.submit(nth % 1000 * 64 + block));
            drop(plug);
            self.reap();
        }
    }
}

/// A driver that does nothing.
struct NullDriver(QueueLimits);
struct NullQueue(Completions);

// SAFETY: each request completes when it is queued, and no memory is used.
unsafe impl Driver for NullDriver {
    type Queue = NullQueue;

    fn facts(&self) -> Facts {
        Facts::new("null", self.0)
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(NullQueue, Wait)> {
        Ok((NullQueue(Completions::new(depth)), Wait::AtOnce))
    }

    fn block_status(&self, _: u64, _: &mut Extents<'_>) -> Result<(), BlockStatus> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

// SAFETY: as above.
unsafe impl Queue for NullQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        self.0.push(rq.tag, Ok(rq.len));
        Answer::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        done.append(&mut self.0);
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    fn has_ready(&self) -> bool {
        !self.0.is_empty()
    }

    fn nr_syscalls(&self) -> Option<u64> {
        None
    }
}

/// Takes and returns `nr` tags in total, `batch` at a time.
fn tags(batch: u32, nr: u64) {
    // Opaque to the compiler: in the layer, the depth is not a constant either.
    let (set, mut hint) = (black_box(TagSet::new(128)), 0);
    let mut taken: Vec<Tag> = Vec::with_capacity(batch as usize);
    for _ in 0..nr / u64::from(batch) {
        if batch == 1 {
            let tag = set.try_get(&mut hint).expect("all are free");
            set.put(black_box(tag));
            continue;
        }
        set.try_get_many(batch, &mut hint, &mut |tag| taken.push(tag));
        set.put_many(black_box(&mut taken).drain(..));
    }
}

/// A kind of work: name, description of one unit, and a function that does a number of units.
type Work = (&'static str, &'static str, fn(u64));
const KINDS: [Work; 26] = [
    ("singly", "an I/O, one at a time", |nr| Load::new("null:1G").singly(nr)),
    ("batches", "an I/O, in batches of 32", |nr| Load::new("null:1G").batches(nr)),
    ("watched", "an I/O of an event loop, one at a time", |nr| Load::new("null:1G").watched(nr)),
    ("merges", "an I/O, 16 merged to one", |nr| Load::new("null:1G").merges(nr)),
    ("no-stats", "an I/O, one at a time, iostats=off", |nr| {
        Load::new("null:1G?iostats=off").singly(nr);
    }),
    ("traced", "an I/O, one at a time, traced", |nr| traced(|mut load| load.singly(nr))),
    ("traced-batches", "an I/O, in batches of 32, traced", |nr| {
        traced(|mut load| load.batches(nr))
    }),
    ("backend", "an I/O on a back end, one at a time", |nr| Load::on_backend().singly(nr)),
    ("backend-batches", "an I/O on a back end, in batches of 32", |nr| {
        Load::on_backend().batches(nr);
    }),
    ("backend-merges", "an I/O on a back end, 16 merged to one", |nr| {
        Load::on_backend().merges(nr);
    }),
    ("driver", "an I/O on a custom driver, one at a time", |nr| Load::on_driver().singly(nr)),
    ("driver-batches", "an I/O on a custom driver, in batches of 32", |nr| {
        Load::on_driver().batches(nr);
    }),
    ("one-context", "an I/O in a context that threads share, one at a time", |nr| {
        Load::new(ONE).singly(nr);
    }),
    ("one-context-batches", "an I/O in such a context, in batches of 32", |nr| {
        Load::new(ONE).batches(nr);
    }),
    ("one-context-merges", "an I/O in such a context, 16 merged to one", |nr| {
        Load::new(ONE).merges(nr);
    }),
    ("mq-deadline", "an I/O with mq-deadline, one at a time", |nr| Load::new(SORTED).singly(nr)),
    ("mq-deadline-batches", "an I/O with mq-deadline, in batches of 32", |nr| {
        Load::new(SORTED).batches(nr);
    }),
    ("mq-deadline-merges", "an I/O with mq-deadline, 16 merged to one", |nr| {
        Load::new(SORTED).merges(nr);
    }),
    ("limited", "an I/O of an owner with a limit, one at a time", |nr| {
        Load::limited("null:1G").singly(nr);
    }),
    ("limited-batches", "an I/O of an owner with a limit, in batches of 32", |nr| {
        Load::limited("null:1G").batches(nr);
    }),
    ("observed", "an I/O of an owner that is watched, one at a time", |nr| {
        Load::observed().singly(nr);
    }),
    ("observed-batches", "an I/O of an owner that is watched, in batches of 32", |nr| {
        Load::observed().batches(nr);
    }),
    ("weighted", "an I/O of an owner with a weight, one at a time", |nr| {
        Load::weighted(ONE).singly(nr);
    }),
    ("weighted-batches", "an I/O of an owner with a weight, in batches of 32", |nr| {
        Load::weighted(ONE).batches(nr);
    }),
    ("tag", "a tag taken and given back", |nr| tags(1, nr)),
    ("tags", "a tag taken and given back, 16 at once", |nr| tags(16, nr)),
];

/// Runs a load whose disk is traced. The files are removed.
fn traced(work: impl FnOnce(Load)) {
    let dir = std::env::temp_dir().join(format!("forebay-cost-{}", std::process::id()));
    let disk = Disk::open("null:1G").expect("null is always there");
    let trace = forebay::Trace::create(&dir).expect("an empty directory");
    trace.add(&disk).expect("it is not traced");
    work(Load::on(&disk));
    let stats = trace.finish().expect("the files are written");
    println!("{} records, {} lost", stats.records, stats.lost);
    std::fs::remove_dir_all(&dir).expect("they are removed");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(kind) = arguments.next() {
        let known = KINDS.iter().find(|(name, ..)| *name == kind);
        let names = KINDS.map(|(name, ..)| name).join(", ");
        let (_, _, work) = known.unwrap_or_else(|| panic!("{kind}: expected one of {names}"));
        return work(arguments.next().map_or(1_000_000, |nr| nr.parse().expect("a number")));
    }
    // The minimum of several runs, because other processes use the machine too.
    let (nr_runs, nr_each) = match cfg!(debug_assertions) {
        true => {
            println!("Debug build: the times mean little. Use --profile dist.");
            (1, 20_000)
        }
        false => (7, 300_000),
    };
    for (name, what, work) in KINDS {
        let time = |nr: u64| {
            let begin = Instant::now();
            work(nr);
            begin.elapsed().as_nanos() as f64 / nr as f64
        };
        let best = (0..nr_runs).map(|_| time(nr_each)).fold(f64::INFINITY, f64::min);
        println!("{best:7.1} ns  {name:15} {what}");
    }
}
