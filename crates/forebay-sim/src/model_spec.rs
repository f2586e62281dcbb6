//! Models by name: `fixed:latency_ns=80000,channels=8` or `flaky:fail=1000`.

use forebay_core::BlockStatus;
use forebay_model::{Faults, Fixed, Flaky, Model};
use std::str::FromStr;

/// A model, as its user wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// See [`Fixed`].
    Fixed {
        /// The latency of a command, ns.
        latency_ns: u64,
        /// How many commands it works on at once.
        channels: u32,
    },
    /// See [`Flaky`].
    Flaky {
        /// The shortest latency, ns.
        min_ns: u64,
        /// The mean of what comes on top of it, ns.
        mean_ns: u64,
        /// The faults.
        faults: Faults,
    },
}

impl Default for ModelSpec {
    /// Eight channels of 80 us.
    fn default() -> ModelSpec {
        ModelSpec::Fixed { latency_ns: 80_000, channels: 8 }
    }
}

/// What `flaky` does if nothing more is said.
const FLAKY: ModelSpec = ModelSpec::Flaky {
    min_ns: 20_000,
    mean_ns: 60_000,
    faults: Faults {
        fail: 1_000,
        statuses: 1 << BlockStatus::Io as u16 | 1 << BlockStatus::Medium as u16,
        offline: 0,
        refuse: 0,
        busy: 10_000,
        short: 10_000,
        none: 0,
        bad_block: 10,
        straggler: 1_000,
    },
};

impl ModelSpec {
    /// The model, of a device of this logical block size.
    pub(crate) fn build(&self, logical_block_size: u32) -> Box<dyn Model> {
        match *self {
            ModelSpec::Fixed { latency_ns, channels } => Box::new(Fixed::new(latency_ns, channels)),
            ModelSpec::Flaky { min_ns, mean_ns, faults } => {
                Box::new(Flaky::new(logical_block_size, min_ns, mean_ns, faults))
            }
        }
    }

    fn set(&mut self, key: &str, value: u64) -> Result<(), String> {
        let small = || u32::try_from(value).map_err(|_| format!("{key}={value} is too large"));
        match self {
            ModelSpec::Fixed { latency_ns, channels } => match key {
                "latency_ns" => *latency_ns = value,
                "channels" if value == 0 => return Err("channels=0: there must be one".to_owned()),
                "channels" => *channels = small()?,
                _ => return Err(format!("fixed takes latency_ns and channels, not {key}")),
            },
            ModelSpec::Flaky { min_ns, mean_ns, faults } => match key {
                "min_ns" => *min_ns = value,
                "mean_ns" => *mean_ns = value,
                "fail" => faults.fail = small()?,
                "offline" => faults.offline = small()?,
                "refuse" => faults.refuse = small()?,
                "busy" => faults.busy = small()?,
                "short" => faults.short = small()?,
                "none" => faults.none = small()?,
                "bad_block" => faults.bad_block = small()?,
                "straggler" => faults.straggler = small()?,
                _ => {
                    return Err(format!(
                        "flaky takes min_ns, mean_ns, and, per million, fail, offline, refuse, \
                         busy, short, none, bad_block and straggler, not {key}"
                    ));
                }
            },
        }
        Ok(())
    }
}

impl FromStr for ModelSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelSpec, String> {
        let (name, keys) = text.split_once(':').unwrap_or((text, ""));
        let mut model = match name {
            "fixed" => ModelSpec::default(),
            "flaky" => FLAKY,
            _ => return Err(format!("there is no model '{name}'; there are fixed and flaky")),
        };
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("'{pair}' is not key=value"));
            };
            let value = value.parse().map_err(|_| format!("{key}={value}: not a whole number"))?;
            model.set(key, value)?;
        }
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_with_what_differs() {
        let expected = ModelSpec::Fixed { latency_ns: 5, channels: 8 };
        assert_eq!("fixed:latency_ns=5".parse(), Ok(expected));
        assert_eq!("fixed".parse(), Ok(ModelSpec::default()));
        assert_eq!("flaky".parse(), Ok(FLAKY));
        for wrong in ["", "hdd", "fixed:channels=0", "fixed:fail=1", "flaky:fail", "flaky:fail=x"] {
            assert!(wrong.parse::<ModelSpec>().is_err(), "{wrong}");
        }
    }
}
