//! The option `--priority`: I/O priorities of exports.

use forebay::{Class, DiskInfo, Priority};

/// Parses the value of --priority: a class, perhaps with a level.
pub(super) fn parse(text: &str) -> Result<Priority, String> {
    let usual = Priority::default().level();
    let (name, level) = match text.split_once('/') {
        Some((name, level)) => (name, level.parse().map_err(|_| level_of(level))?),
        None => (text, usual),
    };
    let class = Class::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| {
        let names = Class::ALL.map(Class::name).join(", ");
        format!("unknown class `{name}`: expected one of {names}")
    })?;
    Priority::new(class, level).ok_or_else(|| level_of(&level.to_string()))
}

fn level_of(text: &str) -> String {
    format!("level `{text}`: expected a number from 0, the highest, to 7")
}

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
    fn a_class_has_the_usual_level_unless_one_is_given() {
        let priority = |class, level| Priority::new(class, level).expect("a level");
        assert_eq!(parse("realtime"), Ok(priority(Class::RealTime, 4)));
        assert_eq!(parse("idle/0"), Ok(priority(Class::Idle, 0)));
        assert_eq!(parse("best-effort/7"), Ok(priority(Class::BestEffort, 7)));
        for (text, why) in [
            ("rt", "unknown class `rt`: expected one of realtime, best-effort, idle"),
            ("", "unknown class ``: expected one of realtime, best-effort, idle"),
            ("idle/8", "level `8`: expected a number from 0, the highest, to 7"),
            ("idle/", "level ``: expected a number from 0, the highest, to 7"),
            ("idle/-1", "level `-1`: expected a number from 0, the highest, to 7"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn priority_without_a_scheduler_causes_a_warning() {
        let warning = |spec: &str, text: &str| {
            let disk = Disk::open(spec).expect(spec);
            warning(disk.info(), parse(text).expect(text))
        };
        let text = warning("ram:1M", "realtime/2").expect("a warning");
        assert!(text.starts_with("warning: ram:1M: --priority realtime/2 has no effect"), "{text}");
        assert_eq!(warning("ram:1M", "best-effort"), None);
        assert_eq!(warning("ram:1M?scheduler=mq-deadline", "idle"), None);
        assert_eq!(warning("ram:1M?scheduler=bfq", "idle"), None);
    }
}
