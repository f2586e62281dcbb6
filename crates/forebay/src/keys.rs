//! Taking the keys of a spec one by one, so that what nobody took can be refused by name.

use crate::error::SpecError;
use crate::spec::Spec;
use forebay_core::{NoMerges, PlugPolicy, Policy, QUEUE_DEPTH_MAX, QueueLimits};

/// The keys of one spec while it is opened.
#[derive(Debug)]
pub(crate) struct Keys {
    driver: &'static str,
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Keys {
    pub(crate) fn of(spec: &Spec) -> Keys {
        Keys { driver: spec.driver(), left: spec.keys().to_vec(), known: Vec::new() }
    }

    /// Takes `key`'s value, where it was given.
    ///
    /// # Errors
    /// If `parse` makes nothing of it: then `expected` says what would do.
    pub(crate) fn take<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        self.known.push(key);
        let Some(at) = self.left.iter().position(|(name, _)| name == key) else {
            return Ok(None);
        };
        let (key, value) = self.left.remove(at);
        match parse(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(SpecError::BadValue { key, value, expected }),
        }
    }

    /// Takes every value of a key that may be repeated, in order.
    pub(crate) fn take_all(&mut self, key: &'static str) -> Vec<String> {
        self.known.push(key);
        let (taken, left) = std::mem::take(&mut self.left).into_iter().partition(|k| k.0 == key);
        self.left = left;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    /// `on` or `off`.
    pub(crate) fn take_switch(&mut self, key: &'static str) -> Result<Option<bool>, SpecError> {
        self.take(key, "on or off", |value| match value {
            "on" | "1" | "yes" | "true" => Some(true),
            "off" | "0" | "no" | "false" => Some(false),
            _ => None,
        })
    }

    /// A whole number of `min` to `max`; `expected` says so.
    pub(crate) fn take_number(
        &mut self,
        key: &'static str,
        expected: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, SpecError> {
        self.take(key, expected, |value| size(value).filter(|number| range.contains(number)))
    }

    /// Refuses what nobody took.
    ///
    /// # Errors
    /// Names the first unknown key, and the known one that is nearest.
    pub(crate) fn finish(mut self) -> Result<(), SpecError> {
        let Some((key, _)) = self.left.into_iter().next() else {
            return Ok(());
        };
        self.known.sort_unstable();
        let nearest = self.known.iter().min_by_key(|known| distance(known, &key));
        let hint = match nearest {
            Some(near) if distance(near, &key) <= 1 + key.len() / 3 => {
                format!("did you mean `{near}`?")
            }
            _ => format!("there are: {}", self.known.join(", ")),
        };
        Err(SpecError::UnknownKey { key, driver: self.driver, hint })
    }
}

/// What every disk can be told, whatever its driver.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    max_sectors_kb: Option<u64>,
    fua: Option<bool>,
    read_only: Option<bool>,
}

impl Settings {
    /// Takes the keys that every disk has.
    pub(crate) fn take(keys: &mut Keys) -> Result<Settings, SpecError> {
        let mut policy = Policy::default();
        let plugs = [PlugPolicy::Outermost, PlugPolicy::PerLevel, PlugPolicy::None];
        let plug = keys.take("plug", "outermost, per-level or none", |value| {
            plugs.into_iter().find(|plug| plug.name() == value)
        })?;
        let nomerges = keys.take("nomerges", "0, 1 or 2", |value| match value {
            "0" => Some(NoMerges::All),
            "1" => Some(NoMerges::OneShot),
            "2" => Some(NoMerges::None),
            _ => None,
        })?;
        let depth_max = u64::from(QUEUE_DEPTH_MAX);
        let depth = keys.take_number("queue_depth", "a number of 1 to 10240", 1..=depth_max)?;
        let nr_bios = keys.take_number("nr_bios", "a number of 1 to 1048576", 1..=1 << 20)?;
        policy.plug = plug.unwrap_or(policy.plug);
        policy.nomerges = nomerges.unwrap_or(policy.nomerges);
        policy.queue_depth = depth.map_or(policy.queue_depth, |depth| depth as u32);
        policy.nr_bios = nr_bios.map_or(policy.nr_bios, |nr_bios| nr_bios as u32);
        policy.iostats = keys.take_switch("iostats")?.unwrap_or(policy.iostats);
        let expected = "a number of KiB, 1 to 1048576";
        Ok(Settings {
            policy,
            max_sectors_kb: keys.take_number("max_sectors_kb", expected, 1..=1 << 20)?,
            fua: keys.take_switch("fua")?,
            read_only: keys.take_switch("read_only")?,
        })
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// Applies the settings that change limits; they can only make them smaller.
    pub(crate) fn apply(&self, limits: &mut QueueLimits) {
        if let Some(kib) = self.max_sectors_kb {
            limits.max_sectors = limits.max_hw_sectors.min(kib as u32 * 2);
        }
        limits.fua &= self.fua != Some(false);
        limits.read_only |= self.read_only();
    }
}

/// A number with an optional suffix `k`, `m`, `g` or `t` (powers of 1024), in either case.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// How many single-letter changes make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        let good = [("0", 0), ("512", 512), ("4k", 4096), ("1M", 1 << 20), ("2GiB", 2 << 30)];
        for (text, bytes) in good {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "1.5g", "1x", "99999999999999t"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest() {
        let spec = Spec::parse("ram:1M?plugg=none").unwrap();
        let mut keys = Keys::of(&spec);
        Settings::take(&mut keys).unwrap();
        let message = keys.finish().unwrap_err().to_string();
        assert_eq!(message, "unknown key `plugg` for driver `ram`; did you mean `plug`?");
    }
}
