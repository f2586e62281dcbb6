//! Keys of a spec, taken one by one, so that an unknown key is refused by name.

use crate::error::SpecError;
use crate::spec::Spec;
use forebay_core::{parse_size, parse_switch};

/// The keys of a spec while its disk is opened.
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

    /// Returns the keys that were requested so far.
    #[cfg(test)]
    pub(crate) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Takes the value of `key` if it is set.
    ///
    /// # Errors
    /// Fails if `parse` rejects the value; `expected` describes the valid ones.
    pub(crate) fn take<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        let Some(value) = self.take_text(key) else { return Ok(None) };
        match parse(&value) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(SpecError::BadValue { key: key.to_owned(), value, expected: expected.into() })
            }
        }
    }

    /// Takes the value of `key`, unparsed, if it is set.
    pub(crate) fn take_text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let at = self.left.iter().position(|(name, _)| name == key)?;
        Some(self.left.remove(at).1)
    }

    /// Takes all values of a repeatable key, in order.
    pub(crate) fn take_all(&mut self, key: &'static str) -> Vec<String> {
        self.known.push(key);
        let (taken, left) = std::mem::take(&mut self.left).into_iter().partition(|k| k.0 == key);
        self.left = left;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    /// Takes all keys that `is_wanted` accepts, with their values, in order. `known` lists the
    /// valid keys.
    pub(crate) fn take_where(
        &mut self,
        known: &[&'static str],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<(String, String)> {
        self.known.extend(known);
        let all = std::mem::take(&mut self.left);
        let (taken, left) = all.into_iter().partition(|(key, _)| is_wanted(key));
        self.left = left;
        taken
    }

    /// Takes a switch: `on` or `off`.
    pub(crate) fn take_switch(&mut self, key: &'static str) -> Result<Option<bool>, SpecError> {
        self.take(key, "on or off", parse_switch)
    }

    /// Takes a whole number within `range`, which `expected` describes.
    pub(crate) fn take_number(
        &mut self,
        key: &'static str,
        expected: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, SpecError> {
        self.take(key, expected, |value| parse_size(value).filter(|number| range.contains(number)))
    }

    /// Refuses keys that were not taken. A driver whose open takes long calls this before.
    ///
    /// # Errors
    /// Names the first unknown key and the nearest known one.
    pub(crate) fn finish(&self) -> Result<(), SpecError> {
        let Some((key, _)) = self.left.first() else {
            return Ok(());
        };
        let mut known = self.known.clone();
        known.sort_unstable();
        let hint = match nearest(key, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("valid keys: {}", known.join(", ")),
        };
        Err(SpecError::UnknownKey { key: key.clone(), driver: self.driver, hint })
    }
}

/// Returns the known key that `key` abbreviates: the shortest one that begins with it, if `key` has
/// three letters or more. If there is none, returns the key with the fewest changed letters, if
/// they are few.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let prefixed = known.iter().filter(|known| key.len() >= 3 && known.starts_with(key));
    let similar = || known.iter().min_by_key(|known| distance(known, key));
    let is_near = |known: &&&str| distance(known, key) <= 1.max(key.len() / 3);
    prefixed.min_by_key(|known| known.len()).or_else(|| similar().filter(is_near)).copied()
}

/// Returns the number of single-letter changes between `a` and `b`.
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
    fn unknown_keys_are_named_with_the_nearest() {
        let spec = Spec::parse("ram:1M?plugg=none").unwrap();
        let mut keys = Keys::of(&spec);
        keys.take_switch("iostats").unwrap();
        keys.take_switch("plug").unwrap();
        let message = keys.finish().unwrap_err().to_string();
        assert_eq!(message, "unknown key `plugg` for driver `ram`; did you mean `plug`?");
    }

    #[test]
    fn a_prefix_wins_over_a_smaller_distance() {
        let known = ["seed", "seek_ns", "size"];
        assert_eq!(nearest("seek", &known), Some("seek_ns"));
        assert_eq!(nearest("sed", &known), Some("seed"));
        assert_eq!(nearest("nothing", &known), None);
        assert_eq!(nearest("lock", &["kick", "fua"]), None);
    }
}
