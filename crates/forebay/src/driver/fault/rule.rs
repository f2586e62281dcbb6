//! Rules of the `fault` driver as keys of a spec. [`FaultRule`] has their language.

use crate::error::SpecError;
use forebay_core::QueueLimits;
use forebay_model::FaultRule;
use std::borrow::Cow;

/// Parses the value of a key `rule`.
pub(super) fn parse(text: &str) -> Result<FaultRule, SpecError> {
    FaultRule::parse(text).map_err(|expected| bad(text, expected))
}

/// Checks that the rule can have its effect on a disk of these limits. `strikes`: write-backs fail
/// on this disk.
///
/// # Errors
/// Returns why the rule never has an effect.
pub(super) fn check(
    rule: &FaultRule,
    limits: &QueueLimits,
    strikes: bool,
) -> Result<(), SpecError> {
    rule.check(limits, strikes).map_err(|expected| bad(rule.text(), expected))
}

fn bad(text: &str, expected: impl Into<Cow<'static, str>>) -> SpecError {
    SpecError::BadValue {
        key: "rule".to_owned(),
        value: text.to_owned(),
        expected: expected.into(),
    }
}
