//! The tables and keys of a scenario file. Unknown ones are errors.

use std::collections::BTreeMap;

use forebay_sim::{BadPriority, Gate, Op, Priority, parse_size, parse_time_ns};
use serde::Deserialize;
use toml::{Spanned, Value};

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The first seed.
    pub(super) seed: Option<u64>,
    /// The number of seeds.
    pub(super) seeds: Option<Number<1, { u32::MAX }>>,
    /// Fault rules of the device.
    #[serde(default)]
    pub(super) faults: Vec<Spanned<String>>,
    /// Times at which the writes are counted that a power failure could undo.
    #[serde(default)]
    pub(super) crash_points: Vec<Time>,
    /// The device, its size, and settings of the layer.
    #[serde(default)]
    pub(super) disk: BTreeMap<Spanned<String>, Spanned<Value>>,
    /// The device is a file.
    pub(super) file: Option<FileTable>,
    #[serde(default)]
    pub(super) interleaving: InterleavingTable,
    #[serde(default, rename = "task")]
    pub(super) tasks: Vec<Task>,
    #[serde(default, rename = "event")]
    pub(super) events: Vec<Spanned<Event>>,
}

/// How the device behaves as a file. Rates are per 1000 events of the device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTable {
    pub(super) page_cache: bool,
    #[serde(default)]
    pub(super) write_back_errors: Number<0, 1000>,
    #[serde(default)]
    pub(super) foreign_syncs: Number<0, 1000>,
}

/// How tasks are interleaved. Rates are per 1024 steps.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterleavingTable {
    pub(super) switches: Option<Number<0, 1024>>,
    pub(super) naps: Option<Number<0, 1024>>,
    pub(super) step_ns: Option<Number<1, 1_000_000>>,
}

/// A task, or several equal ones. Rates are percentages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    #[serde(default = "one")]
    pub(super) count: Number<1, 256>,
    pub(super) bios: Number<1, 100_000_000>,
    pub(super) ops: Ops,
    pub(super) bios_per_s: Option<Number<1, 1_000_000_000>>,
    pub(super) area: Option<Size>,
    #[serde(default = "one")]
    pub(super) max_blocks: Number<1, 16384>,
    #[serde(default = "one")]
    pub(super) max_burst: Number<1, 4096>,
    #[serde(default)]
    pub(super) sequential: Percent,
    #[serde(default)]
    pub(super) fua: Percent,
    #[serde(default)]
    pub(super) preflush: Percent,
    #[serde(default)]
    pub(super) up_to: Percent,
    #[serde(default)]
    pub(super) nomerge: Percent,
    #[serde(default)]
    pub(super) nowait: Percent,
    #[serde(default)]
    pub(super) reserved: Percent,
    #[serde(default)]
    pub(super) background: Percent,
    pub(super) priority: Option<PriorityText>,
    #[serde(default)]
    pub(super) priorities: Percent,
    #[serde(default)]
    pub(super) segments: Percent,
    #[serde(default)]
    pub(super) open_plugs: Percent,
    #[serde(default)]
    pub(super) gates: Percent,
    #[serde(default)]
    pub(super) resizes: Percent,
    #[serde(default)]
    pub(super) reopens: Percent,
}

/// The weights of operations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ops {
    #[serde(default)]
    read: Weight,
    #[serde(default)]
    write: Weight,
    #[serde(default)]
    flush: Weight,
    #[serde(default)]
    discard: Weight,
    #[serde(default)]
    write_zeroes: Weight,
}

/// The weight of an operation.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "Value")]
struct Weight(u32);

impl TryFrom<Value> for Weight {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let weight = Percent::try_from(value).map_err(|_| "expected a weight from 0 to 100")?;
        Ok(Self(weight.0))
    }
}

impl Ops {
    /// Returns the weight of each operation.
    pub(super) fn weights(&self) -> Vec<(Op, u32)> {
        let Self { read, write, flush, discard, write_zeroes } = self;
        vec![
            (Op::Read, read.0),
            (Op::Write, write.0),
            (Op::Flush, flush.0),
            (Op::Discard, discard.0),
            (Op::WriteZeroes, write_zeroes.0),
        ]
    }
}

/// An event; one of the keys beside `at`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) at: Time,
    freeze: Option<Time>,
    quiesce: Option<Time>,
    stop: Option<Time>,
    pub(super) resize: Option<Number<1, { u32::MAX }>>,
    /// Settings of the scheduler.
    pub(super) set: Option<BTreeMap<String, Value>>,
}

impl Event {
    /// Returns the gates that the event closes, and for how long.
    pub(super) fn gates(&self) -> impl Iterator<Item = (Gate, Time)> {
        let gates = [
            (Gate::Frozen, self.freeze),
            (Gate::Quiesced, self.quiesce),
            (Gate::Stopped, self.stop),
        ];
        gates.into_iter().filter_map(|(gate, time)| Some((gate, time?)))
    }
}

/// A percentage.
pub(super) type Percent = Number<0, 100>;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Number<const MIN: u32, const MAX: u32>(pub(super) u32);

impl<const MIN: u32, const MAX: u32> TryFrom<Value> for Number<MIN, MAX> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
        let fits = number.filter(|number| (MIN..=MAX).contains(number));
        fits.map(Self).ok_or_else(|| format!("expected a whole number from {MIN} to {MAX}"))
    }
}

impl<const MAX: u32> Default for Number<0, MAX> {
    fn default() -> Self {
        Self(0)
    }
}

fn one<const MAX: u32>() -> Number<1, MAX> {
    Number(1)
}

/// A time with its unit, ns.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Time(pub(super) u64);

impl TryFrom<Value> for Time {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let time_ns = value.as_str().and_then(parse_time_ns);
        time_ns.map(Self).ok_or("expected a time with its unit, such as \"500us\"")
    }
}

/// A priority: a class, perhaps with a level.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct PriorityText(pub(super) Priority);

impl TryFrom<String> for PriorityText {
    type Error = BadPriority;

    fn try_from(text: String) -> Result<Self, BadPriority> {
        text.parse().map(Self)
    }
}

/// A size in bytes: a number, or text such as `64k`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Size(pub(super) u64);

impl TryFrom<Value> for Size {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let size = match value {
            Value::Integer(number) => u64::try_from(number).ok(),
            Value::String(text) => parse_size(&text),
            _ => None,
        };
        size.map(Self).ok_or("expected a number of bytes, or text such as \"64k\"")
    }
}
