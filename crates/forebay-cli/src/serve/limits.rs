//! The option `--limits`: limits of exports.

use forebay::Limits;

/// Parses limits, such as `iops=500,write_bps=10m`. An empty text is no limit.
pub(super) fn limits(text: &str) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
        limits.set_key(key, value).map_err(|bad| bad.to_string())?;
    }
    limits.check().map_err(|bad| bad.to_string())?;
    Ok(limits)
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
            ("iops", "`iops` is not KEY=VALUE"),
            (
                "bps=fast",
                "bps=fast: expected a number of bytes per second from 0 to 1T; 0: no limit",
            ),
            ("bps_burst=1", "bps_burst=1: expected bps above 0 beside it: set that too"),
        ] {
            assert_eq!(limits(text), Err(error.to_owned()));
        }
        assert!(
            limits("speed=1")
                .is_err_and(|error| error.starts_with("speed=1: expected one of the limits "))
        );
    }
}
