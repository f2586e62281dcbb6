//! Unit tests of `knob`.

use super::*;
use crate::scheduling::SchedulerPolicy;
use alloc::vec::Vec;

#[test]
fn each_setting_takes_the_values_that_it_gives() {
    for knob in &KNOBS {
        let mut policy = Policy::default();
        let default = knob.get(&policy);
        assert!(knob.set(&mut policy, &default), "{}={default}", knob.key);
        assert_eq!(knob.get(&policy), default, "{}", knob.key);
        let values: Vec<String> = match knob.values {
            Values::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            Values::Switch => ["on", "off"].map(str::to_owned).into(),
            Values::Number { min, max, .. } => [min, max].map(|n| n.to_string()).into(),
            Values::Name => Vec::new(),
        };
        for value in values {
            let mut policy = Policy::default().queue_depth(QUEUE_DEPTH_MAX);
            assert!(knob.set(&mut policy, &value), "{}={value}", knob.key);
            assert_eq!(knob.get(&policy), value, "{}", knob.key);
        }
    }
}

#[test]
fn value_that_a_setting_does_not_take_changes_nothing() {
    for knob in &KNOBS {
        let mut policy = Policy::default();
        for value in ["", "nonsense", "-1", "99999999999999"] {
            assert!(!knob.set(&mut policy, value), "{}={value}", knob.key);
        }
        assert_eq!(policy, Policy::default(), "{}", knob.key);
    }
}

#[test]
fn values_are_described() {
    let expected = |key| Knob::named(key).expect("it is there").values.expected();
    assert_eq!(expected("flush"), "hold, requeue or tail");
    assert_eq!(expected("nomerges"), "0, 1 or 2");
    assert_eq!(expected("queue_depth"), "a number from 1 to 10240");
    assert_eq!(expected("elide"), "on or off");
    assert!(Knob::named("nonsense").is_none());
}

#[test]
fn policy_that_gives_out_more_tags_than_exist_is_bad() {
    let few = Policy::default().queue_depth(4);
    assert_eq!(few.check(), Ok(()));
    let key = |policy: Policy| policy.check().expect_err("too many").knob.key;
    assert_eq!(key(few.nr_requests(Some(5))), "nr_requests");
    assert_eq!(key(few.async_depth(5)), "async_depth");
    assert_eq!(key(few.nr_reserved(4)), "reserved_tags");
    assert_eq!(key(few.nr_requests(Some(2)).nr_reserved(2)), "reserved_tags");
}

#[test]
fn policy_at_its_bounds_is_good() {
    let few = Policy::default().queue_depth(4);
    for policy in [
        few.nr_requests(Some(4)),
        few.async_depth(4),
        few.async_depth(QUEUE_DEPTH_MAX),
        few.nr_reserved(3),
        few.io_timeout_ns(1).io_timeout_grace_ns(1),
        few.device_depth(Some(4)),
    ] {
        assert_eq!(policy.check(), Ok(()), "{policy:?}");
    }
    let bad = few.io_timeout_grace_ns(7 * NS_PER_MS).check().expect_err("there is no limit");
    assert_eq!((bad.knob.key, bad.value.as_str()), ("io_timeout_grace_ms", "7"));
    let bad = few.nr_requests(Some(5)).check().expect_err("there are four");
    assert_eq!(bad.expected, "a number from 1 to queue_depth, which is 4");
    let bad = few.device_depth(Some(5)).check().expect_err("there are four");
    assert_eq!((bad.knob.key, bad.value.as_str()), ("device_depth", "5"));
    let bad = few.nr_requests(Some(3)).nr_reserved(3).check().expect_err("none is left");
    assert_eq!(bad.expected, "a number below nr_requests, which is 3");
}

