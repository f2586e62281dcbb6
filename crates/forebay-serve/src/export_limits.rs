//! Limits of an export: those of all its clients together, and those of each client.
//!
//! The keys are those of [`LIMIT_KEYS`] for the export. With `client_` before them they apply to
//! each client, and `client_weight` is the share of each. `forebay serve --limits` uses
//! [`ExportLimits::set_key`]. The control socket uses `change`, which applies several keys or none.

use forebay::{BadLimit, LIMIT_KEYS, LimitKey, Limits, WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};

/// Prefix of the keys that apply to each client.
const PREFIX: &str = "client_";

/// Key of a client's weight, without the prefix.
const WEIGHT: &str = "weight";

/// The limits of an export. The default is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExportLimits {
    /// Limits of all clients together.
    pub all: Limits,
    /// Limits of each client by itself.
    pub client: ClientLimits,
}

/// The limits of one client. The default is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Rates, bursts and the latency goal.
    pub limits: Limits,
    /// The share of the client among the clients of its export, 1 to 10,000. `None`: 100 if
    /// another key of clients is set. Without any, clients are no owners and have no share.
    pub weight: Option<u32>,
}

impl From<Limits> for ExportLimits {
    fn from(all: Limits) -> ExportLimits {
        ExportLimits { all, ..ExportLimits::default() }
    }
}

impl ExportLimits {
    /// Sets the limit with this key. [`check`](ExportLimits::check) then checks the limits against
    /// each other.
    ///
    /// # Errors
    /// Fails if there is no such key, or if the value is bad for it.
    pub fn set_key(&mut self, key: &str, value: &str) -> Result<(), BadLimit> {
        match key.strip_prefix(PREFIX) {
            Some(of_client) if ClientLimits::has_key(of_client) => {
                self.client.set_key(of_client, value).map_err(of_clients)
            }
            None if LimitKey::named(key).is_some() => self.all.set_key(key, value),
            _ => Err(unknown(key, value, &format!(", each also with {PREFIX}, or {PREFIX}weight"))),
        }
    }

    /// Checks that each burst has a rate.
    ///
    /// # Errors
    /// Returns the first burst without a rate.
    pub fn check(&self) -> Result<(), BadLimit> {
        self.all.check()?;
        self.client.limits.check().map_err(of_clients)
    }

    /// Changes the values of some keys: `None` restores the default. A rate of 0 ends the limit
    /// with its burst. Changes nothing if it fails.
    pub(crate) fn change(&mut self, changes: &[(String, Option<String>)]) -> Result<(), BadLimit> {
        let mut new = *self;
        let (mut all, mut client) = (Vec::new(), Vec::new());
        for (key, value) in changes {
            let value = value.as_deref();
            match key.strip_prefix(PREFIX) {
                Some(key) if ClientLimits::has_key(key) => client.push((key, value)),
                // Refuses unknown keys.
                _ if LimitKey::named(key).is_none() => {
                    return new.set_key(key, value.unwrap_or("null"));
                }
                _ => all.push((key.as_str(), value)),
            }
        }
        change(&mut new.all, &all)?;
        new.client.change_keys(&client).map_err(of_clients)?;
        new.check()?;
        *self = new;
        Ok(())
    }

    /// Returns the keys that are set, with their values.
    pub(crate) fn set_keys(&self) -> Vec<(String, u64)> {
        let client = self.client.set_keys().into_iter();
        let client = client.map(|(key, value)| (format!("{PREFIX}{key}"), value));
        set_keys(&self.all).map(|(key, value)| (key.to_owned(), value)).chain(client).collect()
    }
}

impl ClientLimits {
    fn has_key(key: &str) -> bool {
        key == WEIGHT || LimitKey::named(key).is_some()
    }

    /// Sets the limit with this key, which has no prefix.
    fn set_key(&mut self, key: &str, value: &str) -> Result<(), BadLimit> {
        if key != WEIGHT {
            return self.limits.set_key(key, value);
        }
        let weight = value.parse().ok().filter(|it| (WEIGHT_MIN..=WEIGHT_MAX).contains(it));
        if weight.is_none() {
            let expected = format!("a number from {WEIGHT_MIN} to {WEIGHT_MAX}");
            return Err(BadLimit { key: key.to_owned(), value: value.to_owned(), expected });
        }
        self.weight = weight;
        Ok(())
    }

    /// Changes the values of some keys, as [`ExportLimits::change`] does. The keys have no prefix.
    pub(crate) fn change(&mut self, changes: &[(String, Option<String>)]) -> Result<(), BadLimit> {
        let mut new = *self;
        let changes = changes.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
        let changes: Vec<_> = changes.collect();
        if let Some((key, value)) = changes.iter().find(|(key, _)| !ClientLimits::has_key(key)) {
            return Err(unknown(key, value.unwrap_or("null"), &format!(", or {WEIGHT}")));
        }
        new.change_keys(&changes)?;
        new.limits.check()?;
        *self = new;
        Ok(())
    }

    fn change_keys(&mut self, changes: &[(&str, Option<&str>)]) -> Result<(), BadLimit> {
        let is_weight = |(key, _): &&(&str, Option<&str>)| *key == WEIGHT;
        for (key, value) in changes.iter().filter(is_weight) {
            match value {
                Some(value) => self.set_key(key, value)?,
                None => self.weight = None,
            }
        }
        let others = changes.iter().filter(|change| !is_weight(change));
        change(&mut self.limits, &others.copied().collect::<Vec<_>>())
    }

