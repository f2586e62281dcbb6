//! Random streams of bios: the adaptive hold agrees with a model that lists the held bios.

use forebay_core::{Bio, BioFlags, Hold, HoldLimits, HoldStep, Op};
use proptest::prelude::*;

const BLOCK: u64 = 4096;

/// The rules I7 to I9, by the list of the held bios: the length of each, and when it came.
#[derive(Debug)]
struct Model {
    limits: HoldLimits,
    before: Option<Bio>,
    held: Vec<(u64, u64)>,
}

impl Model {
    /// Returns the largest group with so many other bios outstanding.
    fn group(&self, outstanding: u32) -> usize {
        self.limits.bios_max.min((outstanding + 1) / self.limits.groups) as usize
    }

    /// I7.
    fn continues(&self, bio: &Bio) -> bool {
        let Some(before) = &self.before else { return false };
        let may_be_held = match bio.op {
            Op::Read => true,
            Op::Write => self.limits.writes,
            _ => false,
        };
        may_be_held
            && bio.flags == BioFlags::NONE
            && (before.op, before.end()) == (bio.op, Some(bio.start))
    }

    /// I8 for a bio that continues the stream, if no other one is held.
    fn waits(&self, outstanding: u32, in_flight: u32) -> bool {
        outstanding >= self.limits.outstanding_min && in_flight > 0 && self.group(outstanding) > 1
    }

    /// I9.
    fn is_full(&self, outstanding: u32, now: u64) -> bool {
        let nr_bytes: u64 = self.held.iter().map(|(len, _)| len).sum();
        let age = now - self.held.first().map_or(now, |(_, came)| *came);
        self.held.len() >= self.group(outstanding)
            || nr_bytes >= self.limits.bytes_max
            || age >= self.limits.time_ns
    }

    fn next(&mut self, bio: &Bio, outstanding: u32, in_flight: u32, now: u64) -> HoldStep {
        let continues = self.continues(bio);
        self.before = Some(bio.clone());
        let (is_any_held, waits) = (!self.held.is_empty(), self.waits(outstanding, in_flight));
        let hold = continues && (waits || is_any_held);
        if hold {
            self.held.push((bio.len, now));
        }
        let release_after = hold && (!waits || self.is_full(outstanding, now));
        if release_after || !hold {
            self.held.clear();
        }
        HoldStep { release_before: is_any_held && !continues, hold, release_after }
    }
}

/// A step of a submitter and its disk.
#[derive(Clone, Debug)]
enum Step {
    /// A bio, of another operation than the one before it if that is given. It begins so many
    /// blocks after the end of the one before, or before that end.
    Submit {
        op: Option<Op>,
        flags: BioFlags,
        jump: i64,
        nr_blocks: u64,
        outstanding: u32,
        in_flight: u32,
    },
    /// The user passes the held bios on.
    Release,
    /// Time passes.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let other = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Flush), Just(Op::Discard)];
    // Mostly that of the bio before, so that streams are long.
    let op = prop_oneof![20 => Just(None), 2 => other.prop_map(Some)];
    let flags = prop_oneof![
        20 => Just(BioFlags::NONE), 1 => Just(BioFlags::NOMERGE), 1 => Just(BioFlags::FUA),
        1 => Just(BioFlags::NOWAIT), 1 => Just(BioFlags::PREFLUSH),
    ];
    let jump = prop_oneof![15 => Just(0), 1 => -3i64..4];
    let nr_blocks = prop_oneof![8 => 1..4u64, 1 => 60..70u64];
    let in_flight = prop_oneof![1 => Just(0), 6 => 1..9u32];
    let submit = (op, flags, jump, nr_blocks, 0..80u32, in_flight);
    let submit = submit.prop_map(|(op, flags, jump, nr_blocks, outstanding, in_flight)| {
        Step::Submit { op, flags, jump, nr_blocks, outstanding, in_flight }
    });
    prop_oneof![20 => submit, 1 => Just(Step::Release), 4 => (0..90u64).prop_map(Step::Pass)]
}

fn limits() -> impl Strategy<Value = HoldLimits> {
    let limits = (0..6u32, 1..20u32, 1..9u32, 1..200u64, 1..300u64, any::<bool>());
    limits.prop_map(|(outstanding_min, bios_max, groups, nr_blocks, time_ns, writes)| HoldLimits {
        outstanding_min,
        bios_max,
        groups,
        bytes_max: nr_blocks * BLOCK,
        time_ns,
        writes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn hold_decides_as_a_list_of_held_bios(
        limits in limits(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut hold = Hold::new(limits);
        let mut model = Model { limits, before: None, held: Vec::new() };
        let (mut op, mut end, mut now) = (Op::Read, 1u64 << 20, 0u64);
        for step in steps {
            match step {
                Step::Submit { op: next, flags, jump, nr_blocks, outstanding, in_flight } => {
                    op = next.unwrap_or(op);
                    let start = end.saturating_add_signed(jump * BLOCK as i64);
                    let bio = Bio { flags, ..Bio::range(op, start, nr_blocks * BLOCK) };
                    end = start + bio.len;
                    let found = hold.next(&bio, outstanding, in_flight, now);
                    prop_assert_eq!(found, model.next(&bio, outstanding, in_flight, now));
                }
                Step::Release => {
                    hold.release();
                    model.held.clear();
                }
                Step::Pass(ns) => now += ns,
            }
            let deadline = model.held.first().map(|(_, came)| came + limits.time_ns);
            prop_assert_eq!(hold.nr_held() as usize, model.held.len());
            prop_assert_eq!(hold.deadline(), deadline);
        }
    }
}
