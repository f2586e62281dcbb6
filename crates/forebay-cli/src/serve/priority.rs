//! The option `--priority`: I/O priorities of exports.

use forebay::{DiskInfo, Priority};

/// Returns a warning if the disk does not order I/O by the class of this priority.
pub(super) fn warning(info: &DiskInfo, priority: Priority) -> Option<String> {
    let has_effect = priority == Priority::default() || info.policy.scheduler.orders_by_class();
    let name = info.spec.split('?').next().unwrap_or_default();
    (!has_effect).then(|| {
        format!(
            "warning: {name}: --priority {priority:?} has no effect, because the \
             disk's scheduler ignores priorities: add scheduler=mq-deadline or scheduler=bfq to \
             its SPEC, or leave out the option"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::Disk;

    #[test]
    fn priority_without_a_scheduler_causes_a_warning() {
        let warning = |spec: &str, text: &str| {
            let disk = Disk::open(spec).expect(spec);
            warning(disk.info(), text.parse().expect(text))
        };
        let text = warning("ram:1M", "realtime/2").expect("a warning");
        assert!(text.starts_with("warning: ram:1M: --priority realtime/2 has no effect"), "{text}");
        assert_eq!(warning("ram:1M", "best-effort"), None);
        assert_eq!(warning("ram:1M?scheduler=mq-deadline", "idle"), None);
        assert_eq!(warning("ram:1M?scheduler=bfq", "idle"), None);
    }
}
