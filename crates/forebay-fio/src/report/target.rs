//! The latency target of a job in the reports.

use serde_json::Value;

use crate::latency_target::TargetOptions;

/// Returns the line of the text report, with the final depth.
pub(super) fn line(options: &TargetOptions, depth: u32) -> String {
    format!(
        "     latency   : target={}, window={}, percentile={:.2}%, depth={depth}",
        target_ns(options),
        options.window.as_micros(),
        options.percentile()
    )
}

/// Returns the pairs of the JSON report, with the final depth.
pub(super) fn values(options: &TargetOptions, depth: u32) -> [(&'static str, Value); 4] {
    [
        ("latency_depth", depth.into()),
        ("latency_target", target_ns(options).into()),
        ("latency_percentile", options.percentile().into()),
        ("latency_window", u64::try_from(options.window.as_micros()).unwrap_or(u64::MAX).into()),
    ]
}

fn target_ns(options: &TargetOptions) -> u64 {
    let target = options.target.unwrap_or_default();
    u64::try_from(target.as_nanos()).unwrap_or(u64::MAX)
}
