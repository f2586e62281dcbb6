//! The settings of `forebay run --policy`, which the library reads from its environment.

use forebay_core::{HoldLimits, Knob, Policy};

/// The environment variable with settings of the layer, such as `nomerges=2&plug=none`.
pub const POLICY_VARIABLE: &str = "FOREBAY_RUN_POLICY";

/// The settings that have an effect here.
pub const SETTINGS: [&str; 8] = [
    "plug",
    "nomerges",
    "hold",
    "hold_outstanding",
    "hold_bios",
    "hold_groups",
    "hold_us",
    "join_syncs",
];

/// Whether the calls of `fsync` and `fdatasync` by several threads share syncs of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinSyncs {
    /// No thread shares.
    Off,
    /// Threads share where that is faster.
    Adaptive,
    /// Threads always share.
    On,
}

/// Settings of the layer.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    policy: Policy,
    hold: Option<HoldLimits>,
    join_syncs: JoinSyncs,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            hold: Some(HoldLimits::default()),
            join_syncs: JoinSyncs::Adaptive,
        }
    }
}

impl Settings {
    /// Sets one of the [`SETTINGS`].
    ///
    /// # Errors
    /// Fails if the key is none of them, or if it does not take the value. Returns the keys or the
    /// values that it takes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key == "hold" {
            let limits = self.hold.unwrap_or_default();
            self.hold = match value {
                "adaptive" => Some(limits),
                "off" => None,
                _ => return Err("adaptive or off".to_owned()),
            };
            return Ok(());
        }
        if key == "join_syncs" {
            self.join_syncs = match value {
                "adaptive" => JoinSyncs::Adaptive,
                "on" => JoinSyncs::On,
                "off" => JoinSyncs::Off,
                _ => return Err("adaptive, on or off".to_owned()),
            };
            return Ok(());
        }
        if let Some(bound) = key.strip_prefix("hold_") {
            return self.set_bound(bound, value);
        }
        let knob = Knob::named(key).filter(|_| SETTINGS.contains(&key));
        let knob = knob.ok_or_else(|| format!("one of the settings {}", SETTINGS.join(", ")))?;
        if knob.set(&mut self.policy, value) { Ok(()) } else { Err(knob.values.expected()) }
    }

    /// Sets a bound of the hold. Has no effect under `hold=off`, which is an error.
    fn set_bound(&mut self, bound: &str, value: &str) -> Result<(), String> {
        let known = ["outstanding", "bios", "groups", "us"];
        if !known.contains(&bound) {
            return Err(format!("one of the settings {}", SETTINGS.join(", ")));
        }
        let Some(limits) = &mut self.hold else {
            return Err("no bound of the hold, because hold=off is set: remove one".to_owned());
        };
        let number = value.parse::<u32>().ok().filter(|number| (1..=BOUND_MAX).contains(number));
        let number = number.ok_or_else(|| format!("a number from 1 to {BOUND_MAX}"))?;
        match bound {
            "outstanding" => limits.outstanding_min = number,
            "bios" => limits.bios_max = number,
            "groups" => limits.groups = number,
            _ => limits.time_ns = u64::from(number) * 1000,
        }
        Ok(())
    }

    /// Returns the policy of the core.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the bounds of the hold; `None` under `hold=off`.
    pub fn hold(&self) -> Option<HoldLimits> {
        self.hold
    }

    /// Returns whether threads share syncs.
    pub fn join_syncs(&self) -> JoinSyncs {
        self.join_syncs
    }

    /// Returns the settings that the environment names. Ignores unknown keys and values, which
    /// `forebay run` rejects before it starts the program.
    pub fn of_environment() -> Settings {
        let mut settings = Settings::default();
        let text = std::env::var(POLICY_VARIABLE).unwrap_or_default();
        for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            let _ = settings.set(key, value);
        }
        settings
    }
}

/// The largest bound of the hold.
const BOUND_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_take_their_values_and_no_others() {
        let mut settings = Settings::default();
        let mut set = |key, value| settings.set(key, value);
        assert_eq!(set("hold_bios", "8"), Ok(()));
        assert_eq!(set("hold_us", "0"), Err("a number from 1 to 1000000".to_owned()));
        assert_eq!(set("hold", "always"), Err("adaptive or off".to_owned()));
        assert!(set("hold_writes", "1").unwrap_err().starts_with("one of the settings plug, "));
        assert_eq!(set("join_syncs", "on"), Ok(()));
        assert_eq!(set("join_syncs", "never"), Err("adaptive, on or off".to_owned()));
        assert!(set("wake", "fair").unwrap_err().starts_with("one of the settings plug, "));
        assert_eq!(set("nomerges", "2"), Ok(()));
        assert_eq!(settings.join_syncs(), JoinSyncs::On);
        assert_eq!(settings.hold().map(|limits| limits.bios_max), Some(8));
        assert_eq!(settings.set("hold", "off"), Ok(()));
        let error = settings.set("hold_bios", "8").unwrap_err();
        assert_eq!(error, "no bound of the hold, because hold=off is set: remove one");
    }
}
