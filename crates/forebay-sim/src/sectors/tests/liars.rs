//! Long logs of several clients. A correct disk must pass; a disk with one kind of fault must fail
//! within some seeds, by the right rule.

use crate::sectors::{Crash, End, Kind, Op, Rule, Sectors, Stamp, Value};
use forebay_model::Random;

const NR_SECTORS: u64 = 8;
const NR_CLIENTS: u16 = 4;
const NR_OPS_EACH: u64 = 100;
/// How often a faulty disk misbehaves: once in so many chances.
const RARITY: u64 = 20;
/// Within how many seeds a fault must be found.
const NR_SEEDS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    StaleRead,
    LostWrite,
    TornRead,
    TornWrite,
    NeverWritten,
    MisdirectedRead,
    MisdirectedWrite,
    LateWrite,
    RefusedWrite,
    RefusedZero,
    LostZero,
    FlushNothing,
    FlushEarlier,
    IgnoreFua,
    LostInServer,
}

const LIES: [(Lie, Rule); 15] = [
    (Lie::StaleRead, Rule::Fresh),
    (Lie::LostWrite, Rule::Fresh),
    (Lie::TornRead, Rule::Whole),
    (Lie::TornWrite, Rule::Whole),
    (Lie::NeverWritten, Rule::Written),
    (Lie::MisdirectedRead, Rule::Whole),
    (Lie::MisdirectedWrite, Rule::Whole),
    (Lie::LateWrite, Rule::Fresh),
    (Lie::RefusedWrite, Rule::Written),
    (Lie::RefusedZero, Rule::Fresh),
    (Lie::LostZero, Rule::Fresh),
    (Lie::FlushNothing, Rule::Durable),
    (Lie::FlushEarlier, Rule::Durable),
    (Lie::IgnoreFua, Rule::Durable),
    (Lie::LostInServer, Rule::Fresh),
];

/// The values of a sector since it was last durable.
#[derive(Clone, Debug)]
struct Cell(Vec<Value>);

impl Cell {
    fn now(&self) -> Value {
        self.0[self.0.len() - 1]
    }

    fn settle(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }
}

/// A disk whose operations take effect at one moment each.
struct Disk {
    cells: Vec<Cell>,
    /// The first value written to each sector, for stale reads.
    old: Vec<Value>,
    random: Random,
    lie: Option<Lie>,
}

impl Disk {
    fn lies(&mut self, lie: Lie) -> bool {
        self.lie == Some(lie) && self.random.below(RARITY) == 0
    }

    fn put(&mut self, sector: u64, value: Value, fua: bool) {
        let cell = &mut self.cells[sector as usize];
        let torn = if let (Value::Stamp(_), Value::Stamp(_)) = (cell.now(), value) {
            Value::Torn
        } else {
            value
        };
        cell.0.push(value);
        let ignores = self.lie == Some(Lie::IgnoreFua);
        let is_torn = self.lies(Lie::TornWrite);
        let cell = &mut self.cells[sector as usize];
        if is_torn {
            cell.0.push(torn);
        }
        if fua && !ignores {
            cell.settle();
        }
    }

    fn get(&mut self, sector: u64) -> Value {
        let now = self.cells[sector as usize].now();
        if self.lies(Lie::StaleRead) {
            return self.old[sector as usize];
        }
        if self.lies(Lie::TornRead) {
            return Value::Torn;
        }
        if self.lies(Lie::NeverWritten) {
            return Value::Stamp(Stamp::new(NR_CLIENTS, 1));
        }
        match now {
            Value::Stamp(stamp) if self.lies(Lie::MisdirectedRead) => {
                Value::Misdirected(stamp, sector ^ 1)
            }
            now => now,
        }
    }

    fn write(&mut self, op: &Op, sector: u64) {
        let (value, fua) = match &op.kind {
            Kind::Write { stamp, fua, .. } => (Value::Stamp(*stamp), *fua),
            Kind::Zero { fua, .. } => (Value::Zero, *fua),
            Kind::Trim { .. } if self.random.below(2) == 0 => (Value::Zero, false),
            _ => return,
        };
        let lost = if value == Value::Zero { Lie::LostZero } else { Lie::LostWrite };
        if self.lies(lost) {
            return;
        }
        if let Value::Stamp(stamp) = value
            && self.lies(Lie::MisdirectedWrite)
        {
            return self.put(sector ^ 1, Value::Misdirected(stamp, sector), fua);
        }
        self.put(sector, value, fua);
        if self.old[sector as usize] == Value::Zero {
            self.old[sector as usize] = value;
        }
    }
}

