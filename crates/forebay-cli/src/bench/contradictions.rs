//! Options of a job beside another value of the same key in its filename.
//!
//! Neither value may be dropped silently, so the job is refused.

use forebay::{Setting, Spec};
use forebay_fio::job::Job;

/// Returns the first option that contradicts a key of the spec in the filename, with that key.
pub(super) fn find(job: &Job, spec: &Spec) -> Option<String> {
    let contradicts = |option: String, key: &str, value: &str| {
        let other = spec.get(key).filter(|other| !is_same(key, value, other))?;
        Some(format!("--{option} contradicts the key {key}={other}: leave one of them out"))
    };
    let switch = |name: &str, key: &str, given: Option<bool>| {
        let (number, word) = if given? { ("1", "on") } else { ("0", "off") };
        contradicts(format!("{name}={number}"), key, word)
    };
    let of_policy =
        |(key, value): &(&str, String)| contradicts(format!("{key}={value}"), key, value);
    let buffers = || {
        let size = spec.get("fixed_buffers").filter(|_| job.fixedbufs == Some(false))?;
        let key = format!("fixed_buffers={size}");
        Some(format!("--fixedbufs=0 contradicts the key {key}: leave one of them out"))
    };
    (job.policies.iter().find_map(of_policy))
        .or_else(|| switch("direct", "direct", job.direct))
        .or_else(|| switch("sqthread_poll", "sqpoll", job.sqthread_poll))
        .or_else(buffers)
}

/// Returns whether two values of a key mean the same.
pub(crate) fn is_same(key: &str, a: &str, b: &str) -> bool {
    let switch = |text: &str| match text {
        "on" | "1" | "yes" | "true" => Some(true),
        "off" | "0" | "no" | "false" => Some(false),
        _ => None,
    };
    a == b
        || match Setting::named(key).map(|setting| setting.values) {
            Some(values) => values.number(a).is_some() && values.number(a) == values.number(b),
            None => switch(a).is_some() && switch(a) == switch(b),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fio::cmdline::{Parsed, parse};

    fn found(args: &str) -> Option<String> {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let job = &command.jobs[0];
        find(job, &Spec::parse(job.filename.as_deref().expect("a filename")).expect("a spec"))
    }

    #[test]
    fn option_beside_another_value_of_its_key_is_refused() {
        for (args, option, key) in [
            ("--filename=ram:1M?plug=none --plug=per-level", "plug=per-level", "plug=none"),
            ("--filename=ram:1M?queue_depth=1k --queue_depth=8", "queue_depth=8", "queue_depth=1k"),
            ("--filename=x?direct=off --direct=1", "direct=1", "direct=off"),
            ("--filename=x?direct=yes --buffered=1", "direct=0", "direct=yes"),
            ("--filename=x?sqpoll=on --sqthread_poll=0", "sqthread_poll=0", "sqpoll=on"),
            ("--filename=x?fixed_buffers=1m --fixedbufs=0", "fixedbufs=0", "fixed_buffers=1m"),
        ] {
            let expected = format!("--{option} contradicts the key {key}: leave one of them out");
            assert_eq!(found(args), Some(expected), "{args}");
        }
    }

    #[test]
    fn option_beside_the_same_value_passes() {
        for args in [
            "--filename=ram:1M?plug=none --plug=none --nomerges=2",
            "--filename=ram:1M?queue_depth=1k --queue_depth=1024",
            "--filename=x?exclusive=yes --exclusive=on",
            "--filename=x?direct=yes --direct=1",
            // The engine of fio's side of a comparison; the header of a report names both.
            "--filename=x?engine=psync --ioengine=libaio",
            "--filename=x?fixed_buffers=1m --fixedbufs=1",
            "--filename=psync:x --ioengine=libaio",
        ] {
            assert_eq!(found(args), None, "{args}");
        }
    }
}
