//! The option `--limits`: limits of exports.

use forebay_serve::ExportLimits;

/// Parses limits, such as `iops=500,client_write_bps=10m`. An empty text is no limit.
pub(super) fn limits(text: &str) -> Result<ExportLimits, String> {
    let mut limits = ExportLimits::default();
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
        let parsed = limits("iops=500,iops_burst=50,client_write_bps=10m,client_weight=7");
        let ExportLimits { all, client, .. } = parsed.expect("good limits");
        assert_eq!((all.both.iops.per_s, all.both.iops.burst), (500, Some(50)));
        assert_eq!((client.limits.write.bps.per_s, client.weight), (10 << 20, Some(7)));
        assert_eq!(limits(""), Ok(ExportLimits::default()));
        for (text, error) in [
            ("iops", "`iops` is not KEY=VALUE"),
            (
                "bps=fast",
                "bps=fast: expected a number of bytes per second from 0 to 1T; 0: no limit",
            ),
            (
                "bps=5,client_bps_burst=1",
                "client_bps_burst=1: expected client_bps above 0 beside it: set that too",
            ),
            ("client_weight=0", "client_weight=0: expected a number from 1 to 10000"),
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
