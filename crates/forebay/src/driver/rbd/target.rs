//! Parts of a target: `pool[/namespace]/image[@snapshot]`.

use crate::error::SpecError;
use std::ffi::CString;

/// The image that a spec names. No part is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) pool: CString,
    pub(super) namespace: Option<CString>,
    pub(super) image: CString,
    pub(super) snapshot: Option<CString>,
}

impl Target {
    /// Parses the target of a spec.
    ///
    /// # Errors
    /// Fails if a part is missing or empty, or if there are too many.
    pub(super) fn parse(text: &str) -> Result<Target, SpecError> {
        let parsed = parse(text);
        parsed.ok_or_else(|| SpecError::BadTarget {
            driver: "rbd",
            target: text.to_owned(),
            expected: "pool[/namespace]/image[@snapshot]",
        })
    }
}

fn parse(text: &str) -> Option<Target> {
    // A null byte is no part of a name.
    let name = |part: &str| CString::new(part).ok().filter(|part| !part.is_empty());
    let (place, snapshot) = match text.split_once('@') {
        Some((place, snapshot)) if !snapshot.contains(['@', '/']) => (place, Some(name(snapshot)?)),
        Some(_) => return None,
        None => (text, None),
    };
    let parts: Vec<&str> = place.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (name(pool)?, None, name(image)?),
        [pool, namespace, image] => (name(pool)?, Some(name(namespace)?), name(image)?),
        _ => return None,
    };
    Some(Target { pool, namespace, image, snapshot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_pool_namespace_image_and_snapshot() {
        let parts = |text| {
            let Target { pool, namespace, image, snapshot } = Target::parse(text).ok()?;
            let text = |part: CString| part.into_string().expect("UTF-8");
            let (namespace, snapshot) = (namespace.map(text), snapshot.map(text));
            Some([
                text(pool),
                namespace.unwrap_or_default(),
                text(image),
                snapshot.unwrap_or_default(),
            ])
        };
        let of = |parts: [&str; 4]| Some(parts.map(str::to_owned));
        assert_eq!(parts("rbd/vm"), of(["rbd", "", "vm", ""]));
        assert_eq!(parts("rbd/vm@monday"), of(["rbd", "", "vm", "monday"]));
        assert_eq!(parts("rbd/a/vm@b"), of(["rbd", "a", "vm", "b"]));
        for wrong in
            ["", "vm", "/vm", "rbd/", "rbd//vm", "a/b/c/d", "rbd/vm@", "rbd/vm@a@b", "a/b@c/d"]
        {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
        let error = Target::parse("vm").expect_err("no pool").to_string();
        assert_eq!(error, "rbd:vm: expected pool[/namespace]/image[@snapshot]");
    }
}
