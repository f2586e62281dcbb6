//! The cost of the token of a hardware context: I/O one by one through the core, on a driver that
//! does nothing, by one thread, with the token and without.
//!
//! `cargo run --profile dist -p forebay-core --example token -- [with|without] [NUMBER]` runs one
//! of the two; without arguments it times both in turn. `cargo xtask instructions` counts
//! instructions.

#![allow(clippy::vec_box, reason = "as in the crate")]
#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay_core::{
    Bio, Commit, Completions, DeviceState, Driver, Gates, HardwareContext, Issue, IssuedRequest,
    Op, Policy, QueueLimits, QueuedBio, Reap, RunState, Segment, SoftwareQueue, Tag, TagSet,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completes everything at once.
struct Null(Vec<(Tag, u64)>);

impl Driver for Null {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        self.0.push((rq.tag, rq.len));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        self.0.drain(..).for_each(|(tag, len)| done.push(tag, Ok(len)));
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {}
}

/// Sends bios through the core, one at a time.
struct Path {
    ctx: SoftwareQueue,
    hctx: HardwareContext,
    driver: Null,
    run: RunState,
    ended: Vec<Box<QueuedBio>>,
}

impl Path {
    fn new() -> Path {
        let limits = QueueLimits::default().capacity_bytes(Some(1 << 30));
        let policy = Policy::default().iostats(false);
        let device = Arc::new(DeviceState::new(1));
        let tags = Arc::new(TagSet::new(policy.queue_depth));
        Path {
            ctx: SoftwareQueue::new(limits, policy, Arc::default()),
            hctx: HardwareContext::new(limits, policy, 0, device, tags, Arc::default()),
            driver: Null(Vec::with_capacity(8)),
            run: RunState::new(),
            ended: Vec::with_capacity(8),
        }
    }

    fn turn(&mut self, gates: Gates) {
        let Path { ctx, hctx, driver, ended, .. } = self;
        ctx.outgoing().for_each(|rq| hctx.accept(rq, gates.enter));
        hctx.turn(driver, 0, gates, Commit::Now, ended);
    }

    /// One I/O: issued in one turn, reaped in the next.
    fn io(&mut self, mut queued: Box<QueuedBio>, with_token: bool) -> Box<QueuedBio> {
        queued.fill(Bio::data(Op::Read, 4096, Segment { addr: 4096, len: 4096 }));
        self.ctx.queue_bio(queued, 0, 0).expect("a good bio");
        for _ in 0..2 {
            if !with_token {
                self.turn(Gates::OPEN);
                continue;
            }
            assert!(self.run.try_take());
            self.turn(self.run.gates());
            assert!(self.run.release());
        }
        self.ended.pop().expect("it has ended")
    }

    fn ios(&mut self, nr: u64, with_token: bool) {
        let mut queued = QueuedBio::new(0, 0);
        for _ in 0..nr {
            queued = black_box(self.io(black_box(queued), with_token));
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let nr = arguments.get(1).map_or(2_000_000, |nr| nr.parse().expect("a number"));
    let mut path = Path::new();
    match arguments.first().map(String::as_str) {
        Some("with") => path.ios(nr, true),
        Some("without") => path.ios(nr, false),
        Some(other) => panic!("{other}: expected `with` or `without`, and a number"),
        None => {
            for round in 1..=5 {
                let ns = [false, true].map(|with_token| {
                    let begin = Instant::now();
                    path.ios(nr, with_token);
                    begin.elapsed().as_nanos() as f64 / nr as f64
                });
                println!(
                    "round {round}: {:.1} ns an I/O without the token, {:.1} with: {:+.1}",
                    ns[0],
                    ns[1],
                    ns[1] - ns[0]
                );
            }
        }
    }
}