/// The requests of all clients: each operation, with the time at which the disk does it.
fn asked(random: &mut Random) -> Vec<(u64, Op)> {
    let mut asked = Vec::new();
    for client in 0..NR_CLIENTS {
        let mut now = 1;
        for sequence in 0..NR_OPS_EACH {
            let began = now + random.below(10);
            let at = began + random.below(30);
            let ended = at + random.below(30);
            now = ended + 1;
            let nr_sectors = 1 + random.below(3);
            let stamp = Stamp::new(client, sequence);
            let kind = match random.below(16) {
                0 => Kind::Flush,
                1 => Kind::Zero { nr_sectors, fua: random.below(4) == 0 },
                2 => Kind::Trim { nr_sectors },
                3..=8 => Kind::Read(vec![Value::Zero; nr_sectors as usize]),
                _ => Kind::Write { stamp, nr_sectors, fua: random.below(4) == 0 },
            };
            let end = match random.below(12) {
                0 => End::Refused,
                1 => End::Unknown,
                _ => End::Ok(ended),
            };
            let first = random.below(NR_SECTORS - nr_sectors);
            asked.push((at, Op { kind, first, began, end }));
        }
    }
    asked.sort_by_key(|(at, _)| *at);
    asked
}

/// Runs the requests. Returns the log, and the values that a crash leaves.
fn run(seed: u64, lie: Option<Lie>, crash: Crash) -> (Vec<Op>, Vec<Value>) {
    let mut random = Random::new(seed, 0);
    let mut asked = asked(&mut random);
    let cells = vec![Cell(vec![Value::Zero]); NR_SECTORS as usize];
    let old = vec![Value::Zero; NR_SECTORS as usize];
    let mut disk = Disk { cells, old, random, lie };
    for nth in 0..asked.len() {
        let op = asked[nth].1.clone();
        step(&mut disk, &mut asked[nth].1, &op);
        if nth >= 40 && disk.lies(Lie::LateWrite) {
            // An operation of long ago is done again.
            let before = asked[nth - 40].1.clone();
            op_sectors(&before).for_each(|sector| disk.write(&before, sector));
        }
    }
    let found = disk.cells.iter().map(|cell| match crash {
        Crash::Server if lie == Some(Lie::LostInServer) => cell.0[0],
        Crash::Server => cell.now(),
        Crash::Power => cell.0[disk.random.below(cell.0.len() as u64) as usize],
    });
    let found = found.collect();
    (asked.into_iter().map(|(_, op)| op).collect(), found)
}

fn op_sectors(op: &Op) -> std::ops::Range<u64> {
    if op.end == End::Refused { 0..0 } else { op.sectors() }
}

fn step(disk: &mut Disk, told: &mut Op, op: &Op) {
    let is_zero = matches!(op.kind, Kind::Zero { .. });
    let does_refused = match op.end {
        End::Refused => disk.lies(if is_zero { Lie::RefusedZero } else { Lie::RefusedWrite }),
        End::Unknown => disk.random.below(2) == 0,
        End::Ok(_) => true,
    };
    if !does_refused {
        return;
    }
    match &mut told.kind {
        Kind::Flush => {
            let lies = disk.lie == Some(Lie::FlushNothing);
            let skips = disk.lie == Some(Lie::FlushEarlier);
            for cell in disk.cells.iter_mut().skip(usize::from(skips)).filter(|_| !lies) {
                cell.settle();
            }
        }
        Kind::Read(values) => {
            for (nth, value) in values.iter_mut().enumerate() {
                *value = disk.get(op.first + nth as u64);
            }
        }
        _ => op.sectors().for_each(|sector| disk.write(op, sector)),
    }
}

fn check(seed: u64, lie: Option<Lie>) -> Option<Rule> {
    let crash = if lie == Some(Lie::LostInServer) { Crash::Server } else { Crash::Power };
    let (ops, found) = run(seed, lie, crash);
    let mut sectors = Sectors::new(NR_SECTORS);
    sectors.crash(&ops, crash, &found).err().map(|anomaly| anomaly.rule)
}

#[test]
fn correct_disk_is_accepted() {
    for seed in 0..300 {
        assert_eq!(check(seed, None), None, "seed {seed}");
        let (ops, found) = run(seed, None, Crash::Server);
        let said = Sectors::new(NR_SECTORS).crash(&ops, Crash::Server, &found);
        assert!(said.is_ok(), "seed {seed}: {said:?}");
        let tally = Sectors::new(NR_SECTORS).check(&ops).expect("it was believed");
        assert!(tally.racing_reads > 30, "{tally:?}");
    }
}

#[test]
fn each_lie_is_caught_and_named() {
    for (lie, rule) in LIES {
        let mut said = (0..NR_SEEDS).filter_map(|seed| check(seed, Some(lie)));
        assert!(said.any(|said| said == rule), "{lie:?} is not caught as {rule:?}");
    }
}
