//! Values of --limits and --priority.

use forebay::{Class, LIMIT_KEYS, LimitKey, Limits, Priority};

/// Parses limits, such as `iops=500,write_bps=10m`. An empty text is no limit.
pub(super) fn limits(text: &str) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("`{part}` is no KEY=VALUE"))?;
        let limit = LimitKey::named(key).ok_or_else(|| {
            let keys: Vec<_> = LIMIT_KEYS.iter().map(|limit| limit.key).collect();
            format!("unknown key `{key}`; the keys are {}", keys.join(", "))
        })?;
        if !limit.set(&mut limits, value) {
            return Err(format!("{key}={value}: expected {}", limit.values.expected()));
        }
    }
    limits
        .check()
        .map_err(|bad| format!("{}={}: expected {}", bad.key, bad.value, bad.expected))?;
    Ok(limits)
}

/// Parses a priority: a class, or a class and a level in it, such as `realtime/0`.
pub(super) fn priority(text: &str) -> Result<Priority, String> {
    let (class, level) = match text.split_once('/') {
        None => (text, None),
        Some((class, level)) => (class, Some(level)),
    };
    let named = Class::ALL.into_iter().find(|known| known.name() == class);
    let level = level.map_or(Some(Priority::default().level()), |level| level.parse().ok());
    named.zip(level).and_then(|(class, level)| Priority::new(class, level)).ok_or_else(|| {
        "expected realtime, best-effort or idle, with a level such as best-effort/4, from 0 (the \
         highest) to 7"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_keys_with_values() {
        let parsed = limits("iops=500,iops_burst=50,write_bps=10m").expect("good limits");
        assert_eq!((parsed.both.iops.per_s, parsed.both.iops.burst), (500, Some(50)));
        assert_eq!(parsed.write.bps.per_s, 10 << 20);
        assert_eq!(limits(""), Ok(Limits::default()));
        for (text, error) in [
            ("iops", "`iops` is no KEY=VALUE"),
            (
                "bps=fast",
                "bps=fast: expected a number of bytes per second from 0 to 1T; 0: no limit",
            ),
            ("bps_burst=1", "bps_burst=1: expected bps above 0 beside it, which sets the rate"),
        ] {
            assert_eq!(limits(text), Err(error.to_owned()));
        }
        assert!(limits("speed=1").is_err_and(|error| error.starts_with("unknown key `speed`;")));
    }

    #[test]
    fn priority_is_a_class_with_or_without_a_level() {
        let of = |class, level| Ok(Priority::new(class, level).expect("a level"));
        assert_eq!(priority("realtime"), of(Class::RealTime, 4));
        assert_eq!(priority("idle/7"), of(Class::Idle, 7));
        assert_eq!(priority("best-effort/0"), of(Class::BestEffort, 0));
        for text in ["", "fast", "idle/8", "idle/", "idle/x", "/3"] {
            assert!(priority(text).is_err(), "{text}");
        }
    }
}
