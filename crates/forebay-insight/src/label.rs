//! Names of exports and disks as the label `device` of metrics.
//!
//! The default export has an empty name. Prometheus treats an empty label as a missing one, so the
//! label is the last part of its spec, or the whole spec if another export has that name.

/// Returns the labels of exports, given by name and spec.
pub fn labels<'a>(exports: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let is_taken = |label: &str| exports.iter().any(|(name, _)| *name == label);
    let label = |(name, spec): &(&'a str, &'a str)| match *name {
        "" => {
            let all = [last_part(spec), spec];
            all.into_iter().find(|label| !is_taken(label)).unwrap_or("(default)")
        }
        name => name,
    };
    exports.iter().map(label).collect()
}

/// Returns the last part of what a spec names: of a path, the name of the file.
pub fn last_part(spec: &str) -> &str {
    let target = spec.split_once('?').map_or(spec, |(target, _)| target);
    let path = target.trim_end_matches('/');
    let last = path.rsplit('/').next().unwrap_or(path).trim_end_matches(':');
    if last.is_empty() { spec } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_spec_names_it() {
        for (spec, expected) in [
            ("disk.img", "disk.img"),
            ("/var/lib/a.img?direct=on&engine=aio", "a.img"),
            ("/dev/vdb", "vdb"),
            ("psync:images/b.img", "b.img"),
            ("ram:64M?queue_depth=4", "ram:64M"),
            ("nbd://host/name", "name"),
            ("nbd+unix:///?socket=/run/s", "nbd+unix"),
            ("/", "/"),
        ] {
            assert_eq!(last_part(spec), expected, "{spec}");
        }
    }

    #[test]
    fn every_export_has_a_label_and_no_two_the_same() {
        assert_eq!(labels(&[("", "/a/b.img")]), ["b.img"]);
        assert_eq!(labels(&[("x", "a"), ("", "b.img?direct=on")]), ["x", "b.img"]);
        assert_eq!(labels(&[("b.img", "a"), ("", "/a/b.img")]), ["b.img", "/a/b.img"]);
        assert_eq!(labels(&[("a", "x"), ("", "a")]), ["a", "(default)"]);
    }
}
