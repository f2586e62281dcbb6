//! Value of an option of librbd.

/// The value of an option of an image. The image and its pool may override the configuration. The
/// text of an override is as the administrator wrote it, so it may have any form that Ceph accepts.
#[derive(Debug)]
pub(super) struct OptionValue {
    /// `None`: librbd has no such option.
    text: Option<String>,
    /// The value has regard to overrides. Otherwise it is only that of the configuration.
    is_effective: bool,
}

impl OptionValue {
    pub(super) fn new(text: Option<String>, is_effective: bool) -> OptionValue {
        OptionValue { text, is_effective }
    }

    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    pub(super) fn is_effective(&self) -> bool {
        self.is_effective
    }

    /// Returns whether the option is certainly false. A value that librbd may read as true, or that
    /// may be overridden, is not.
    pub(super) fn is_false(&self) -> bool {
        let is_zero = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte == b'0');
        let is_false = |text: &str| text.eq_ignore_ascii_case("false") || is_zero(text);
        self.is_effective && self.text.as_deref().is_some_and(is_false)
    }

    /// Returns whether the option certainly has this value, exactly as written here.
    pub(super) fn is(&self, text: &str) -> bool {
        self.is_effective && self.text.as_deref() == Some(text)
    }

    /// Returns whether the option is certainly empty.
    pub(super) fn is_empty(&self) -> bool {
        self.is_effective && self.text().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(text: &str) -> OptionValue {
        OptionValue::new(Some(text.to_owned()), true)
    }

    #[test]
    fn only_what_ceph_reads_as_false_is_false() {
        for text in ["false", "False", "FALSE", "0", "00"] {
            assert!(effective(text).is_false(), "{text}");
        }
        for text in ["true", "True", "TRUE", "1", "2", "01", "-1", "", "x", "0x", "no", "off"] {
            assert!(!effective(text).is_false(), "{text}");
        }
        assert!(!OptionValue::new(None, true).is_false());
    }

    #[test]
    fn value_that_may_be_overridden_is_neither_false_nor_empty() {
        let value = |text: &str| OptionValue::new(Some(text.to_owned()), false);
        assert!(!value("false").is_false() && !value("0").is_false());
        assert!(!value("").is_empty() && !OptionValue::new(None, false).is_empty());
        assert!(effective("").is_empty() && OptionValue::new(None, true).is_empty());
        assert!(!effective("pwl_cache").is_empty());
    }
}