#[test]
fn settings_apply_where_they_have_an_effect() {
    let applying = |policy: Policy, limits: QueueLimits| -> Vec<&str> {
        let some = KNOBS.iter().filter(|knob| !knob.when.is_empty());
        some.filter(|knob| knob.applies(&policy, &limits)).map(|knob| knob.key).collect()
    };
    let (policy, limits) = (Policy::default(), QueueLimits::default());
    let of_cost =
        ["cost_read_io_ns", "cost_read_byte_ps", "cost_write_io_ns", "cost_write_byte_ps"];
    assert_eq!(applying(policy, limits)[1..], of_cost);
    let policy = policy.weight_by(crate::WeightBy::Bytes);
    assert_eq!(applying(policy, limits), ["tag_need"]);
    let emulation = crate::Emulation::default().wake(crate::WakePolicy::Batch);
    assert!(applying(policy.emulation(emulation), limits).is_empty());
    // Classes have tags of their own.
    assert!(applying(policy.nr_reserved(1), limits).is_empty());
    assert!(applying(policy.async_depth(2), limits).is_empty());
    assert_eq!(applying(policy.queue_depth(8).async_depth(8), limits), ["tag_need"]);
    assert_eq!(applying(policy.io_timeout_ns(1), limits), ["tag_need", "io_timeout_grace_ms"]);
    let cached = limits.volatile_cache(true);
    assert_eq!(applying(policy, cached), ["tag_need", "flush_pending_ms", "elide"]);
    assert_eq!(applying(policy, limits.flush_queueable(false)), ["tag_need", "flush"]);
    let mq_deadline = policy.scheduler(SchedulerPolicy::MqDeadline);
    let of_scheduler = [
        "tag_need",
        "device_depth",
        "fifo_batch",
        "read_expire",
        "write_expire",
        "writes_starved",
        "front_merges",
        "prio_aging_expire",
    ];
    assert_eq!(applying(mq_deadline, limits), of_scheduler);
    let of_kyber = ["tag_need", "device_depth", "read_lat_nsec", "write_lat_nsec"];
    assert_eq!(applying(policy.scheduler(SchedulerPolicy::Kyber), limits), of_kyber);
    let of_bfq = [
        "tag_need",
        "device_depth",
        "slice_idle_us",
        "max_budget",
        "timeout_sync",
        "fifo_expire_sync",
        "fifo_expire_async",
    ];
    assert_eq!(applying(policy.scheduler(SchedulerPolicy::Bfq), limits), of_bfq);
    let always = KNOBS.iter().filter(|knob| knob.when.is_empty());
    assert!(always.clone().all(|knob| knob.applies(&policy, &limits)) && always.count() > 10);
}

#[test]
fn defaults_are_those_of_the_policy_or_depend_on_the_disk() {
    let default = |key| Knob::named(key).expect("it is there").default_value();
    assert_eq!(default("flush_pending_ms"), DefaultValue::Fixed("5000".to_owned()));
    assert_eq!(default("plug").to_string(), "outermost");
    assert_eq!(default("iostats").to_string(), "on");
    let nr_requests = "queue_depth; with a scheduler twice device_depth, at least 64";
    assert_eq!(default("nr_requests"), DefaultValue::Depends(nr_requests));
    assert_eq!(default("nr_requests").to_string(), nr_requests);
    let few = Policy::default().queue_depth(4);
    let value = |key, policy| Knob::named(key).expect("it is there").get(policy);
    assert_eq!([value("nr_requests", &few), value("async_depth", &few)], ["4", "4"]);
    let fewer = few.nr_requests(Some(3)).async_depth(2);
    assert_eq!([value("nr_requests", &fewer), value("async_depth", &fewer)], ["3", "2"]);
    assert!(Knob::named("plug") == Knob::named("plug"));
    assert!(Knob::named("plug") != Knob::named("kick"));
}

#[test]
fn switches_have_several_words() {
    for (word, expected) in [
        ("on", Some(true)),
        ("1", Some(true)),
        ("yes", Some(true)),
        ("true", Some(true)),
        ("off", Some(false)),
        ("0", Some(false)),
        ("no", Some(false)),
        ("false", Some(false)),
        ("ON", None),
        ("", None),
    ] {
        assert_eq!(parse_switch(word), expected, "{word}");
    }
    assert_eq!((Values::Name.number("x"), Values::Name.expected()), (None, "a name".to_owned()));
    assert_eq!(
        (Values::Words(&[]).expected(), Values::Words(&["a"]).expected()),
        (String::new(), "a".to_owned())
    );
    let tags = Knob::named("reserved_tags").expect("it is there").values;
    assert_eq!(tags.expected(), "a number below nr_requests (default: queue_depth)");
}