    /// Returns the weight in force.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.unwrap_or(WEIGHT_DEFAULT)
    }

    /// Returns the keys that are set, without the prefix, with their values.
    pub(crate) fn set_keys(&self) -> Vec<(String, u64)> {
        let weight = self.weight.map(|weight| (WEIGHT, weight.into()));
        let keys = set_keys(&self.limits).chain(weight);
        keys.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Changes the values of keys of [`LIMIT_KEYS`]. A burst that is not among them ends with its rate.
fn change(limits: &mut Limits, changes: &[(&str, Option<&str>)]) -> Result<(), BadLimit> {
    for (key, value) in changes {
        match (value, LimitKey::named(key)) {
            (None, Some(limit)) => limit.reset(limits),
            _ => limits.set_key(key, value.unwrap_or_default())?,
        }
    }
    for limit in &LIMIT_KEYS {
        let is_set = changes.iter().any(|(key, _)| *key == limit.key);
        if !is_set && limit.lacks_rate(limits) {
            limit.reset(limits);
        }
    }
    Ok(())
}

fn set_keys(limits: &Limits) -> impl Iterator<Item = (&'static str, u64)> {
    LIMIT_KEYS.iter().filter_map(move |limit| Some((limit.key, limit.number(limits)?)))
}

/// Returns the error for a key that does not exist.
fn unknown(key: &str, value: &str, more: &str) -> BadLimit {
    let keys: Vec<_> = LIMIT_KEYS.iter().map(|limit| limit.key).collect();
    let expected = format!("one of the limits {}{more}", keys.join(", "));
    BadLimit { key: key.to_owned(), value: value.to_owned(), expected }
}

/// Returns an error with the prefix of keys of clients.
fn of_clients(bad: BadLimit) -> BadLimit {
    let expected = match bad.key.ends_with("_burst") && bad.expected.contains(" beside it") {
        true => format!("{PREFIX}{}", bad.expected),
        false => bad.expected,
    };
    BadLimit { key: format!("{PREFIX}{}", bad.key), expected, ..bad }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_one_of_the_export_or_of_each_client() {
        for limit in &LIMIT_KEYS {
            let mut limits = ExportLimits::default();
            limits.set_key(limit.key, "8").expect("a good value");
            limits.set_key(&format!("client_{}", limit.key), "9").expect("a good value");
            assert_eq!(limit.get(&limits.all).as_deref(), Some("8"), "{}", limit.key);
            assert_eq!(limit.get(&limits.client.limits).as_deref(), Some("9"), "{}", limit.key);
            let expected = [(limit.key.to_owned(), 8), (format!("client_{}", limit.key), 9)];
            assert_eq!(limits.set_keys(), expected);
        }
        let mut limits = ExportLimits::default();
        limits.set_key("client_weight", "500").expect("a good value");
        assert_eq!(limits.set_keys(), [("client_weight".to_owned(), 500)]);
    }

    #[test]
    fn bad_keys_and_values_name_the_key_as_it_was_written() {
        let error = |key: &str, value: &str| {
            let mut limits = ExportLimits::default();
            let bad = limits.set_key(key, value).expect_err("a bad limit");
            assert_eq!(limits, ExportLimits::default());
            bad.to_string()
        };
        assert_eq!(
            error("client_weight", "0"),
            "client_weight=0: expected a number from 1 to 10000"
        );
        assert_eq!(
            error("client_iops", "fast"),
            "client_iops=fast: expected a number of I/Os per second from 0 to 268435456; 0: no \
             limit"
        );
        for key in ["weight", "client_speed", "client_", "client_client_iops"] {
            let error = error(key, "1");
            assert!(error.starts_with(&format!("{key}=1: expected one of the limits iops, bps, ")));
            assert!(error.ends_with("each also with client_, or client_weight"), "{error}");
        }
        let mut limits = ExportLimits::default();
        limits.client.limits.read.bps.burst = Some(5);
        let bad = limits.check().expect_err("no rate").to_string();
        let expected = "client_read_bps_burst=5: expected client_read_bps above 0 beside it: set \
                        that too";
        assert_eq!(bad, expected);
    }

    #[test]
    fn changes_apply_together_or_not_at_all() {
        let changes = |pairs: &[(&str, Option<&str>)]| -> Vec<(String, Option<String>)> {
            let owned =
                |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), value.map(str::to_owned));
            pairs.iter().map(owned).collect()
        };
        let mut limits = ExportLimits::default();
        let set =
            [("iops", Some("5")), ("client_iops", Some("2")), ("client_iops_burst", Some("1"))];
        limits.change(&changes(&set)).expect("good values");
        let before = limits;
        for (key, value) in [
            ("client_weight", Some("0")),
            ("client_speed", None),
            ("speed", Some("1")),
            ("client_bps_burst", Some("1")),
        ] {
            let bad = limits.change(&changes(&[("iops", Some("7")), (key, value)]));
            assert!(bad.is_err(), "{key}");
            assert_eq!(limits, before, "{key}");
        }
        limits.change(&changes(&[("client_iops", Some("0"))])).expect("good values");
        assert_eq!(limits.set_keys(), [("iops".to_owned(), 5)], "its burst ends too");
        let mut client = ClientLimits::default();
        client.change(&changes(&[("weight", Some("7")), ("bps", Some("1m"))])).expect("good");
        assert_eq!(client.set_keys(), [("bps".to_owned(), 1 << 20), ("weight".to_owned(), 7)]);
        let bad = client.change(&changes(&[("client_bps", Some("1"))])).expect_err("a prefix");
        assert!(bad.to_string().ends_with("latency_target_us, or weight"), "{bad}");
        client.change(&changes(&[("weight", None)])).expect("a known key");
        assert_eq!(client.weight(), WEIGHT_DEFAULT);
    }
}
