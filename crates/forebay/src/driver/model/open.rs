//! Opening a modelled device from a spec.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::device::device;
use super::queue::{ModelQueue, ModelWait};
use super::state::State;
use super::store::Store;
use crate::claim::Claim;
use crate::driver::contract::{Driver, DriverDevice, Facts, Wait};
use crate::driver::timer::Timer;
use crate::driver::{Mode, Opened, take_block};
use crate::error::{OpenError, SpecError};
use crate::extent::Extents;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::scheduler_below::SchedulerBelow;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::{BlockStatus, QueueLimits, SchedulerPolicy};
use forebay_model::machines::Preset;
use forebay_model::{ConfiguredMachine, Machine, ModelFile, Random};
use std::io;
use std::sync::Arc;

/// The reason for one hardware context if a flush needs an idle device: each context holds only its
/// own requests meanwhile.
const ONE_HW_QUEUE: &str = "1, because the device accepts a flush only while it is idle";

#[derive(Debug)]
struct ModelDriver {
    limits: QueueLimits,
    state: Arc<State>,
    /// `None` with `data=off`.
    store: Option<Arc<Store>>,
}

pub(in crate::driver) fn open(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let ConfiguredMachine { preset, values, capacity_bytes } = device(spec)?;
    let summary = match ModelFile::is_path(spec.target()) {
        true => format!("the family {} of {}", preset.name, spec.target()),
        false => preset.summary.to_owned(),
    };
    let block = take_block(keys)?;
    let capacity = take_size(keys, capacity_bytes, u64::from(block))?;
    let (machine, constants) = take_machine(keys, preset, values, capacity)?;
    let seed = keys.take_number("seed", "a number", 0..=u64::MAX)?.unwrap_or(1);
    let keeps_data = keys.take_switch("data")?.unwrap_or(true);
    let store = keeps_data.then(|| Store::new(capacity).map(Arc::new)).transpose();
    let store = store.map_err(|source| OpenError::NoMemory {
        driver: "model",
        len: capacity,
        source,
        hint: "; data=off needs none",
    })?;
    let limits = preset.limits(capacity, block);
    let defaults = Defaults {
        service: true,
        scheduler: SchedulerPolicy::default_of(&limits),
        queue_depth: Some(preset.queue_depth),
        // Off, though it would be correct: a device of the experiments had no such function.
        elide: false,
        one_hw_queue: (!preset.flush_queueable).then_some(ONE_HW_QUEUE),
        hw_queues_max: None,
        below: SchedulerBelow::Nothing,
    };
    let [flush, fua] = features_of_cache(preset);
    // Without a cache, nothing is published about operations that move no data.
    let cost = if preset.volatile_cache { "takes a command's time" } else { "takes no time" };
    let features = vec![
        Feature::present("model", format!("{summary}; {constants}")),
        Feature::either(
            "data",
            keeps_data,
            "in memory, which is allocated on the first write",
            "data=off: reads leave their buffers as they are",
        ),
        match settings.service(defaults) {
            true => Feature::present("service", "a thread of the disk completes I/O"),
            false => Feature::missing("service", "service=off: waiting threads complete I/O"),
        },
        Feature::present("discard", format!("{cost}; up to 256 ranges in one request")),
        Feature::present("write_zeroes", cost),
        flush,
        fua,
    ];
    let state = Arc::new(State::new(machine, Random::new(seed, 0)));
    let device = Arc::new(DriverDevice::new(ModelDriver { limits, state, store }));
    let facts = device.facts().disk;
    Ok(Opened { device, facts, features, notice: None, defaults, claim: Claim::memory() })
}

/// Returns the features that concern durability.
fn features_of_cache(preset: &Preset) -> [Feature; 2] {
    if !preset.volatile_cache {
        return [
            Feature::missing("flush", "there is no cache; a flush ends at once"),
            Feature::missing("fua", "there is no cache, so FUA changes nothing"),
        ];
    }
    let flush = match preset.flush_queueable {
        true => "a volatile cache; a flush may run beside other requests",
        false => "a volatile cache; a flush runs alone, and other requests are refused as busy",
    };
    [Feature::present("flush", flush), Feature::missing("fua", "a flush follows the write")]
}

/// Takes the key `size`, or the device's own size, in whole blocks.
fn take_size(keys: &mut Keys, own: u64, block: u64) -> Result<u64, SpecError> {
    let max = i64::MAX as u64;
    let expected = "a size above 0, in whole logical blocks";
    let given = keys.take("size", expected, |value| {
        forebay_core::parse_size(value).filter(|&len| (1..=max).contains(&len) && len % block == 0)
    })?;
    Ok(given.unwrap_or(own))
}

/// Creates the machine with this size and these constants, except those that keys set. Returns it
/// and all constants as text.
fn take_machine(
    keys: &mut Keys,
    preset: &Preset,
    mut values: Vec<u64>,
    capacity: u64,
) -> Result<(Box<dyn Machine>, String), SpecError> {
    let mut texts = Vec::with_capacity(values.len());
    for (parameter, value) in preset.parameters.iter().zip(&mut values) {
        let range = parameter.min..=parameter.max;
        let given = keys.take_number(parameter.name, parameter.expected, range)?;
        *value = given.unwrap_or(*value);
        texts.push(format!("{}={value}", parameter.name));
    }
    Ok((preset.machine_of(&values, capacity), texts.join(", ")))
}

// SAFETY: the machine has each command once (K5). Its data moves when it is queued (K6).
unsafe impl Driver for ModelDriver {
    type Queue = ModelQueue;

    fn facts(&self) -> Facts {
        let keeps_data = self.store.is_some();
        let disk = DiskFacts { keeps_data, zeroes_fast: true, ..DiskFacts::default() };
        Facts { disk, ..Facts::new("model", self.limits) }
    }

    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        if let Some(store) = &self.store {
            store.block_status(offset, extents);
        }
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(ModelQueue, Wait)> {
        let timer = Arc::new(Timer::punctual());
        let queue = self.state.add_queue(Arc::clone(&timer), depth);
        let wait = ModelWait { state: Arc::clone(&self.state), queue, timer: Arc::clone(&timer) };
        let (state, store) = (Arc::clone(&self.state), self.store.clone());
        Ok((ModelQueue { state, store, queue, timer }, Wait::Blocking(Arc::new(wait))))
    }
}
