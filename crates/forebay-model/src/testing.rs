//! Loads in virtual time, shared by the tests of machines.

use crate::{Command, Done, Machine, Random};
use alloc::vec;
use alloc::vec::Vec;
use forebay_core::Op;

pub(crate) const READ: Command = Command { op: Op::Read, start: 0, len: 4096 };

/// Runs a machine until all of its commands are done.
pub(crate) fn finish(machine: &mut dyn Machine, random: &mut Random) -> Vec<Done> {
    let mut done = Vec::new();
    while let Some(at) = machine.next_at_ns() {
        let next = machine.take_done(at, random).expect("it said that one is done");
        assert_eq!(next.done_at_ns, at);
        done.push(next);
    }
    done
}

/// Keeps `depth` random reads in flight, each in requests of at most `part` bytes, until `nr_ios`
/// are done. Returns the number of reads per second.
pub(crate) fn closed_loop(
    machine: &mut dyn Machine,
    depth: u32,
    len: u64,
    part: u64,
    nr_ios: u64,
) -> u64 {
    closed_loop_thinking(machine, depth, len, part, nr_ios, 0)
}

/// As [`closed_loop`], but each I/O takes a turn at a processor for `cpu_ns` before its submission.
pub(crate) fn closed_loop_thinking(
    machine: &mut dyn Machine,
    depth: u32,
    len: u64,
    part: u64,
    nr_ios: u64,
    cpu_ns: u64,
) -> u64 {
    let (mut places, mut random) = (Random::new(11, 0), Random::new(11, 1));
    let mut left = vec![0; depth as usize];
    // When I/Os are submitted, in order, with the slot of each.
    let mut ready: Vec<(u64, u32)> = Vec::new();
    let mut free_at = 0;
    let mut think = |ready: &mut Vec<(u64, u32)>, now: u64, io: u32| {
        free_at = now.max(free_at) + cpu_ns;
        ready.push((free_at, io));
    };
    (0..depth).for_each(|io| think(&mut ready, 0, io));
    let (mut now, mut nr_done) = (0, 0);
    while nr_done < nr_ios {
        let next = machine.next_at_ns();
        if let Some(&(at, io)) = ready.first().filter(|(at, _)| next.is_none_or(|it| *at <= it)) {
            ready.remove(0);
            now = at;
            let start = places.below(1 << 20) * len;
            left[io as usize] = len / part;
            for nth in 0..len / part {
                let command = Command { op: Op::Read, start: start + nth * part, len: part };
                machine.begin(io, &command, now, &mut random);
            }
            continue;
        }
        now = next.expect("some are under way");
        let done = machine.take_done(now, &mut random).expect("it said that one is done");
        assert_eq!((done.done_at_ns, done.result), (now, Ok(part)));
        left[done.id as usize] -= 1;
        if left[done.id as usize] == 0 {
            nr_done += 1;
            think(&mut ready, now, done.id);
        }
    }
    (u128::from(nr_done) * 1_000_000_000 / u128::from(now)) as u64
}
