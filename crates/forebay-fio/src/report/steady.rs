//! The steady state of a job in the reports.

use serde_json::{Value, json};

use super::number;
use crate::measures::Units;
use crate::steadystate::{Window, mean};

/// Returns the line of the text report.
pub(super) fn line(window: &Window, units: Units) -> String {
    let limit = window.limit();
    let attained = if window.is_attained() { "yes" } else { "no" };
    let bw = mean(window.bandwidth()) as u64;
    let what = match (limit.criterion.bandwidth, limit.criterion.slope) {
        (false, false) => "iops mean dev",
        (false, true) => "iops slope",
        (true, false) => "bw mean dev",
        (true, true) => "bw slope",
    };
    format!(
        "  steadystate  : attained={attained}, bw={} ({}), iops={}, {what}={:.3}{}",
        units.rate(bw),
        units.rate_in_other_base(bw),
        number::count(mean(window.iops()).round() as u64),
        window.measured(),
        sign(window)
    )
}

/// Returns the object of the JSON report.
pub(super) fn value(window: &Window) -> Value {
    let limit = window.limit();
    let integers = |values: Vec<f64>| values.into_iter().map(|value| value as u64);
    json!({
        "ss": format!("{}:{:.6}{}", limit.criterion.word(), limit.value, sign(window)),
        "duration": window.seconds(),
        "attained": u8::from(window.is_attained()),
        "criterion": format!("{:.6}{}", window.measured(), sign(window)),
        "max_deviation": window.max_deviation(),
        "slope": window.slope(),
        "data": {
            "bw_mean": mean(window.bandwidth()) as u64,
            "iops_mean": mean(window.iops()) as u64,
            "iops": integers(window.iops().collect()).collect::<Vec<_>>(),
            "bw": integers(window.bandwidth().collect()).collect::<Vec<_>>(),
        },
    })
}

fn sign(window: &Window) -> &'static str {
    if window.limit().percent { "%" } else { "" }
}
