//! Write cache of librbd, by the options of an image.
//!
//! The cache decides whether a write needs a flush, and whether a write can be durable by itself.
//! Only the policy `writearound` honours the flag for that
//! ([`FADVISE_FUA`](super::api::FADVISE_FUA)): it does not end such a write before the OSD has
//! answered. The other policies ignore the flag, and so may a cache of a plug-in. A journal ends
//! writes in an order of its own. With any of these, a flush follows each durable write.
//!
//! Source: `WriteAroundObjectDispatch.cc`, `ObjectCacherObjectDispatch.cc` and `OpenRequest.cc` in
//! Ceph's `src/librbd`. The cache of an image is chosen when the image is opened.

use super::option::OptionValue;

/// The options of an image for its caches.
#[derive(Debug)]
pub(super) struct CacheOptions {
    pub(super) cache: OptionValue,
    pub(super) policy: OptionValue,
    /// A persistent cache on this machine is one of them.
    pub(super) plugins: OptionValue,
}

impl CacheOptions {
    /// Returns why written data may be lost before a flush, unless it certainly is not: librbd has
    /// reported that no cache is on.
    pub(super) fn volatile(&self) -> Option<String> {
        let CacheOptions { cache, policy, plugins } = self;
        if !(cache.is_effective() && plugins.is_effective()) {
            return Some(String::from(
                "assumed to be on, because librbd does not list the options of the image",
            ));
        }
        if !cache.is_false() {
            return Some(format!("rbd_cache={}, rbd_cache_policy={}", cache.text(), policy.text()));
        }
        (!plugins.is_empty()).then(|| format!("rbd_plugins={}", plugins.text()))
    }

    /// Checks whether a single write can be durable when it ends, although there is a cache.
    ///
    /// # Errors
    /// Returns why not.
    pub(super) fn durable_writes(&self, has_journal: bool) -> Result<(), String> {
        if has_journal {
            return Err(String::from(
                "the image has a journal, so a flush follows each durable write",
            ));
        }
        if !self.plugins.is_empty() {
            return Err(String::from(
                "rbd_plugins may add a cache, so a flush follows each durable \
                              write",
            ));
        }
        if !self.policy.is("writearound") {
            return Err(format!(
                "rbd_cache_policy={} does not honour FUA, so a flush follows each durable write; \
                 writearound does",
                self.policy.text()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options([cache, policy, plugins]: [&str; 3], is_effective: bool) -> CacheOptions {
        let value = |text: &str| OptionValue::new(Some(text.to_owned()), is_effective);
        CacheOptions { cache: value(cache), policy: value(policy), plugins: value(plugins) }
    }

    #[test]
    fn only_writes_under_the_write_around_policy_are_durable_by_themselves() {
        let has_fua = |values, journal| options(values, true).durable_writes(journal).is_ok();
        assert!(has_fua(["true", "writearound", ""], false));
        for policy in ["writeback", "writethrough", "", "WRITEAROUND", "writearound2"] {
            assert!(!has_fua(["true", policy, ""], false), "{policy}");
        }
        assert!(!has_fua(["true", "writearound", "pwl_cache"], false), "a persistent cache");
        assert!(!has_fua(["true", "writearound", ""], true), "a journal");
        let unknown = options(["true", "writearound", ""], false);
        assert!(unknown.durable_writes(false).is_err(), "the image may have another policy");
    }

    #[test]
    fn write_is_durable_only_without_any_cache() {
        let is_volatile = |values, effective| options(values, effective).volatile().is_some();
        assert!(!is_volatile(["false", "writearound", ""], true));
        assert!(is_volatile(["true", "writearound", ""], true));
        assert!(is_volatile(["false", "writearound", "pwl_cache"], true));
        assert!(is_volatile(["false", "writearound", ""], false));
    }
}
