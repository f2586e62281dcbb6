//! Counts of runs and turns, under both settings of `run_queue` (R6).

use crate::common::open;
use forebay::{Buf, Disk, DiskStats, EmulationStats, Io, Op};

/// Reads from several threads, `nr_reads` of 4 KiB each.
fn read(disk: &Disk, nr_threads: u64, nr_reads: u64) -> DiskStats {
    std::thread::scope(|scope| {
        for _ in 0..nr_threads {
            scope.spawn(|| {
                let mut queue = disk.queue();
                let mut done = Vec::new();
                for nth in 0..nr_reads {
                    queue.submit(Io::read(Buf::new(4096), nth % 16 * 8192)).expect("a good read");
                    queue.reap(usize::from(nth % 8 == 7), 64, &mut done);
                }
                queue.reap(queue.len(), usize::MAX, &mut done);
                assert_eq!(done.len() as u64, nr_reads);
            });
        }
    });
    disk.stats()
}

fn count(stats: &DiskStats, name: &str) -> u64 {
    stats.queue.emulation.get(name).expect(name)
}

#[test]
fn a_run_is_made_or_skipped_and_its_turns_are_counted_apart() {
    let disk = open("ram:1M?nr_hw_queues=1");
    let stats = read(&disk, 1, 100);
    assert_eq!(stats.skipped_runs, 0, "no other thread ran the context");
    assert_eq!(stats.runs(), stats.queue.runs_made);
    assert!(stats.queue.runs_made >= 100, "each read asks for one: {stats:?}");
    assert!(stats.queue.turns > stats.queue.empty_turns);
    disk.poll();
    let polled = disk.stats();
    assert_eq!(polled.runs(), stats.runs() + 1);
    assert_eq!(polled.queue.empty_turns, stats.queue.empty_turns + 1, "there was nothing to do");
    assert_eq!(polled.queue.turns, stats.queue.turns + 1);
}

#[test]
fn completions_queue_no_runs_by_default() {
    for spec in ["null:1M", "ram:1M?nr_hw_queues=1&run_queue=dedupe"] {
        let stats = read(&open(spec), 4, 100);
        assert_eq!(stats.queue.emulation, EmulationStats::default(), "{spec}");
    }
}

#[test]
fn under_always_each_completion_queues_a_run_and_the_counts_add_up() {
    for spec in ["null:1M?run_queue=always", "ram:1M?req_ns=2000&run_queue=always"] {
        let disk = open(spec);
        assert_eq!(disk.info().policy.nr_hw_queues, 1, "the worker runs the shared context");
        let held = disk.quiesce();
        drop(held);
        let stats = read(&disk, 4, 500);
        let arms = count(&stats, "run_arms");
        assert_eq!(arms, stats.queue.op(Op::Read).requests, "{spec}");
        let worker_runs = count(&stats, "worker_runs");
        let taken = count(&stats, "run_rearms") + count(&stats, "run_cancels") + worker_runs;
        assert!(taken == arms || taken + 1 == arms, "{spec}: {:?}", stats.queue.emulation);
        assert!(stats.runs() >= worker_runs, "{spec}: the worker's are among them");
    }
}

/// The worker performs the run that the last completion queued, although no thread waits.
#[test]
fn the_worker_makes_the_queued_calls() {
    let disk = open("ram:1M?run_queue=always");
    disk.write_at(&[1; 4096], 0).expect("a write");
    while count(&disk.stats(), "worker_runs") == 0 {
        std::thread::yield_now();
    }
    let stats = disk.stats();
    let counts = ["run_arms", "run_rearms", "worker_runs"].map(|name| count(&stats, name));
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn an_owned_context_is_run_by_its_owner_alone() {
    let disk = open("ram:1M?nr_hw_queues=2&run_queue=always");
    let stats = read(&disk, 1, 100);
    assert_eq!((count(&stats, "run_arms"), stats.skipped_runs), (0, 0));
    assert_eq!(stats.queue.op(Op::Read).bios, 100);
}
